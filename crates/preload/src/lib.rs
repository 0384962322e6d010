//! `librejoin_preload.so`: Rejoin inside unmodified programs.
//!
//! `LD_PRELOAD` puts the functions of this library before those of others. In a server, the first `SSL_new` for a
//! context that may accept connections loads `librejoin.so`, which attaches to all contexts of the process, with the
//! settings in the `REJOIN_*` variables. In a client of libssl or GnuTLS, connections go through the manager if
//! `REJOIN_MANAGER` is set ([`client`]). The caller always gets the result that it would have had otherwise. Nothing
//! runs when this library is loaded, or in a program that makes no connection, but for two things: the kernel is asked
//! once which root the process has, and a flag is set as it ends.
//!
//! A failure is one line on standard error, and the program goes on without Rejoin.
//!
//! Not here: any TLS code. This library links neither libssl nor GnuTLS nor `librejoin.so`, because a program
//! may have others, or none. It exports the functions that it interposes and nothing else.

mod client;
mod libc_calls;
mod next;
mod objects;
mod registrations;
mod rejoin;
mod resets;
mod trampoline;
mod tunnels;
mod waits;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::c_void;

use client::ssl_new;
use next::{Function, Next};

/// Returns the address of the function that a trampoline jumps to. `first` and `second` are the call's arguments, if it has so
/// many.
unsafe extern "C" fn destination(
    number: usize,
    caller: *const c_void,
    first: *mut c_void,
    second: *mut c_void,
) -> *const c_void {
    let found = catch_unwind(AssertUnwindSafe(|| match number {
        // SAFETY: the first argument of `SSL_new` is a context.
        0 => unsafe { for_connection(caller, first) },
        number => client::destination(number, caller, [first, second]),
    }));
    match found.ok().flatten() {
        Some(address) => address as *const c_void,
        // What a destructor would free is the system's in a moment.
        None if next::ends() => nothing as *const c_void,
        None => {
            complain("cannot find what this program calls in its TLS library");
            nothing as *const c_void
        }
    }
}

/// Stands in for a function that cannot be found. It returns what libssl does when it is out of memory.
extern "C" fn nothing() -> usize {
    0
}

/// Attaches Rejoin before the program makes a connection, and returns the address of its `SSL_new`, or of the adapter's.
///
/// # Safety
/// `context` is the argument of `SSL_new`.
unsafe fn for_connection(caller: *const c_void, context: *mut c_void) -> Option<usize> {
    let Next { address, reaches, .. } = ssl_new().next(caller)?;
    // Another copy of this library attaches by itself.
    if next::is_copy(address) {
        return Some(address);
    }
    if !is_known(ssl_new(), reaches) {
        complain(match reaches {
            0 => "cannot find the libssl behind another library's SSL_new",
            _ => "a libssl other than libssl.so.3 makes this program's connections",
        });
        return Some(address);
    }
    // SAFETY: the caller vouches for `context`.
    let attached = catch_unwind(AssertUnwindSafe(|| unsafe { rejoin::attach(context) }));
    if attached.is_err() {
        complain("a fault of its own");
    }
    client::destination(0, caller, [context, std::ptr::null_mut()])
}

/// Returns true if the address is the function of the TLS library that the adapters use. That library may be loaded
/// later.
fn is_known(function: &Function, reaches: usize) -> bool {
    static KNOWN: [AtomicUsize; client::NAMES] = [const { AtomicUsize::new(0) }; client::NAMES];
    let known = &KNOWN[function.number];
    if known.load(Ordering::Relaxed) == 0 {
        known.store(function.in_own_library().unwrap_or(0), Ordering::Relaxed);
    }
    reaches != 0 && known.load(Ordering::Relaxed) == reaches
}

/// Reports the first problem, in one line.
fn complain(why: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        rejoin_abi::report(&format!("{why}; going on without Rejoin"));
    }
}
