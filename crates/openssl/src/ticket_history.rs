//! A client's past visits, in its own ticket.
//!
//! A ticket can carry application data, which OpenSSL encrypts and authenticates with the session.
//! Ours says when the client was last seen and what its [`History`] was then: 15 bytes.
//!
//! ```text
//! "rj", 2 bytes | version, 1 | last seen, milliseconds of Unix time, 8 | history, 4
//! ```

use libc::{c_int, c_uchar, c_void, size_t};
use openssl_sys::{SSL, SSL_CTX, SSL_SESSION};
use rejoin_cache::History;

use crate::callbacks::guard;
use crate::connection::{Connection, of_ssl_or_new};
use crate::ffi;
use crate::tickets::unix_time;

/// What a ticket says of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastVisit {
    seen_ms: u64,
    history: History,
}

impl LastVisit {
    const PREFIX: [u8; 3] = *b"rj\x01";
    const BYTES: usize = Self::PREFIX.len() + 8 + History::BYTES;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (prefix, rest) = bytes.split_at_mut(Self::PREFIX.len());
        prefix.copy_from_slice(&Self::PREFIX);
        rest[..8].copy_from_slice(&self.seen_ms.to_le_bytes());
        rest[8..].copy_from_slice(&self.history.to_bytes());
        bytes
    }

    /// `None` for application data that is not ours.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&Self::PREFIX)?;
        let (seen_ms, history) = rest.split_first_chunk()?;
        let history = History::from_bytes(history.try_into().ok()?);
        Some(Self { seen_ms: u64::from_le_bytes(*seen_ms), history })
    }
}

/// Makes the context's tickets carry their client's history.
///
/// # Safety
/// `context` is valid and not yet used by another thread.
pub(crate) unsafe fn install(context: *mut SSL_CTX) {
    // SAFETY: the caller vouches for `context`; the callbacks live as long as the program.
    unsafe {
        ffi::SSL_CTX_set_session_ticket_cb(
            context,
            Some(ticket_made),
            Some(ticket_opened),
            std::ptr::null_mut(),
        )
    };
}

/// A ticket is about to be made. Anything but 1 would fail the handshake.
unsafe extern "C" fn ticket_made(ssl: *mut SSL, _argument: *mut c_void) -> c_int {
    guard((), || {
        // SAFETY: OpenSSL passes a valid SSL.
        let connection = unsafe { of_ssl_or_new(ssl) };
        // SAFETY: as above.
        let session = unsafe { openssl_sys::SSL_get_session(ssl) };
        // SAFETY: the connection's session lives during the call.
        let data = unsafe { application_data(session) };
        let foreign = !data.is_empty() && LastVisit::from_bytes(data).is_none();
        if let Some(connection) = connection.filter(|_| !foreign && !session.is_null()) {
            let history = connection.state().visit.history();
            let seen_ms = unix_time().as_millis() as u64;
            let bytes = LastVisit { seen_ms, history }.to_bytes();
            let start = bytes.as_ptr().cast();
            // SAFETY: it copies the bytes. Without memory the ticket carries nothing.
            unsafe { ffi::SSL_SESSION_set1_ticket_appdata(session, start, bytes.len()) };
        }
    });
    1
}

/// A client's ticket was opened, or could not be. Whatever it carries changes nothing but what is
/// known of the client.
unsafe extern "C" fn ticket_opened(
    ssl: *mut SSL,
    session: *mut SSL_SESSION,
    _name: *const c_uchar,
    _name_length: size_t,
    status: c_int,
    _argument: *mut c_void,
) -> c_int {
    match status {
        ffi::SSL_TICKET_SUCCESS | ffi::SSL_TICKET_SUCCESS_RENEW => {
            guard((), || {
                // SAFETY: OpenSSL passes a valid SSL.
                let connection = unsafe { of_ssl_or_new(ssl) };
                // SAFETY: with these two, OpenSSL passes a valid session, and nobody else has it.
                let data = unsafe { application_data(session) };
                if let (Some(connection), Some(last)) = (connection, LastVisit::from_bytes(data)) {
                    recall(connection, last);
                }
            });
            ffi::SSL_TICKET_RETURN_USE_RENEW
        }
        ffi::SSL_TICKET_EMPTY | ffi::SSL_TICKET_NO_DECRYPT => ffi::SSL_TICKET_RETURN_IGNORE_RENEW,
        _ => ffi::SSL_TICKET_RETURN_IGNORE,
    }
}

fn recall(connection: &Connection, last: LastVisit) {
    let mut state = connection.state();
    if !std::mem::replace(&mut state.recalled, true) {
        // Another server's clock may be ahead: then this visit's gap is not known.
        let away_ms = (unix_time().as_millis() as u64).checked_sub(last.seen_ms);
        state.visit.recall(last.history, away_ms);
    }
}

/// A session's application data, or nothing.
///
/// # Safety
/// `session` is null or valid for `'a`, during which its data is not set.
unsafe fn application_data<'a>(session: *mut SSL_SESSION) -> &'a [u8] {
    let (mut data, mut length) = (std::ptr::null_mut(), 0);
    let found = !session.is_null() && {
        // SAFETY: the caller vouches for `session`.
        let read = unsafe {
            ffi::SSL_SESSION_get0_ticket_appdata(session, &raw mut data, &raw mut length)
        };
        read == 1
    };
    if !found || data.is_null() {
        return &[];
    }
    // SAFETY: OpenSSL has given `length` bytes of the session.
    unsafe { std::slice::from_raw_parts(data.cast(), length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_visit_is_read_as_it_was_written() {
        let history = History::from_bytes([1, 2, 3, 4]);
        let last = LastVisit { seen_ms: 1_800_000_000_123, history };
        let bytes = last.to_bytes();
        assert_eq!(LastVisit::from_bytes(&bytes), Some(last));
        assert_eq!(LastVisit::from_bytes(&bytes[..14]), None);
        assert_eq!(LastVisit::from_bytes(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(LastVisit::from_bytes(&[0; LastVisit::BYTES]), None);
        assert_eq!(LastVisit::from_bytes(&[]), None);
    }
}
