//! `librejoin_preload.so`: Rejoin inside programs that are not changed.
//!
//! `LD_PRELOAD` puts its functions before those of others. Servers: the first `SSL_new` for a context
//! that may accept loads `librejoin.so`, which attaches to all contexts of the process as the `REJOIN_*`
//! variables say. Clients of libssl and of GnuTLS, where `REJOIN_MANAGER` says so: [`client`]. In all cases the
//! caller gets what it would have had otherwise. A program that makes no connection never gets that far, and nothing runs
//! when this library is loaded.
//!
//! Whatever goes wrong is one line on standard error, and the program goes on without Rejoin.
//!
//! What is not here: anything of TLS. This library links neither libssl nor GnuTLS nor `librejoin.so`, for a
//! program may have others, or none. It exports what it interposes and nothing else.

mod client;
mod libc_calls;
mod next;
mod rejoin;
mod trampoline;
mod tunnels;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::c_void;

use client::ssl_new;
use next::Function;

/// Where a call goes that came here. `context` is its first argument, if it has one.
unsafe extern "C" fn destination(
    number: usize,
    caller: *const c_void,
    context: *mut c_void,
) -> *const c_void {
    let found = catch_unwind(AssertUnwindSafe(|| match number {
        // SAFETY: of `SSL_new`, it is a context.
        0 => unsafe { for_connection(caller, context) },
        number => client::destination(number, caller),
    }));
    match found.ok().flatten() {
        Some(address) => address as *const c_void,
        None => {
            complain("cannot find what this program calls in its TLS library");
            nothing as *const c_void
        }
    }
}

/// As when libssl is out of memory, if there is no such library.
extern "C" fn nothing() -> usize {
    0
}

/// The program makes a connection.
///
/// # Safety
/// `context` is what `SSL_new` is called for.
unsafe fn for_connection(caller: *const c_void, context: *mut c_void) -> Option<usize> {
    let next = ssl_new().next(caller)?.address;
    if !is_known(ssl_new(), next) {
        complain("a libssl other than libssl.so.3 makes this program's connections");
        return Some(next);
    }
    // SAFETY: the caller vouches for `context`.
    let attached = catch_unwind(AssertUnwindSafe(|| unsafe { rejoin::attach(context) }));
    if attached.is_err() {
        complain("a fault of its own");
    }
    Some(next)
}

/// Whether it is that of the TLS library that `librejoin.so` or its kind has, too, which may yet be loaded.
fn is_known(function: &Function, next: usize) -> bool {
    static KNOWN: [AtomicUsize; client::NAMES] = [const { AtomicUsize::new(0) }; client::NAMES];
    let known = &KNOWN[function.number];
    if known.load(Ordering::Relaxed) == 0 {
        known.store(function.in_own_library().unwrap_or(0), Ordering::Relaxed);
    }
    known.load(Ordering::Relaxed) == next
}

/// One line, the first time.
fn complain(why: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        rejoin_abi::report(&format!("{why}; going on without Rejoin"));
    }
}
