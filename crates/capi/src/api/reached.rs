//! Access to the program's own connections.

use foreign_types::ForeignTypeRef;
use openssl::ssl::SslRef;
use openssl_sys::SSL;

use super::failure::Failure;
use super::status::Status;

/// Returns a connection whose context is attached to a store.
///
/// # Safety
/// `connection` is null, or valid for `'a`.
pub(super) unsafe fn attached<'a>(connection: *mut SSL) -> Result<&'a SslRef, Failure> {
    if connection.is_null() {
        return Err(Failure::null("connection"));
    }
    // SAFETY: the caller vouches for `connection`, which is not null.
    let connection = unsafe { SslRef::from_ptr(connection) };
    let is_attached = rejoin_openssl::history(connection).is_some();
    is_attached.then_some(connection).ok_or_else(|| {
        let why = "the store saw no handshake of this connection: attach its context before";
        Failure::new(Status::RejoinNotAttached, why)
    })
}
