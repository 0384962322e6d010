//! What `librejoin_preload.so` calls.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;

use libc::{size_t, socklen_t};

use crate::{pending, sockets};

/// Another number for each change of [`Hooks`], or of what its functions are.
pub const LAYOUT: size_t = 1;

/// What a library has for the preload library of the same version, which has the same definition.
#[derive(Debug)]
#[repr(C)]
pub struct Hooks {
    /// [`LAYOUT`], by which the other library knows it.
    pub layout: size_t,
    /// What is called instead of the TLS library's functions, in an order on which both agree.
    pub functions: *const *const c_void,
    /// How many there are.
    pub count: size_t,
    /// How many ClientHellos are awaited.
    pub pending: *const AtomicUsize,
    /// How many sockets were taken.
    pub taken: *const AtomicUsize,
    /// Before bytes are sent, while ClientHellos are awaited; with the port that a proxy was asked for over
    /// this descriptor, or 0.
    pub sending: unsafe extern "C" fn(c_int, u16, *const c_void, size_t),
    /// Answers `getsockname` (0) and `getpeername` (1), or 0.
    pub name: unsafe extern "C" fn(c_int, c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int,
    /// Answers `getsockopt` at the level of sockets, or 0.
    pub option: unsafe extern "C" fn(c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    /// Whether a socket was taken.
    pub is_taken: extern "C" fn(c_int) -> c_int,
}

// SAFETY: addresses of functions and statics.
unsafe impl Sync for Hooks {}

/// Addresses of functions, which all threads may have.
#[derive(Debug)]
#[repr(transparent)]
pub struct Functions<const COUNT: usize>(pub [*const c_void; COUNT]);

// SAFETY: addresses of functions.
unsafe impl<const COUNT: usize> Sync for Functions<COUNT> {}

impl Hooks {
    /// Those of a library that has these functions.
    pub const fn of<const COUNT: usize>(functions: &'static Functions<COUNT>) -> Self {
        Self {
            layout: LAYOUT,
            functions: functions.0.as_ptr(),
            count: COUNT,
            pending: &raw const pending::COUNT,
            taken: &raw const sockets::TAKEN,
            sending,
            name,
            option,
            is_taken,
        }
    }
}

/// A fault of ours is nobody else's.
pub fn guarded<T>(what: impl FnOnce() -> T) -> Option<T> {
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
    // SAFETY: the program sends them.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    guarded(|| sockets::sending(descriptor, tunnel_port, bytes));
}

unsafe extern "C" fn name(
    descriptor: c_int,
    of_peer: c_int,
    address: *mut libc::sockaddr,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's own.
    guarded(|| unsafe { sockets::name(descriptor, of_peer != 0, address, bytes) })
        .map_or(0, c_int::from)
}

unsafe extern "C" fn option(
    descriptor: c_int,
    option: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's own.
    guarded(|| unsafe { sockets::option(descriptor, option, value, bytes) }).map_or(0, c_int::from)
}

extern "C" fn is_taken(descriptor: c_int) -> c_int {
    guarded(|| sockets::is_taken(descriptor)).map_or(0, c_int::from)
}
