//! Values of ours in OpenSSL's extra data, for which no other value is mistaken.
//!
//! Programs write under indices that they never asked for: FreeRADIUS 3.2 does so under index 1 of an `SSL`. So the
//! lowest indices are left to them, and a pointer is followed only if the seal beside it, under an index of its own,
//! shows that this module stored the pointer for this very object.

use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::OnceLock;

use libc::{c_int, c_long, c_void};
use openssl_sys::{CRYPTO_EX_DATA, SSL, SSL_CTX};

use crate::ffi;
use crate::guard::guard;

/// The lowest index that is taken.
const LOWEST: c_int = 13;

/// A class of OpenSSL's objects that have extra data.
///
/// # Safety
/// The class and both functions are those of the type.
pub unsafe trait Parent: Sized {
    /// The class's number in `crypto.h`.
    const CLASS: c_int;

    /// Returns the value under an index, or null.
    ///
    /// # Safety
    /// `parent` is valid.
    unsafe fn get(parent: *const Self, index: c_int) -> *mut c_void;

    /// Sets the value under an index. Returns false if OpenSSL is out of memory.
    ///
    /// # Safety
    /// `parent` is valid, and no other thread uses its extra data.
    unsafe fn set(parent: *mut Self, index: c_int, value: *mut c_void) -> bool;
}

// SAFETY: `CRYPTO_EX_INDEX_SSL` and the functions for it.
unsafe impl Parent for SSL {
    const CLASS: c_int = ffi::CRYPTO_EX_INDEX_SSL;

    unsafe fn get(parent: *const Self, index: c_int) -> *mut c_void {
        // SAFETY: the caller vouches for `parent`.
        unsafe { openssl_sys::SSL_get_ex_data(parent, index) }
    }

    unsafe fn set(parent: *mut Self, index: c_int, value: *mut c_void) -> bool {
        // SAFETY: the caller vouches for `parent`.
        unsafe { openssl_sys::SSL_set_ex_data(parent, index, value) == 1 }
    }
}

// SAFETY: `CRYPTO_EX_INDEX_SSL_CTX` and the functions for it.
unsafe impl Parent for SSL_CTX {
    const CLASS: c_int = ffi::CRYPTO_EX_INDEX_SSL_CTX;

    unsafe fn get(parent: *const Self, index: c_int) -> *mut c_void {
        // SAFETY: the caller vouches for `parent`.
        unsafe { openssl_sys::SSL_CTX_get_ex_data(parent, index) }
    }

    unsafe fn set(parent: *mut Self, index: c_int, value: *mut c_void) -> bool {
        // SAFETY: the caller vouches for `parent`.
        unsafe { openssl_sys::SSL_CTX_set_ex_data(parent, index, value) == 1 }
    }
}

/// The place of a boxed `T` in the extra data of each `P`. OpenSSL drops the box with the object, and copies it to none.
#[derive(Debug)]
pub struct Extra<P, T> {
    seal: OnceLock<Seal>,
    /// The index of the box, or -1 where OpenSSL was out of memory.
    index: OnceLock<c_int>,
    types: PhantomData<fn(*mut P) -> T>,
}

#[derive(Debug)]
struct Seal {
    index: c_int,
    /// A random odd number, so that no program writes a seal by accident.
    key: usize,
}

impl Seal {
    fn new(class: c_int) -> Self {
        let key = RandomState::new().hash_one(class) as usize | 1;
        let mut indices = (0..=LOWEST).map(|_| ffi::new_index(class, None, None, None, null_mut()));
        Self { index: indices.find(|index| !(0..LOWEST).contains(index)).unwrap_or(-1), key }
    }

    /// Returns the seal of a box that an object holds. It is never null.
    fn of(&self, parent: *const c_void, own: *const c_void) -> *mut c_void {
        let mixed =
            (own.addr() ^ parent.addr().rotate_left(usize::BITS / 2)).wrapping_mul(self.key);
        without_provenance_mut(mixed | 1)
    }
}

impl<P: Parent, T> Extra<P, T> {
    /// Returns a place that takes its indices when it is first used, or by [`Self::register`].
    #[expect(clippy::new_without_default, reason = "it is made for statics alone")]
    pub const fn new() -> Self {
        Self { seal: OnceLock::new(), index: OnceLock::new(), types: PhantomData }
    }

    /// Takes the indices, unless that was done: OpenSSL must know them before it makes an object. Returns false if it is
    /// out of memory.
    pub fn register(&'static self) -> bool {
        self.index() >= 0
    }

