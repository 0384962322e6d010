//! The C API: a server that links `librejoin.so` opens a store, attaches it to its contexts, and may
//! say when clients come back. A client asks the TLS manager for its connections.
//!
//! `include/rejoin.h` is made from this file and those under it. Every function answers with a
//! [`Status`], and none lets a panic out.
#![expect(
    clippy::missing_safety_doc,
    reason = "all that is said of a function is said to C programs, which have no other kind"
)]

mod connect;
mod counters;
mod failure;
mod reached;
mod settings;
mod sized;
mod status;

use std::os::fd::IntoRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use libc::{c_char, c_int, size_t};
use openssl_sys::{SSL, SSL_CTX};
use rejoin_cache::Hints;
use rejoin_openssl::{Everywhere, ServerSessions, TicketHistory, TicketKeys};
use rejoin_store::{SharedKeys, Store, Tiered};

pub use connect::{
    REJOIN_EARLY_DATA_ACCEPTED, REJOIN_EARLY_DATA_NOT_OFFERED, REJOIN_EARLY_DATA_REJECTED,
    REJOIN_EARLY_DATA_SENT, REJOIN_OVER_SOCKET, REJOIN_UNSHARED, REJOIN_UNVERIFIED, RejoinRequest,
    RejoinSession,
};
pub use counters::RejoinCounters;
pub use settings::{REJOIN_POLICY_LRU, REJOIN_POLICY_PREDICTIVE, RejoinSettings};
pub use status::Status;

use crate::process;
use failure::{Failure, answer};
use reached::attached;

/// No context issues stateless tickets, so that TLS 1.3 clients have sessions in the store, too.
pub const REJOIN_STATEFUL: u32 = 1;

/// A new session waits until `rejoin_hint` or `rejoin_no_hint` is called for its connection, or until
/// that ends, and is stored then.
pub const REJOIN_WAIT_FOR_HINTS: u32 = 2;

/// Stateless tickets are under the store's keys, which all its servers have and which change by
/// themselves, instead of the context's own.
pub const REJOIN_SHARE_TICKET_KEYS: u32 = 4;

/// A store: sessions in memory that processes share. All threads may use it at the same time.
#[derive(Debug)]
pub struct RejoinStore {
    store: Arc<Store>,
    /// For contexts that wait for hints, and for those that do not: each certificate is decoded once for all of them.
    hinted: OnceLock<Arc<ServerSessions<Tiered>>>,
    unhinted: OnceLock<Arc<ServerSessions<Tiered>>>,
}

/// The version of this library, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn rejoin_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What a status means, in a few words. Any number may be given. The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn rejoin_status_text(status: c_int) -> *const c_char {
    Status::text(status).as_ptr()
}

/// Why the last call of this thread failed that did: one line with cause and remedy. At most `bytes`
/// bytes are written to `buffer`, the last of them 0. Returns the length of the whole line without
/// the 0; nothing has failed yet if that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_last_error(buffer: *mut c_char, bytes: size_t) -> size_t {
    // SAFETY: the caller vouches for the buffer.
    unsafe { failure::copy_last(buffer, bytes) }
}

/// Opens the store that `settings` name, or makes it, and has `*store` point to it. Open it before
/// the process forks: its children have it then, and may close it.
///
/// `*store` is to be given to `rejoin_close`. When this fails, it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_open(
    settings: *const RejoinSettings,
    store: *mut *mut RejoinStore,
) -> Status {
    answer(|| {
        let store = NonNull::new(store).ok_or_else(|| Failure::null("store"))?;
        // SAFETY: the caller vouches for `store`.
        unsafe { store.write(std::ptr::null_mut()) };
        // SAFETY: the caller vouches for `settings`.
        let settings = unsafe { RejoinSettings::read(settings) }?;
        // SAFETY: as above.
        let opened = unsafe { settings.open() }?;
        let opened = Box::into_raw(Box::new(RejoinStore::new(opened)));
        // SAFETY: as above.
        unsafe { store.write(opened) };
        Ok(())
    })
}

/// Closes a store, which the program does not use from then on. The contexts that it is attached to
/// go on with it until they are freed. Null is no fault.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_close(store: *mut RejoinStore) {
    if !store.is_null() {
        answer(|| {
            // SAFETY: `rejoin_open` made it, and the caller gives it away.
            drop(unsafe { Box::from_raw(store) });
            Ok(())
        });
    }
}

