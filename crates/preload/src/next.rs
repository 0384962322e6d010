//! The function of a TLS library that a caller would have reached without this library.
//!
//! `RTLD_NEXT` is not enough. It searches the libraries that were loaded with the program. It does not find a library
//! that a later one brought for itself alone, as Python's `_ssl` brings libssl. If a process has several libssl, as
//! some Python packages bring a copy of their own, it finds one of them, which may be the wrong one. A connection
//! made by one libssl on a context of another is a crash. So the dependencies of the calling library are searched
//! first.
//!
//! Another library that is named in `LD_PRELOAD` may interpose the same function, as a key logger does. Whoever reached
//! this library would have reached that one, if it comes later: so the call goes to it, and the search finds out only
//! which TLS library is behind it. It is told from a TLS library by what it lacks ([`Function::of_another`]).

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{RTLD_LAZY, RTLD_NEXT, RTLD_NOLOAD, c_void};

use crate::objects;

/// A function that is interposed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    pub(crate) name: &'static CStr,
    /// The TLS library that has it, and that the adapters use.
    pub(crate) library: &'static CStr,
    /// A number that no other function has.
    pub(crate) number: usize,
    /// The address of our function of this name.
    pub(crate) own: *const c_void,
}

/// The destination of the calls from one place in the code.
struct Known {
    /// The place, and the function's number: one place may call several functions.
    caller: AtomicUsize,
    next: AtomicUsize,
    reaches: AtomicUsize,
    within: AtomicUsize,
}

/// The destination of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) address: usize,
    /// The function of the TLS library that the call reaches in the end. It differs from the address if another library
    /// interposes it, too. 0: it is unknown.
    pub(crate) reaches: usize,
    /// The base address of the calling library; 0 if it is unknown.
    pub(crate) within: usize,
}

/// The known places, in the order in which they were found. Calls from further places are looked up each time. `SSL_ctrl`
/// alone is called in many: each use of a macro of `ssl.h` is one.
static KNOWN: [Known; MOST_KNOWN] = [const {
    Known {
        caller: AtomicUsize::new(FREE),
        next: AtomicUsize::new(0),
        reaches: AtomicUsize::new(0),
        within: AtomicUsize::new(0),
    }
}; MOST_KNOWN];
const MOST_KNOWN: usize = 512;

/// The marks of an entry that is free, and of one that is being written.
const FREE: usize = 0;
const TAKEN: usize = 1;
/// The bits of an address. Addresses of user space have fewer.
const ADDRESS_BITS: u32 = 56;

impl Function {
    /// Finds the function for a place in the code, once. It is never our own.
    pub(crate) fn next(&self, caller: *const c_void) -> Option<Next> {
        let place = caller as usize | self.number << ADDRESS_BITS;
        known(place).or_else(|| self.look_up(caller).inspect(|next| remember(place, *next)))
    }

    fn look_up(&self, caller: *const c_void) -> Option<Next> {
        let within = beginning_of(caller as usize);
        if ends() {
            return self.at_the_end(within);
        }
        let own = self.own as usize;
        let another = self.of_another();
        // One that was named before this library calls the next one, and not itself.
        let calls_on = |found: usize| {
            beginning_of(found) == within && objects::before(found, own_code()).is_some()
        };
        let is_theirs =
            |found: &usize| *found != own && Some(*found) != another && !calls_on(*found);
        let theirs = || self.in_library(open(library_of(caller)?)?).filter(is_theirs);
        // The program itself is no library.
        let program = || match another {
            Some(_) => self.beside_mark(),
            None => self.in_library(RTLD_NEXT),
        };
        let found = theirs().or_else(program).or_else(|| self.in_own_library());
        forget_errors();
        let address = another.or(found)?;
        Some(Next { address, reaches: found.unwrap_or(0), within })
    }

    /// Finds the function while the program ends, without [`open`]: dlopen(3) takes a library whose destructors run for
    /// one that was never initialised (glibc 2.36), and runs its constructors over what is there.
    fn at_the_end(&self, within: usize) -> Option<Next> {
        let of_same = |known: &&Known| known.within.load(Ordering::Relaxed) == within;
        let other = KNOWN.iter().find(of_same).map(|known| known.reaches.load(Ordering::Relaxed));
        // Another TLS library than that of the caller's other calls is not its own.
        let is_its_own =
            |found: &usize| other.is_none_or(|other| beginning_of(other) == beginning_of(*found));
        let another = self.of_another().map(|address| Next { address, reaches: 0, within });
        let found = self.in_library(RTLD_NEXT).filter(is_its_own);
        forget_errors();
        another.or_else(|| found.map(|address| Next { address, reaches: address, within }))
    }

    /// Returns the function of another library that interposes it, and that whoever called ours would have reached.
    ///
    /// Such a library was loaded with the program, and has no versions, so that the loader takes it for any. It lacks a
    /// function that each TLS library has: then the context is not its own, but of the TLS library behind it. Anything
    /// else is left to the search for the TLS library.
    pub(crate) fn of_another(&self) -> Option<usize> {
        let next = self.in_library(RTLD_NEXT)?;
        let is_whole = self.mark(RTLD_NEXT).is_some_and(|mark| is_in_one(mark, next));
        // The C library comes after all that is preloaded.
        let is_interposer =
            || objects::before(next, libc::gnu_get_libc_version as *const () as usize);
        (!is_whole && is_interposer() == Some(objects::Versions::None)).then_some(next)
    }

