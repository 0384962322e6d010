//! The functions that `librejoin_preload.so` calls in the other libraries.

use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicUsize;

use crate::Library;
use crate::digest::Digest;
use crate::table::TABLE;

/// A structure of functions in the order of a library's slots, which [`replacements!`](crate::replacements) makes.
///
/// # Safety
/// The structure begins with one pointer for each of [`Self::LIBRARY`]'s functions, in their order, each to a function
/// of the type that the table says.
pub unsafe trait Replacements: Sync + 'static {
    /// The library whose functions they replace.
    const LIBRARY: Library;
}

/// A registration of a descriptor that the program made by `epoll_ctl`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registered {
    /// The descriptor of the `epoll` instance.
    pub instance: c_int,
    /// The events that the program waits for.
    pub events: u32,
    /// The program's own value.
    pub data: u64,
}

/// Writes a descriptor's last registration. Returns 0 if there is none.
pub type RegisteredOf = unsafe extern "C" fn(c_int, *mut Registered) -> c_int;

macro_rules! hooks {
    ($($(#[$about:meta])* $name:ident: $type:ty,)*) => {
        /// The structure that a library hands to `librejoin_preload.so`.
        #[derive(Debug)]
        #[repr(C)]
        pub struct Hooks {
            /// [`Hooks::digest_of`] the library. It comes first in every version.
            pub digest: u64,
            $($(#[$about])* pub $name: $type,)*
        }

        const FIELDS: &str = concat!($(stringify!($name), ": ", stringify!($type), ","),*);
    };
}

hooks! {
    /// A structure that [`replacements!`](crate::replacements) made.
    functions: *const c_void,
    /// The number of ClientHellos that are awaited.
    pending: *const AtomicUsize,
    /// The number of sockets that were taken over.
    taken: *const AtomicUsize,
    /// The number of sockets about which the manager has not decided yet.
    waiting: *const AtomicUsize,
    /// Hears of bytes before the program sends them, while ClientHellos are awaited: the descriptor, the port that a
    /// proxy was asked for over this descriptor (or 0), a function that returns registrations, and the bytes. Returns 1
    /// if the socket was handed over, and 2 if the bytes are sent already, too.
    sending: unsafe extern "C" fn(c_int, u16, RegisteredOf, *const c_void, usize) -> c_int,
    /// Hears of a descriptor before the program reads from it, while sockets are waiting.
    reading: extern "C" fn(c_int),
    /// Gives the program back the sockets about which the manager has not decided in time, while sockets are waiting.
    /// Returns the time until the next one, in milliseconds, or -1 if there is none.
    overdue: extern "C" fn() -> c_int,
    /// Answers `getsockname` (0) and `getpeername` (1), with the program's `struct sockaddr` and its length. Returns 0
    /// if the socket is not one that was taken over.
    name: unsafe extern "C" fn(c_int, c_int, *mut c_void, *mut u32) -> c_int,
    /// Answers `getsockopt` at the level of sockets. Returns 0 if the socket is not one that was taken over.
    option: unsafe extern "C" fn(c_int, c_int, *mut c_void, *mut u32) -> c_int,
    /// Returns 1 if a socket was taken over, or else 0.
    is_taken: extern "C" fn(c_int) -> c_int,
}

// SAFETY: the structure has addresses of functions and of statics, and nothing changes it.
unsafe impl Sync for Hooks {}

impl Hooks {
    /// The digest by which two libraries know that they were built from one table: of the version, of this structure,
    /// and of all functions with their libraries, names, types and order.
    pub const fn digest_of(library: &Library) -> u64 {
        let all = Digest::new().text(env!("CARGO_PKG_VERSION").as_bytes()).text(FIELDS.as_bytes());
        all.table(&TABLE).text(library.file.to_bytes()).finish()
    }

    /// Returns the function in a slot.
    ///
    /// # Safety
    /// The digest was compared, and the library has the slot.
    pub unsafe fn function(&self, slot: usize) -> *const c_void {
        // SAFETY: the structure has a pointer for each slot, as `Replacements` promises.
        let function = unsafe { self.functions.cast::<*const c_void>().add(slot) };
        // SAFETY: the structure is a static that nothing changes.
        unsafe { function.read() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GNUTLS, LIBSSL};

    #[test]
    fn each_library_has_its_own_digest() {
        assert_ne!(Hooks::digest_of(&LIBSSL), Hooks::digest_of(&GNUTLS));
    }
}