/// Has a server context keep its sessions in the store, and no longer itself.
///
/// `flags` are 0, or some of `REJOIN_STATEFUL`, `REJOIN_WAIT_FOR_HINTS` and
/// `REJOIN_SHARE_TICKET_KEYS`. The context's session-id context stays as it is, and OpenSSL compares
/// it; the program's own session and info callbacks are called after ours. Where stateless tickets are
/// on, which is OpenSSL's default, and `REJOIN_STATEFUL` is not given, TLS 1.3 clients use those, and
/// have nothing in the store.
///
/// Some callbacks of the program are replaced, for OpenSSL tells nobody what they are: the one of
/// `SSL_CTX_set_generate_session_id`; and with `REJOIN_SHARE_TICKET_KEYS` those of
/// `SSL_CTX_set_session_ticket_cb`, and the one for ticket keys.
///
/// Set the context up first, attach then, and make connections last. Connections made before have the
/// store from their next handshake on; none may be in a handshake meanwhile. No other thread may use
/// the context during the call.
///
/// Fails with `REJOIN_BAD_ARGUMENT` for a context that only connects, and with
/// `REJOIN_ALREADY_ATTACHED` for one that is attached, which stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_attach(
    store: *const RejoinStore,
    context: *mut SSL_CTX,
    flags: u32,
) -> Status {
    answer(|| {
        // SAFETY: `rejoin_open` made it, and nobody has closed it.
        let store = unsafe { store.as_ref() }.ok_or_else(|| Failure::null("store"))?;
        if context.is_null() {
            return Err(Failure::null("context"));
        }
        let known = REJOIN_STATEFUL | REJOIN_WAIT_FOR_HINTS | REJOIN_SHARE_TICKET_KEYS;
        if flags & !known != 0 {
            return Err(Failure::bad(format!("flags = {flags}: some have no meaning")));
        }
        // SAFETY: the caller vouches for `context`.
        if unsafe { rejoin_openssl::only_connects(context) } {
            return Err(Failure::bad("a context of TLS_client_method has no sessions to keep"));
        }
        // SAFETY: as above, alone.
        let attached = unsafe { store.everywhere(flags)?.attach_to(context) };
        match attached {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::new(
                Status::RejoinAlreadyAttached,
                "the context is attached already: attach once, after it is made",
            )),
            Err(error) => {
                Err(Failure::new(Status::RejoinOpenssl, format!("cannot attach: {error}")))
            }
        }
    })
}

/// The client of this connection will come back in `interval_ms` milliseconds. To be called by the
/// thread that uses the connection, after its handshake; the last call counts.
///
/// Fails with `REJOIN_NOT_ATTACHED` before the handshake, and for connections of a context that is not
/// attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_hint(connection: *mut SSL, interval_ms: u64) -> Status {
    answer(|| {
        // SAFETY: the caller vouches for `connection`.
        rejoin_openssl::hint(unsafe { attached(connection) }?, interval_ms);
        Ok(())
    })
}

/// The program does not know when the client of this connection will come back: a session that waits
/// to hear is stored now. For the rest as `rejoin_hint`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_no_hint(connection: *mut SSL) -> Status {
    answer(|| {
        // SAFETY: the caller vouches for `connection`.
        rejoin_openssl::no_hint(unsafe { attached(connection) }?);
        Ok(())
    })
}

/// Writes what was counted in the store so far, by all processes, to `counters`, whose `struct_size`
/// must be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_read_counters(
    store: *const RejoinStore,
    counters: *mut RejoinCounters,
) -> Status {
    answer(|| {
        // SAFETY: `rejoin_open` made it, and nobody has closed it.
        let store = &unsafe { store.as_ref() }.ok_or_else(|| Failure::null("store"))?.store;
        let counted = RejoinCounters::from(store.cache().counters());
        // SAFETY: the caller vouches for `counters`.
        unsafe { counted.write(counters) }
    })
}