    /// Finds the function of the TLS library that the program was loaded with.
    fn beside_mark(&self) -> Option<usize> {
        let mark = self.mark(RTLD_NEXT)?;
        let library = open(library_of(mark as *const c_void)?)?;
        self.in_library(library).filter(|found| is_in_one(mark, *found))
    }

    /// Returns a function that each TLS library has, and that one that only listens leaves alone: it frees what programs
    /// make.
    fn mark(&self, library: *mut c_void) -> Option<usize> {
        let is_gnutls = self.library == c"libgnutls.so.30";
        in_library(library, if is_gnutls { c"gnutls_global_deinit" } else { c"SSL_CTX_free" })
    }

    /// Finds the function of the TLS library that the adapters use.
    pub(crate) fn in_own_library(&self) -> Option<usize> {
        self.in_library(open(self.library)?)
    }

    fn in_library(&self, library: *mut c_void) -> Option<usize> {
        in_library(library, self.name)
    }
}

/// Finds a function of a library that is open, or, for `RTLD_NEXT`, of those that come after this one.
fn in_library(library: *mut c_void, name: &CStr) -> Option<usize> {
    // SAFETY: `library` is open or RTLD_NEXT, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found as usize)
}

/// Keeps the errors of lookups from the program.
pub(crate) fn forget_errors() {
    // SAFETY: the function takes no arguments.
    unsafe { libc::dlerror() };
}

fn is_in_one(first: usize, second: usize) -> bool {
    beginning_of(first) == beginning_of(second)
}

/// Returns an address in this library. The addresses of its exported functions may be those of an interposer.
fn own_code() -> usize {
    own_code as *const () as usize
}

/// True once destructors of libraries may run.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Our own destructor. The loader runs it after the program's, and before those of the libraries that the program
/// brought, because nothing depends on this library (glibc's `_dl_fini`).
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = note_the_end;

extern "C" fn note_the_end() {
    ENDS.store(true, Ordering::Relaxed);
}

/// Returns true once destructors of libraries may run.
pub(crate) fn ends() -> bool {
    ENDS.load(Ordering::Relaxed)
}

/// Returns the destination of a place that is remembered.
fn known(place: usize) -> Option<Next> {
    let taken = KNOWN.iter().map(|known| (known, known.caller.load(Ordering::Acquire)));
    // No place is ever forgotten, so behind the first that is free there are no others.
    let mut taken = taken.take_while(|(_, caller)| *caller != FREE);
    taken.find(|(_, caller)| *caller == place).map(|(known, _)| Next {
        address: known.next.load(Ordering::Relaxed),
        reaches: known.reaches.load(Ordering::Relaxed),
        within: known.within.load(Ordering::Relaxed),
    })
}

/// Remembers a destination for ever: after [`open`] the calling library is never unloaded, nor are its dependencies.
fn remember(caller: usize, next: Next) {
    let take = |known: &&Known| {
        let exchanged =
            known.caller.compare_exchange(FREE, TAKEN, Ordering::Relaxed, Ordering::Relaxed);
        exchanged.is_ok()
    };
    if let Some(known) = KNOWN.iter().find(take) {
        known.next.store(next.address, Ordering::Relaxed);
        known.reaches.store(next.reaches, Ordering::Relaxed);
        known.within.store(next.within, Ordering::Relaxed);
        known.caller.store(caller, Ordering::Release);
    }
}

/// Returns the name of the library or program that has this address.
pub(crate) fn library_of(address: *const c_void) -> Option<&'static CStr> {
    let found = about(address).filter(|found| !found.dli_fname.is_null())?;
    // SAFETY: the text is the loader's, and lives as long as the library, which is calling us.
    Some(unsafe { CStr::from_ptr(found.dli_fname) })
}

/// Returns true if the library that has this address is a copy of this one.
pub(crate) fn is_copy(address: usize) -> bool {
    let name = library_of(address as *const c_void).map_or(&b""[..], CStr::to_bytes);
    name.rsplit(|byte| *byte == b'/').next() == Some(b"librejoin_preload.so")
}

/// Returns the base address of the library that has this address; 0 if none has it.
pub(crate) fn beginning_of(address: usize) -> usize {
    about(address as *const c_void).map_or(0, |found| found.dli_fbase as usize)
}

fn about(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: the structure has only pointers, which may be null.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `found` has room for the answer; the function takes any address.
    let is_found = unsafe { libc::dladdr(address, &raw mut found) } != 0;
    is_found.then_some(found)
}

/// Opens a library if it is loaded already. It will not be unloaded.
fn open(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero byte; RTLD_NOLOAD loads nothing, so that no initialiser runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), RTLD_NOLOAD | RTLD_LAZY) };
    (!library.is_null()).then_some(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_places_are_known_as_there_is_room_for() {
        let next = |place| Next { address: place + 1, reaches: place + 2, within: place + 3 };
        // No code is there.
        let places = |count| (0..count).map(|at| 0x1000 + 0x10 * at);
        for place in places(MOST_KNOWN + 2) {
            assert_eq!(known(place), None);
            remember(place, next(place));
        }
        let kept: Vec<_> = places(MOST_KNOWN + 2).filter_map(known).collect();
        assert_eq!(kept, places(MOST_KNOWN).map(next).collect::<Vec<_>>());
    }
}
