//! The name that a client asks for (RFC 6066, section 3). Sessions and tickets belong to a name, beside the context,
//! and must not resume under another.

use std::ffi::CStr;

use libc::{c_int, c_uint};
use openssl_sys::SSL;

use crate::ffi;

/// Returns the name in the ClientHello, before the servername callback. Empty if there is none, or it cannot be read.
///
/// # Safety
/// `ssl` is valid for `'a` and reads a ClientHello.
pub(crate) unsafe fn in_hello<'a>(ssl: *mut SSL) -> &'a [u8] {
    /// `TLSEXT_TYPE_server_name` of `tls1.h`.
    const SERVER_NAME: c_uint = 0;
    let (mut start, mut length) = (std::ptr::null(), 0);
    // SAFETY: the caller vouches for `ssl`.
    let found = unsafe {
        ffi::SSL_client_hello_get0_ext(ssl, SERVER_NAME, &raw mut start, &raw mut length)
    };
    if found != 1 || start.is_null() {
        return &[];
    }
    // SAFETY: the extension has that length, and lives as long as the ClientHello.
    let extension = unsafe { std::slice::from_raw_parts(start, length) };
    host_name(extension).unwrap_or_default()
}

/// Returns the first name of the list, if it is a host's.
fn host_name(extension: &[u8]) -> Option<&[u8]> {
    let (&[_, _, 0, high, low], rest) = extension.split_first_chunk()? else { return None };
    rest.get(..usize::from(u16::from_be_bytes([high, low])))
}

/// Returns the name once the ClientHello is read. Empty if there is none.
///
/// # Safety
/// `ssl` is valid for `'a`.
pub(crate) unsafe fn of_connection<'a>(ssl: *mut SSL) -> &'a [u8] {
    /// The constant of `tls1.h`.
    const TLSEXT_NAMETYPE_HOST_NAME: c_int = 0;
    // SAFETY: the caller vouches for `ssl`.
    let name = unsafe { openssl_sys::SSL_get_servername(ssl, TLSEXT_NAMETYPE_HOST_NAME) };
    if name.is_null() {
        return &[];
    }
    // SAFETY: a text that lives as long as the connection.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}
