//! The function of a TLS library that a caller would have had without us.
//!
//! `RTLD_NEXT` does not know it where it matters. It looks through what was loaded with the program: what
//! a library loaded later brought for itself alone, as Python's `_ssl` brings libssl, it does not find;
//! and where several libssl are in one process, as some Python packages have a copy of their own, it
//! finds one, and that may be another's. A connection made by one libssl on a context of another is a
//! crash. So the library that calls is asked first: what it depends on is what it meant.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{RTLD_LAZY, RTLD_NEXT, RTLD_NOLOAD, c_void};

/// A function that is interposed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    pub(crate) name: &'static CStr,
    /// The TLS library that has it, too, if `librejoin.so` and its kind know that.
    pub(crate) library: &'static CStr,
    /// Another one for each name.
    pub(crate) number: usize,
    /// What has this name here.
    pub(crate) own: *const c_void,
}

/// What was found out for one place in the code that calls.
struct Known {
    /// With the function's number: a place may call several, one after the other.
    caller: AtomicUsize,
    next: AtomicUsize,
    within: AtomicUsize,
}

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) address: usize,
    /// Where the library begins that calls; 0 if nobody knows.
    pub(crate) within: usize,
}

/// Places in the code that call. Those beyond are looked up each time.
static KNOWN: [Known; 128] = [const {
    Known { caller: AtomicUsize::new(FREE), next: AtomicUsize::new(0), within: AtomicUsize::new(0) }
}; 128];

/// No caller, and one that is being entered.
const FREE: usize = 0;
const TAKEN: usize = 1;
/// Addresses of programs have fewer bits.
const ADDRESS_BITS: u32 = 56;

impl Function {
    /// Finds it for who calls from there, once. It is never our own.
    pub(crate) fn next(&self, caller: *const c_void) -> Option<Next> {
        let place = caller as usize | self.number << ADDRESS_BITS;
        let known = KNOWN.iter().find(|known| known.caller.load(Ordering::Acquire) == place);
        match known {
            Some(known) => Some(Next {
                address: known.next.load(Ordering::Relaxed),
                within: known.within.load(Ordering::Relaxed),
            }),
            None => self.look_up(caller).inspect(|next| remember(place, *next)),
        }
    }

    fn look_up(&self, caller: *const c_void) -> Option<Next> {
        let own = self.own as usize;
        let theirs = || self.in_library(open(library_of(caller)?)?);
        // The program itself is no library.
        let program = || self.in_library(RTLD_NEXT);
        let found = theirs().filter(|found| *found != own).or_else(program);
        let found = found.or_else(|| self.in_own_library());
        // The failures are nobody else's business.
        // SAFETY: no arguments.
        unsafe { libc::dlerror() };
        found.map(|address| Next { address, within: beginning_of(caller as usize) })
    }

    /// That of the TLS library that `librejoin.so` and its kind have, too.
    pub(crate) fn in_own_library(&self) -> Option<usize> {
        self.in_library(open(self.library)?)
    }

    fn in_library(&self, library: *mut c_void) -> Option<usize> {
        // SAFETY: `library` is open, or stands for those after us.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        (!found.is_null()).then_some(found as usize)
    }
}

/// What is entered stays: the library that calls is never unloaded after [`open`], nor is what it
/// depends on.
fn remember(caller: usize, next: Next) {
    let take = |known: &&Known| {
        let exchanged =
            known.caller.compare_exchange(FREE, TAKEN, Ordering::Relaxed, Ordering::Relaxed);
        exchanged.is_ok()
    };
    if let Some(known) = KNOWN.iter().find(take) {
        known.next.store(next.address, Ordering::Relaxed);
        known.within.store(next.within, Ordering::Relaxed);
        known.caller.store(caller, Ordering::Release);
    }
}

/// The name of what has this address.
pub(crate) fn library_of(address: *const c_void) -> Option<&'static CStr> {
    let found = about(address).filter(|found| !found.dli_fname.is_null())?;
    // SAFETY: the loader's own text, which lives as long as what is loaded: it is calling us.
    Some(unsafe { CStr::from_ptr(found.dli_fname) })
}

/// Where the library begins that has this address; 0 if none has.
pub(crate) fn beginning_of(address: usize) -> usize {
    about(address as *const c_void).map_or(0, |found| found.dli_fbase as usize)
}

fn about(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: null pointers are nothing's.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is ours; any address may be asked for.
    let is_found = unsafe { libc::dladdr(address, &raw mut found) } != 0;
    is_found.then_some(found)
}

/// If it is loaded. It will not be unloaded.
fn open(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: nothing is loaded, so that no code runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), RTLD_NOLOAD | RTLD_LAZY) };
    (!library.is_null()).then_some(library)
}
