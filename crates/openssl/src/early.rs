//! Early data (0-RTT), accepted at most once (RFC 8446, section 8.1).
//!
//! A client's first flight can be copied, and sent again to any process or machine that has the session. Here the session
//! is taken as it is looked up, so the copy finds none, and OpenSSL rejects its early data. The handshake goes on. What
//! OpenSSL checks by itself stays: that the ticket is as old as the client says, to ten seconds; the protocol, the cipher,
//! and that no second ClientHello was needed.

use openssl_sys::SSL;
use rejoin_cache::EarlyData;

use crate::connection::Connection;
use crate::ffi;

/// The fate of a client's early data, until the handshake is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Early {
    /// Nothing is known against it.
    #[default]
    Possible,
    /// Its session was not found, although this server made it.
    Unknown,
    /// A copy may have been accepted before. The number is the program's limit, until it is set again.
    Waiting(Option<u32>),
}

/// Decides on a connection's early data after a session was found. Where it is not certain that the session was not taken
/// before, OpenSSL rejects the early data: for now the connection allows none.
///
/// # Safety
/// `ssl` is valid, in a callback of its ClientHello.
pub(crate) unsafe fn found(ssl: *mut SSL, connection: &Connection) {
    if !connection.attachment.accepts_early_once {
        return;
    }
    let mut state = connection.state();
    if state.visit.is_certain() && !matches!(state.early, Early::Waiting(_)) {
        state.early = Early::Possible;
        return;
    }
    drop(state);
    // SAFETY: the caller vouches for `ssl`.
    unsafe { refuse(ssl, connection) };
}

/// Notes that a session of this server was not found.
pub(crate) fn not_found(connection: &Connection) {
    let mut state = connection.state();
    if state.early == Early::Possible {
        state.early = Early::Unknown;
    }
}

/// Has OpenSSL reject the early data of a connection whose session is in its ticket, which resumes more than once. A
/// server that switches contexts by name may have such tickets opened, for the rest of the ClientHello.
///
/// # Safety
/// `ssl` is valid, in a callback of its ClientHello.
pub(crate) unsafe fn ticket_opened(ssl: *mut SSL, connection: &Connection) {
    if connection.attachment.accepts_early_once {
        // SAFETY: the caller vouches for `ssl`.
        unsafe { refuse(ssl, connection) };
    }
}

/// # Safety
/// `ssl` is valid, in a callback of its ClientHello.
unsafe fn refuse(ssl: *mut SSL, connection: &Connection) {
    // SAFETY: the caller vouches for `ssl`; the call reads a number.
    let most = unsafe { ffi::SSL_get_max_early_data(ssl) };
    // SAFETY: the caller vouches for `ssl`; the call sets a number.
    unsafe { ffi::SSL_set_max_early_data(ssl, 0) };
    let mut state = connection.state();
    // A second session of the same ClientHello finds the limit set already.
    if !matches!(state.early, Early::Waiting(Some(_))) {
        state.early = Early::Waiting(Some(most));
    }
}

/// Sets the program's limit again once the ClientHello has been processed: the next ticket says it to the client.
///
/// # Safety
/// `ssl` is valid, in a callback that is not one of its ClientHello.
pub(crate) unsafe fn go_on(ssl: *mut SSL, connection: &Connection) {
    if !connection.attachment.accepts_early_once {
        return;
    }
    let mut state = connection.state();
    if let Early::Waiting(most) = &mut state.early
        && let Some(most) = most.take()
    {
        // SAFETY: the caller vouches for `ssl`; the call sets a number.
        unsafe { ffi::SSL_set_max_early_data(ssl, most) };
    }
}

/// Counts the early data of a connection whose handshake is done.
///
/// # Safety
/// `ssl` is valid.
pub(crate) unsafe fn done(ssl: *mut SSL, connection: &Connection) {
    let cached = connection.attachment.cached.as_ref();
    let Some(cached) = cached.filter(|_| connection.attachment.accepts_early_once) else { return };
    let state = connection.state();
    // SAFETY: the caller vouches for `ssl`; the call reads a number.
    let early = match (unsafe { ffi::SSL_get_early_data_status(ssl) }, state.early) {
        (ffi::SSL_EARLY_DATA_ACCEPTED, _) => EarlyData::Accepted,
        (ffi::SSL_EARLY_DATA_REJECTED, Early::Possible) => EarlyData::Declined,
        (ffi::SSL_EARLY_DATA_REJECTED, Early::Unknown) => EarlyData::Unknown,
        (ffi::SSL_EARLY_DATA_REJECTED, Early::Waiting(_)) => EarlyData::Waiting,
        _ => return,
    };
    if !state.counted {
        cached.sessions.sessions().record_early(early);
    }
}
