//! The `SSL_new` that a caller would have had without us.
//!
//! `RTLD_NEXT` does not know it where it matters. It looks through what was loaded with the program: what
//! a library loaded later brought for itself alone, as Python's `_ssl` brings libssl, it does not find;
//! and where several libssl are in one process, as some Python packages have a copy of their own, it
//! finds one, and that may be another's. A connection made by one libssl on a context of another is a
//! crash. So the library that calls is asked first: what it depends on is what it meant.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{RTLD_LAZY, RTLD_NEXT, RTLD_NOLOAD, c_void};

/// libssl's `SSL_new`.
pub(crate) type SslNew = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// What was found out for one place in the code that calls.
struct Known {
    caller: AtomicUsize,
    next: AtomicUsize,
}

/// Places in the code from which `SSL_new` is called. Those beyond are looked up each time.
static KNOWN: [Known; 64] =
    [const { Known { caller: AtomicUsize::new(FREE), next: AtomicUsize::new(0) } }; 64];

/// No caller, and one that is being entered.
const FREE: usize = 0;
const TAKEN: usize = 1;

/// Finds it for who calls from there, once. It is never our `own`.
pub(crate) fn of(caller: *const c_void, own: *const c_void) -> Option<SslNew> {
    let place = caller as usize;
    let known = KNOWN.iter().find(|known| known.caller.load(Ordering::Acquire) == place);
    let address = match known {
        Some(known) => known.next.load(Ordering::Relaxed),
        None => look_up(caller, own).inspect(|address| remember(place, *address))?,
    };
    // SAFETY: the address of what libssl has by this name.
    Some(unsafe { std::mem::transmute::<usize, SslNew>(address) })
}

/// What is entered stays: the library that calls is never unloaded after [`open`], nor is what it
/// depends on.
fn remember(caller: usize, next: usize) {
    let take = |known: &&Known| {
        let exchanged =
            known.caller.compare_exchange(FREE, TAKEN, Ordering::Relaxed, Ordering::Relaxed);
        exchanged.is_ok()
    };
    if let Some(known) = KNOWN.iter().find(take) {
        known.next.store(next, Ordering::Relaxed);
        known.caller.store(caller, Ordering::Release);
    }
}

fn look_up(caller: *const c_void, own: *const c_void) -> Option<usize> {
    let theirs = || open(library_of(caller)?).and_then(in_library);
    // The program itself is no library.
    let program = || in_library(RTLD_NEXT);
    let found = theirs().filter(|found| *found != own as usize).or_else(program);
    let found = found.or_else(libssl);
    // The failures are nobody else's business.
    // SAFETY: no arguments.
    unsafe { libc::dlerror() };
    found
}

/// That of the libssl that `librejoin.so` has, too.
pub(crate) fn libssl() -> Option<usize> {
    open(c"libssl.so.3").and_then(in_library)
}

/// The name of what has this address.
pub(crate) fn library_of(address: *const c_void) -> Option<&'static CStr> {
    // SAFETY: null pointers are nothing's.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is ours; any address may be asked for.
    if unsafe { libc::dladdr(address, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own text, which lives as long as what is loaded: it is calling us.
    Some(unsafe { CStr::from_ptr(found.dli_fname) })
}

/// If it is loaded. It will not be unloaded.
fn open(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: nothing is loaded, so that no code runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), RTLD_NOLOAD | RTLD_LAZY) };
    (!library.is_null()).then_some(library)
}

fn in_library(library: *mut c_void) -> Option<usize> {
    // SAFETY: `library` is open, or stands for those after us.
    let found = unsafe { libc::dlsym(library, c"SSL_new".as_ptr()) };
    (!found.is_null()).then_some(found as usize)
}
