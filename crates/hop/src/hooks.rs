//! The functions that `librejoin_preload.so` calls in an adapter, a library that makes a TLS library go through the
//! manager.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{size_t, socklen_t};
use rejoin_abi::{Hooks, RegisteredOf, Replacements, gate, undisturbed};

use crate::sockets::Sending;
use crate::{offer, sockets, waiting};

/// Makes the hooks of an adapter.
pub const fn hooks<R: Replacements>(replacements: &'static R) -> Hooks {
    Hooks {
        digest: Hooks::digest_of(&R::LIBRARY),
        functions: (&raw const *replacements).cast(),
        pending: &raw const offer::PENDING,
        taken: &raw const sockets::TAKEN,
        waiting: &raw const waiting::COUNT,
        sending,
        reading,
        overdue,
        name,
        option,
        is_taken,
    }
}

/// Runs `what`, and restores `errno` afterwards. Returns `None` if it panics: a panic of Rejoin must not reach the
/// program.
pub fn guarded<T>(what: impl FnOnce() -> T) -> Option<T> {
    let _inside = gate::pass();
    undisturbed(|| catch_unwind(AssertUnwindSafe(what))).ok()
}

unsafe extern "C" fn sending(
    descriptor: c_int,
    tunnel_port: u16,
    registered_of: RegisteredOf,
    bytes: *const c_void,
    length: size_t,
) -> c_int {
    if bytes.is_null() {
        return 0;
    }
    // SAFETY: the program passes `length` bytes to send, and the pointer is not null.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    let sending = Sending { descriptor, tunnel_port, registered_of, bytes };
    guarded(|| sockets::sending(sending)).map_or(0, |outcome| outcome as c_int)
}

extern "C" fn reading(descriptor: c_int) {
    guarded(|| waiting::reading(descriptor));
}

extern "C" fn overdue() -> c_int {
    let left_ms = guarded(waiting::overdue).flatten();
    left_ms.map_or(-1, |left_ms| c_int::try_from(left_ms).unwrap_or(c_int::MAX))
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn errno_stays_the_programs() {
        let errno = || io::Error::last_os_error().raw_os_error();
        let fails = || std::fs::read("/nowhere").is_ok();
        let before = errno();
        assert_eq!(guarded(fails), Some(false));
        assert_eq!(errno(), before);
        assert!(!fails() && errno() != before);
    }
}
