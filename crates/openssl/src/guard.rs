//! The boundary that no panic crosses on its way into OpenSSL.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`, and returns `otherwise` if it panics, because OpenSSL's C code cannot unwind.
pub(crate) fn guard<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Defines a callback of OpenSSL's extra data (`CRYPTO_get_ex_new_index(3)`), for what is made or freed.
macro_rules! ex_data_callback {
    ($(#[$about:meta])* fn $name:ident($parent:ident, $value:ident, $data:ident) $body:block) => {
        $(#[$about])*
        unsafe extern "C" fn $name(
            $parent: *mut libc::c_void,
            $value: *mut libc::c_void,
            $data: *mut openssl_sys::CRYPTO_EX_DATA,
            _index: libc::c_int,
            _long: libc::c_long,
            _argument: *mut libc::c_void,
        ) {
            $crate::guard::guard((), || $body);
        }
    };
}

pub(crate) use ex_data_callback;
