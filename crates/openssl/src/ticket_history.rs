//! What a session carries of its client's past, in its own ticket or in the cache.
//!
//! A session can carry application data, which OpenSSL encrypts and authenticates with a ticket.
//! Ours says when the client last made a full handshake, for over TLS 1.3 every resumption makes a new
//! session, whose lifetime begins anew. In a stateless ticket it also says when the client was last
//! seen and what its [`History`] was then: 7 or 19 bytes.
//!
//! Over TLS 1.2 a session carries nothing. Its lifetime does not begin anew; and to say when it was last
//! used it would have to be renewed every time, of which OpenSSL's client makes a trap: it marks the old
//! session as not resumable, and calls the program's callback for new sessions on a full handshake only.
//!
//! ```text
//! "rj", 2 bytes | version, 1 | full handshake, seconds of Unix time, 4
//! last seen, milliseconds of Unix time, 8 | history, 4
//! ```

use libc::{c_int, c_uchar, c_void, size_t};
use openssl_sys::{SSL, SSL_CTX, SSL_SESSION};
use rejoin_cache::History;
use rejoin_tickets::TicketEvent;

use crate::callbacks::{adopt_context, fits, guard};
use crate::connection::{Connection, of_ssl_or_new};
use crate::ffi;
use crate::tickets::{now_s, unix_time};

/// What a session says of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Past {
    authenticated_s: u32,
    last_visit: Option<LastVisit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastVisit {
    seen_ms: u64,
    history: History,
}

impl Past {
    const PREFIX: [u8; 3] = *b"rj\x02";

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = [&Self::PREFIX[..], &self.authenticated_s.to_le_bytes()].concat();
        if let Some(LastVisit { seen_ms, history }) = self.last_visit {
            bytes.extend_from_slice(&seen_ms.to_le_bytes());
            bytes.extend_from_slice(&history.to_bytes());
        }
        bytes
    }

    /// `None` for application data that is not ours.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&Self::PREFIX)?;
        let (authenticated_s, rest) = rest.split_first_chunk()?;
        let authenticated_s = u32::from_le_bytes(*authenticated_s);
        if rest.is_empty() {
            return Some(Self { authenticated_s, last_visit: None });
        }
        let (seen_ms, history) = rest.split_first_chunk()?;
        let history = History::from_bytes(history.try_into().ok()?);
        let last_visit = Some(LastVisit { seen_ms: u64::from_le_bytes(*seen_ms), history });
        Some(Self { authenticated_s, last_visit })
    }
}

/// When the client of a session that is resumed made its full handshake, in Unix time: of a session
/// that says nothing, when it was made.
///
/// # Safety
/// `session` is valid.
pub(crate) unsafe fn authenticated_s(session: *mut SSL_SESSION) -> u64 {
    // SAFETY: the caller vouches for `session`.
    let past = Past::from_bytes(unsafe { application_data(session) });
    past.map_or_else(
        || {
            // SAFETY: as above.
            let made_s = unsafe { openssl_sys::SSL_SESSION_get_time(session) };
            u64::try_from(made_s).unwrap_or(0)
        },
        |past| u64::from(past.authenticated_s),
    )
}

/// Writes into a session of TLS 1.3 that it comes from an older one. One that comes from a full
/// handshake says so by its own time.
///
/// # Safety
/// `session` is valid, and nobody else uses it.
pub(crate) unsafe fn inherit(session: *mut SSL_SESSION, authenticated_s: u64) {
    let past = Past { authenticated_s: authenticated_s as u32, last_visit: None };
    // SAFETY: the caller vouches for `session`.
    unsafe { carry(session, past) };
}

/// Application data that is not ours stays.
///
/// # Safety
/// `session` is valid, and nobody else uses it.
unsafe fn carry(session: *mut SSL_SESSION, past: Past) {
    // SAFETY: the caller vouches for `session`.
    let data = unsafe { application_data(session) };
    if !data.is_empty() && Past::from_bytes(data).is_none() {
        return;
    }
    let bytes = past.to_bytes();
    // SAFETY: it copies the bytes. Without memory the session carries nothing.
    unsafe { ffi::SSL_SESSION_set1_ticket_appdata(session, bytes.as_ptr().cast(), bytes.len()) };
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
        let is_stateless = unsafe { ffi::SSL_get_options(ssl) } & ffi::SSL_OP_NO_TICKET == 0;
        // SAFETY: as above.
        let is_stateless = is_stateless && unsafe { is_single_use(ssl) };
        // SAFETY: as above.
        let session = unsafe { openssl_sys::SSL_get_session(ssl) };
        if let Some(connection) = connection.filter(|_| is_stateless && !session.is_null()) {
            // SAFETY: OpenSSL passes a valid SSL.
            let past = past_of(connection, unsafe { connection.resumed_since_s(ssl) });
            // SAFETY: the connection's session lives during the call, and is being made.
            unsafe { carry(session, past) };
        }
    });
    1
}