/// Attaches to all server contexts of the process, as the variables `REJOIN_CACHE`,
/// `REJOIN_CAPACITY` and so on say: once, whoever asks first, this function or the configuration
/// module. For a program that has its own way of making connections, and for the preload library; all
/// others have `rejoin_attach`.
///
/// `context` is null, or one on which a connection is about to be made. Contexts that were made before
/// the first call cannot be seen by it: give each before its connections are made. For one that only
/// connects nothing is done. All threads may call it at the same time. Until the first call for it, no
/// connection was made on `context`.
///
/// A failure is also one line on standard error, once, and all later calls fail as the first did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_attach_process(context: *mut SSL_CTX) -> Status {
    answer(|| {
        // SAFETY: the caller vouches for it.
        if !context.is_null() && unsafe { rejoin_openssl::only_connects(context) } {
            return Ok(());
        }
        let attached = process::attach_once(process::variable);
        attached.map_err(|why| Failure::new(Status::RejoinNotAttached, why))?;
        if !context.is_null() {
            // SAFETY: the caller vouches for it.
            unsafe { Everywhere::include(context) };
        }
        Ok(())
    })
}

/// Asks the TLS manager for a connection, and has `*descriptor` be a stream socket that carries its
/// plaintext: TLS is spoken between the manager and the server. `shutdown(*descriptor, SHUT_WR)` tells
/// the server that no more will come. The descriptor is to be closed, is closed in programs that are
/// executed, and blocks.
///
/// `session` is null, or has its `struct_size` set; the connection is described there. When this fails,
/// `*descriptor` is -1; after `REJOIN_NO_MANAGER` the program connects directly, if it can. If 0-RTT data may
/// have left by then, the session's `early_data` is `REJOIN_EARLY_DATA_SENT`, and nothing else of it has a
/// meaning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_connect(
    request: *const RejoinRequest,
    descriptor: *mut c_int,
    session: *mut RejoinSession,
) -> Status {
    answer(|| {
        let descriptor = NonNull::new(descriptor).ok_or_else(|| Failure::null("descriptor"))?;
        // SAFETY: the caller vouches for `descriptor`.
        unsafe { descriptor.write(-1) };
        // SAFETY: the caller vouches for `request`.
        let request = unsafe { RejoinRequest::read(request) }?;
        // SAFETY: as above.
        let made = unsafe { request.connect() };
        if made.as_ref().is_err_and(|failure| failure.sent_early && request.has_early_data()) {
            // SAFETY: the caller vouches for `session`.
            unsafe { RejoinSession::LEFT_EARLY.write(session) }?;
        }
        let (socket, described) = made?;
        // SAFETY: the caller vouches for `session`.
        unsafe { described.write(session) }?;
        // SAFETY: as above.
        unsafe { descriptor.write(socket.into_raw_fd()) };
        Ok(())
    })
}

/// Asks whether the server said that what came was all, once the descriptor of `rejoin_connect` has
/// come to its end: an end of file alone does not tell. To be called by programs whose protocol does
/// not know by itself. `session` is as `rejoin_connect` described it.
///
/// Fails with `REJOIN_TRUNCATED` if the server did not, or if that cannot be found out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_ended_well(session: *const RejoinSession) -> Status {
    // SAFETY: the caller vouches for `session`.
    answer(|| unsafe { RejoinSession::ended_well(session) })
}

impl RejoinStore {
    fn new(store: Store) -> Self {
        let (hinted, unhinted) = (OnceLock::new(), OnceLock::new());
        Self { store: Arc::new(store), hinted, unhinted }
    }

    fn sessions(&self, hints: Hints) -> &Arc<ServerSessions<Tiered>> {
        let sessions = if hints == Hints::Expected { &self.hinted } else { &self.unhinted };
        sessions.get_or_init(|| {
            let tiered = Tiered::new(Arc::clone(&self.store));
            ServerSessions::new(tiered, *self.store.id_key(), hints)
        })
    }

    fn everywhere(&self, flags: u32) -> Result<Arc<Everywhere>, Failure> {
        let wait = flags & REJOIN_WAIT_FOR_HINTS != 0;
        let sessions = self.sessions(if wait { Hints::Expected } else { Hints::Never });
        let mut everywhere =
            Everywhere::default().with_sessions(sessions, flags & REJOIN_STATEFUL != 0);
        if flags & REJOIN_SHARE_TICKET_KEYS != 0 {
            let (now_s, complain) = (process::now_s(), process::complain);
            let keys = SharedKeys::open(Arc::clone(&self.store), None, None, now_s, complain)?;
            let keys = TicketKeys::following(Box::new(keys));
            everywhere = everywhere.with_tickets(&keys, TicketHistory::Carried);
        }
        Ok(Arc::new(everywhere))
    }
}
