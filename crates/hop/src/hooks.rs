//! The functions that `librejoin_preload.so` calls in an adapter, a library that makes a TLS library go through the
//! manager.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{size_t, socklen_t};
use rejoin_abi::{Hooks, Replacements, gate};

use crate::{offer, sockets};

/// Makes the hooks of an adapter.
pub const fn hooks<R: Replacements>(replacements: &'static R) -> Hooks {
    Hooks {
        digest: Hooks::digest_of(&R::LIBRARY),
        functions: (&raw const *replacements).cast(),
        pending: &raw const offer::PENDING,
        taken: &raw const sockets::TAKEN,
        sending,
        name,
        option,
        is_taken,
    }
}

/// Runs `what`. Returns `None` if it panics: a panic of Rejoin must not reach the program.
pub fn guarded<T>(what: impl FnOnce() -> T) -> Option<T> {
    let _inside = gate::pass();
    catch_unwind(AssertUnwindSafe(what)).ok()
}

unsafe extern "C" fn sending(
    descriptor: c_int,
    tunnel_port: u16,
    bytes: *const c_void,
    length: size_t,
) {
    if bytes.is_null() {
        return;
    }
    // SAFETY: the program passes `length` bytes to send, and the pointer is not null.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    guarded(|| sockets::sending(descriptor, tunnel_port, bytes));
}

unsafe extern "C" fn name(
    descriptor: c_int,
    of_peer: c_int,
    address: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the program vouches for the address and its length, as for `getsockname`.
    guarded(|| unsafe { sockets::name(descriptor, of_peer != 0, address.cast(), bytes) })
        .map_or(0, c_int::from)
}

unsafe extern "C" fn option(
    descriptor: c_int,
    option: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the program vouches for the value and its length, as for `getsockopt`.
    guarded(|| unsafe { sockets::option(descriptor, option, value, bytes) }).map_or(0, c_int::from)
}

extern "C" fn is_taken(descriptor: c_int) -> c_int {
    guarded(|| sockets::is_taken(descriptor)).map_or(0, c_int::from)
}