fn past_of(connection: &Connection, resumed_since_s: Option<u64>) -> Past {
    let authenticated_s = resumed_since_s.unwrap_or_else(now_s) as u32;
    let (seen_ms, history) = (unix_time().as_millis() as u64, connection.state().visit.history());
    Past { authenticated_s, last_visit: Some(LastVisit { seen_ms, history }) }
}

/// A client's ticket was opened, or could not be. Whatever it carries, the handshake goes on.
unsafe extern "C" fn ticket_opened(
    ssl: *mut SSL,
    session: *mut SSL_SESSION,
    _name: *const c_uchar,
    _name_length: size_t,
    status: c_int,
    _argument: *mut c_void,
) -> c_int {
    let usual = match status {
        ffi::SSL_TICKET_SUCCESS => ffi::SSL_TICKET_RETURN_USE,
        ffi::SSL_TICKET_SUCCESS_RENEW => ffi::SSL_TICKET_RETURN_USE_RENEW,
        ffi::SSL_TICKET_EMPTY | ffi::SSL_TICKET_NO_DECRYPT => {
            return ffi::SSL_TICKET_RETURN_IGNORE_RENEW;
        }
        _ => return ffi::SSL_TICKET_RETURN_IGNORE,
    };
    // SAFETY: with these two, OpenSSL passes a valid session, and nobody else has it.
    if !guard(true, || unsafe { fits(ssl, session) }) {
        return ffi::SSL_TICKET_RETURN_IGNORE_RENEW;
    }
    guard(usual, || {
        // SAFETY: OpenSSL passes a valid SSL.
        let connection = unsafe { of_ssl_or_new(ssl) };
        if let Some(connection) = &connection {
            // SAFETY: both are valid.
            unsafe { adopt_context(ssl, connection, session) };
        }
        // SAFETY: as above.
        let connection = connection.filter(|_| unsafe { is_single_use(ssl) });
        // SAFETY: as above.
        connection.map_or(usual, |connection| unsafe { opened(connection, session) })
    })
}

/// Whether it is TLS 1.3, whose clients use a ticket once.
///
/// # Safety
/// `ssl` is valid.
pub(crate) unsafe fn is_single_use(ssl: *const SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    unsafe { openssl_sys::SSL_version(ssl) == openssl_sys::TLS1_3_VERSION }
}

/// # Safety
/// `session` is valid.
unsafe fn opened(connection: &Connection, session: *mut SSL_SESSION) -> c_int {
    // SAFETY: the caller vouches for `session`.
    let data = unsafe { application_data(session) };
    if let Some(last_visit) = Past::from_bytes(data).and_then(|past| past.last_visit) {
        recall(connection, last_visit);
    }
    // SAFETY: as above.
    if connection.resumes(unsafe { authenticated_s(session) }) {
        return ffi::SSL_TICKET_RETURN_USE_RENEW;
    }
    connection.attachment.tickets.iter().for_each(|tickets| tickets.record(TicketEvent::Overdue));
    ffi::SSL_TICKET_RETURN_IGNORE_RENEW
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
    fn a_past_is_read_as_it_was_written() {
        let history = History::from_bytes([1, 2, 3, 4]);
        let last_visit = Some(LastVisit { seen_ms: 1_800_000_000_123, history });
        for (past, length) in [(last_visit, 19), (None, 7)].map(|(last_visit, length)| {
            (Past { authenticated_s: 1_800_000_000, last_visit }, length)
        }) {
            let bytes = past.to_bytes();
            assert_eq!((Past::from_bytes(&bytes), bytes.len()), (Some(past), length));
            assert_eq!(Past::from_bytes(&bytes[..length - 1]), None);
            assert_eq!(Past::from_bytes(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(Past::from_bytes(&[0; 19]), None);
        assert_eq!(Past::from_bytes(&[]), None);
    }
}
