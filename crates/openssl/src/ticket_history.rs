//! The callbacks by which tickets carry their client's history ([`crate::past`]).

use libc::{c_int, c_uchar, c_void, size_t};
use openssl_sys::{SSL, SSL_CTX, SSL_SESSION};
use rejoin_tickets::TicketEvent;

use crate::clock::{now_s, unix_ms};
use crate::connection::Connection;
use crate::ffi;
use crate::guard::guard;
use crate::info::of_ssl_or_new;
use crate::past::{LastVisit, Past, authenticated_s, carry, ends_s, is_single_use};

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

/// Gives the ticket that is about to be made its client's past. Any result but 1 would fail the handshake.
unsafe extern "C" fn ticket_made(ssl: *mut SSL, _argument: *mut c_void) -> c_int {
    guard((), || {
        // SAFETY: OpenSSL passes a valid SSL.
        let connection = unsafe { of_ssl_or_new(ssl) };
        // SAFETY: `ssl` is valid; the call only reads a number.
        let is_stateless = unsafe { ffi::SSL_get_options(ssl) } & ffi::SSL_OP_NO_TICKET == 0;
        // SAFETY: OpenSSL passes a valid SSL.
        let carries = is_stateless && unsafe { is_single_use(ssl) };
        // SAFETY: `ssl` is valid; the reference is borrowed.
        let session = unsafe { openssl_sys::SSL_get_session(ssl) };
        let Some(connection) = connection.filter(|_| is_stateless && !session.is_null()) else {
            return;
        };
        // SAFETY: OpenSSL passes a valid SSL; the connection's session lives during the call, and is being made.
        unsafe { connection.shortens(ssl, session) };
        if carries {
            // SAFETY: OpenSSL passes a valid SSL.
            let ends_s = unsafe { connection.ends_s(ssl) };
            // SAFETY: OpenSSL passes a valid SSL.
            let past = past_of(connection, unsafe { connection.resumed_since_s(ssl) }, ends_s);
            // SAFETY: the connection's session lives during the call, and is being made.
            unsafe { carry(session, past) };
        }
    });
    1
}

fn past_of(connection: &Connection, resumed_since_s: Option<u64>, ends_s: Option<u32>) -> Past {
    let authenticated_s = resumed_since_s.unwrap_or_else(now_s) as u32;
    let (seen_ms, history) = (unix_ms(), connection.state().visit.history());
    Past { authenticated_s, ends_s, last_visit: Some(LastVisit { seen_ms, history }) }
}

/// Reads the past that a client's ticket carries, if the ticket was opened. The handshake goes on in any case.
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
    guard(ffi::SSL_TICKET_RETURN_IGNORE_RENEW, || {
        // SAFETY: OpenSSL passes a valid SSL.
        let Some(connection) = (unsafe { of_ssl_or_new(ssl) }) else { return usual };
        connection.state().opened = false;
        // SAFETY: with these two, OpenSSL passes a valid session, and nobody else has it.
        if !unsafe { connection.adopts(ssl, session) } {
            return ffi::SSL_TICKET_RETURN_IGNORE_RENEW;
        }
        // SAFETY: OpenSSL passes a valid SSL.
        let is_single_use = unsafe { is_single_use(ssl) };
        // SAFETY: OpenSSL passes a valid session with these two results.
        if !unsafe { may_resume(connection, session) } {
            return ffi::SSL_TICKET_RETURN_IGNORE_RENEW;
        }
        if !is_single_use {
            return usual;
        }
        // SAFETY: OpenSSL passes a valid session with these two results.
        unsafe { connection.gives(session) };
        ffi::SSL_TICKET_RETURN_USE_RENEW
    })
}

/// Recalls a client's past, and returns true if it may still resume. A session of TLS 1.2 carries no past: it is as old as its
/// client's full handshake, however often its ticket is renewed.
///
/// # Safety
/// `session` is valid.
unsafe fn may_resume(connection: &Connection, session: *mut SSL_SESSION) -> bool {
    // SAFETY: the caller vouches for `session`.
    if let Some(last_visit) = unsafe { Past::of(session) }.and_then(|past| past.last_visit) {
        recall(connection, last_visit);
    }
    // SAFETY: the caller vouches for `session`.
    let ends_s = unsafe { ends_s(session) };
    // SAFETY: the caller vouches for `session`.
    let may = connection.resumes(unsafe { authenticated_s(session) }, ends_s);
    if !may {
        let tickets = connection.attachment.tickets.iter();
        tickets.for_each(|tickets| tickets.record(TicketEvent::Overdue));
    }
    may
}

fn recall(connection: &Connection, last: LastVisit) {
    let mut state = connection.state();
    if !std::mem::replace(&mut state.recalled, true) {
        // Another server's clock may be ahead: then this visit's gap is not known.
        let away_ms = unix_ms().checked_sub(last.seen_ms);
        state.visit.recall(last.history, away_ms);
    }
}