    fn seal(&'static self) -> &'static Seal {
        self.seal.get_or_init(|| Seal::new(P::CLASS))
    }

    fn index(&'static self) -> c_int {
        *self.index.get_or_init(|| {
            let seal = std::ptr::from_ref(self.seal()).cast_mut().cast();
            ffi::new_index(P::CLASS, None, Some(leave_out), Some(free::<T>), seal)
        })
    }

    /// Returns the pointer under the index, and whether it is ours.
    ///
    /// # Safety
    /// `parent` is valid.
    unsafe fn find(&'static self, parent: *const P) -> (*mut T, bool) {
        // SAFETY: the caller vouches for `parent`.
        let found = unsafe { P::get(parent, self.index()) };
        let seal = self.seal();
        // SAFETY: the caller vouches for `parent`.
        let is_ours = !found.is_null()
            && unsafe { P::get(parent, seal.index) } == seal.of(parent.cast(), found);
        (found.cast(), is_ours)
    }

    /// Returns true if there is a value, whoever stored it.
    ///
    /// # Safety
    /// `parent` is valid.
    pub unsafe fn is_taken(&'static self, parent: *const P) -> bool {
        // SAFETY: the caller vouches for `parent`.
        !unsafe { self.find(parent) }.0.is_null()
    }

    /// Returns the value that an object holds.
    ///
    /// # Safety
    /// `parent` is valid for `'a`, during which nothing is put or taken there.
    pub unsafe fn get<'a>(&'static self, parent: *const P) -> Option<&'a T> {
        // SAFETY: the caller vouches for `parent`.
        let (found, is_ours) = unsafe { self.find(parent) };
        // SAFETY: `put` stored the box for this object, which owns it.
        is_ours.then(|| unsafe { &*found })
    }

    /// Puts a value in the place of the one before. Returns false if the program has a value of its own there, or if
    /// OpenSSL is out of memory.
    ///
    /// # Safety
    /// `parent` is valid, no other thread uses its extra data, and nobody has the value before.
    pub unsafe fn put(&'static self, parent: *mut P, value: T) -> bool {
        // SAFETY: the caller vouches for `parent`.
        let (before, is_ours) = unsafe { self.find(parent) };
        if !before.is_null() && !is_ours {
            return false;
        }
        let seal = self.seal();
        let own = Box::into_raw(Box::new(value)).cast();
        // SAFETY: the caller vouches for `parent`, and both indices are ours. OpenSSL grows its table at most for the
        // first call, before which there was no value.
        let is_put = unsafe { P::set(parent, seal.index, seal.of(parent.cast(), own)) }
            && unsafe { P::set(parent, self.index(), own) };
        let unused = if is_put { before } else { own.cast() };
        if !unused.is_null() {
            // SAFETY: a box of this function, which the object does not hold.
            drop(unsafe { Box::from_raw(unused) });
        }
        is_put
    }

    /// Takes the value from an object.
    ///
    /// # Safety
    /// `parent` is valid, no other thread uses its extra data, and nobody has the value.
    pub unsafe fn take(&'static self, parent: *mut P) -> Option<Box<T>> {
        // SAFETY: the caller vouches for `parent`.
        let (found, is_ours) = unsafe { self.find(parent) };
        // SAFETY: the caller vouches for `parent`, and the index is ours.
        let is_taken = is_ours && unsafe { P::set(parent, self.index(), null_mut()) };
        // SAFETY: a box of `put`, which the object does not hold any more.
        is_taken.then(|| unsafe { Box::from_raw(found) })
    }
}

/// Drops the value of an object that is being freed, if it is ours.
unsafe extern "C" fn free<T>(
    parent: *mut c_void,
    found: *mut c_void,
    data: *mut CRYPTO_EX_DATA,
    _index: c_int,
    _long: c_long,
    seal: *mut c_void,
) {
    guard((), || {
        // SAFETY: the pointer that the index was registered with, to a static.
        let Some(seal) = (unsafe { seal.cast::<Seal>().as_ref() }) else { return };
        // SAFETY: OpenSSL passes the object's extra data, which it frees after all of these calls.
        let found_seal = unsafe { ffi::CRYPTO_get_ex_data(data, seal.index) };
        if !found.is_null() && found_seal == seal.of(parent, found) {
            // SAFETY: a box of `put`; OpenSSL frees an object once.
            drop(unsafe { Box::from_raw(found.cast::<T>()) });
        }
    });
}

/// Leaves the value out where OpenSSL copies an object, because two must not own it.
unsafe extern "C" fn leave_out(
    _to: *mut CRYPTO_EX_DATA,
    _from: *const CRYPTO_EX_DATA,
    value: *mut *mut c_void,
    _index: c_int,
    _long: c_long,
    _pointer: *mut c_void,
) -> c_int {
    // SAFETY: OpenSSL passes the variable that holds the value of the copy.
    unsafe { value.write(null_mut()) };
    1
}
