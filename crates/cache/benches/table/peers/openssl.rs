//! OpenSSL's own session cache: an LHASH in the SSL_CTX, behind its read-write lock.
//!
//! Lookups go through `SSL_has_matching_session_id`, which takes the read lock and searches the
//! hash as a handshake does. The process's memory is measured here too, because only the C
//! allocator sees what OpenSSL allocates.

use std::ffi::{c_int, c_long, c_uchar, c_uint};

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslMethod, SslSession, SslSessionRef};
use openssl_sys::{SSL, SSL_SESSION};

use super::Peer;
use crate::workload::{Arrival, ID_BYTES, Value};

const LIFETIME_S: c_long = 7_200;

// SAFETY: as declared in OpenSSL's <openssl/ssl.h>, since 1.1.1.
unsafe extern "C" {
    safe fn SSL_SESSION_new() -> *mut SSL_SESSION;
    fn SSL_SESSION_dup(session: *const SSL_SESSION) -> *mut SSL_SESSION;
    fn SSL_SESSION_set1_id(session: *mut SSL_SESSION, id: *const c_uchar, len: c_uint) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut SSL_SESSION, version: c_int) -> c_int;
    fn SSL_SESSION_set_time(session: *mut SSL_SESSION, time: c_long) -> c_long;
    fn SSL_SESSION_set_timeout(session: *mut SSL_SESSION, timeout: c_long) -> c_long;
    fn SSL_has_matching_session_id(ssl: *const SSL, id: *const c_uchar, len: c_uint) -> c_int;
}

struct Internal {
    context: SslContext,
    /// Makes the lookups.
    ssl: Ssl,
    /// The session that new sessions are copied from.
    session: SslSession,
}

pub(crate) fn internal(sessions: u64) -> Box<dyn Peer> {
    let mut context =
        SslContextBuilder::new(SslMethod::tls_server()).expect("OpenSSL makes a context");
    context.set_session_cache_size(sessions as i32);
    let context = context.build();
    let ssl = Ssl::new(&context).expect("OpenSSL makes a connection");
    let session = SSL_SESSION_new();
    assert!(!session.is_null(), "OpenSSL makes a session");
    // SAFETY: a valid session that nobody else refers to.
    let session = unsafe { SslSession::from_ptr(session) };
    // SAFETY: the session is alive and not shared. The version is the one that a connection
    // before its handshake looks for.
    unsafe { SSL_SESSION_set_protocol_version(session.as_ptr(), openssl_sys::TLS1_3_VERSION) };
    // SAFETY: the session is alive and not shared.
    unsafe { SSL_SESSION_set_timeout(session.as_ptr(), LIFETIME_S) };
    Box::new(Internal { context, ssl, session })
}

fn copy_as(session: &SslSessionRef, arrival: &Arrival) -> SslSession {
    // SAFETY: the session is alive; it is only read.
    let copy = unsafe { SSL_SESSION_dup(session.as_ptr()) };
    assert!(!copy.is_null(), "OpenSSL copies a session");
    // SAFETY: the copy is valid, and the one reference to it is handed over.
    let copy = unsafe { SslSession::from_ptr(copy) };
    // SAFETY: the copy is alive and not shared; the id is ID_BYTES long, which is the most that
    // a session holds.
    unsafe { SSL_SESSION_set1_id(copy.as_ptr(), arrival.id.as_ptr(), ID_BYTES as c_uint) };
    // SAFETY: the copy is alive and not shared.
    unsafe { SSL_SESSION_set_time(copy.as_ptr(), (arrival.at_ms / 1_000) as c_long) };
    copy
}

impl Peer for Internal {
    fn arrive(&mut self, arrival: &Arrival, _value: &mut Value) -> bool {
        let (ssl, id) = (self.ssl.as_ptr(), arrival.id.as_ptr());
        // SAFETY: the connection is alive; the id is ID_BYTES long and only read.
        unsafe { SSL_has_matching_session_id(ssl, id, ID_BYTES as c_uint) == 1 }
    }

    fn insert(&mut self, arrival: &Arrival, _value: &Value) {
        let session = copy_as(&self.session, arrival);
        // SAFETY: the session was made for this context, and is in no other.
        unsafe { self.context.add_session(&session) };
    }
}

/// Returns the bytes that this process has allocated, the allocator's own included.
pub(crate) fn allocated_bytes() -> u64 {
    // SAFETY: reads the allocator's counts under its own locks.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}
