//! `librejoin_preload.so`: Rejoin inside programs that ignore `OPENSSL_CONF`.
//!
//! `LD_PRELOAD` puts its `SSL_new` before libssl's. The first call loads `librejoin.so`, which attaches
//! to all contexts of the process as the `REJOIN_*` variables say; every call hands it the context, and
//! then makes the connection by the `SSL_new` that the caller would have had. A program that makes no
//! connection never gets that far, and nothing runs when this library is loaded.
//!
//! Whatever goes wrong is one line on standard error, and the program goes on without Rejoin.
//!
//! What is not here: anything of TLS. This library links neither libssl nor `librejoin.so`, for a program
//! may have another libssl, or none. It exports `SSL_new` and nothing else.

mod next;
mod rejoin;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_void;

/// The program makes a connection. Who calls is where this returns to.
///
/// # Safety
/// As libssl's own.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(export_name = "SSL_new")]
unsafe extern "C" fn connection_wanted(context: *mut c_void) -> *mut c_void {
    std::arch::naked_asm!("mov rsi, [rsp]", "jmp {made}", made = sym connection_made)
}

/// As above.
///
/// # Safety
/// As libssl's own.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(export_name = "SSL_new")]
unsafe extern "C" fn connection_wanted(context: *mut c_void) -> *mut c_void {
    std::arch::naked_asm!("mov x1, x30", "b {made}", made = sym connection_made)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("say where this processor keeps the address that a function returns to");

/// Makes it. Null, as when libssl is out of memory, if there is no libssl to make it.
///
/// # Safety
/// As libssl's own; `caller` is an address in the code that called.
unsafe extern "C" fn connection_made(context: *mut c_void, caller: *const c_void) -> *mut c_void {
    let own = connection_wanted as *const c_void;
    let next = catch_unwind(|| next::of(caller, own)).ok().flatten();
    let Some(next) = next else {
        complain("cannot find the SSL_new of this program");
        return std::ptr::null_mut();
    };
    // SAFETY: the caller vouches for `context`, and `next` is what it is made for.
    let attached = catch_unwind(AssertUnwindSafe(|| unsafe { rejoin::attach(context, next) }));
    if attached.is_err() {
        complain("a fault of its own");
    }
    // SAFETY: the call that the program meant to make.
    unsafe { next(context) }
}

/// One line, the first time.
fn complain(why: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        // Without standard error there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "rejoin: {why}; going on without Rejoin");
    }
}
