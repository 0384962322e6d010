//! The C API. A server that links `librejoin.so` opens a store, attaches it to its contexts, and may give hints when
//! clients come back. A client asks the TLS manager for connections.
//!
//! `include/rejoin.h` is generated from this file and those under it. Functions that can fail return a [`Status`], and no
//! function lets a panic out.
#![expect(
    clippy::missing_safety_doc,
    reason = "the documentation is for C programs, which have no other kind of function"
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
pub use settings::{
    REJOIN_POLICY_LRU, REJOIN_POLICY_PREDICTIVE, REJOIN_SOURCE_ADDRESS, REJOIN_SOURCE_CERTIFICATE,
    REJOIN_SOURCE_NAME, RejoinSettings,
};
pub use status::Status;

use crate::{posts, process};
use failure::{Failure, answer};
use reached::attached;

/// Turns stateless tickets off, so that TLS 1.3 clients, too, have sessions in the store.
pub const REJOIN_STATEFUL: u32 = 1;

/// Delays storing a new session until `rejoin_hint` or `rejoin_no_hint` is called for its connection, or
/// the connection ends.
pub const REJOIN_WAIT_FOR_HINTS: u32 = 2;

/// Encrypts stateless tickets with the store's keys instead of the context's own. All servers of the
/// store have these keys, and they rotate automatically.
pub const REJOIN_SHARE_TICKET_KEYS: u32 = 4;

/// Accepts early data (0-RTT) where the context does, and none twice, in whichever process of the store: there TLS 1.3
/// clients have sessions in the store, and each resumes once. Where a cluster does not answer, a session resumes without early
/// data, once on each machine that has it. Brings `REJOIN_SHARE_TICKET_KEYS` along.
pub const REJOIN_EARLY_DATA_ONCE: u32 = 8;

/// A store of sessions in memory that processes share. All threads may use it at the same time.
#[derive(Debug)]
pub struct RejoinStore {
    store: Arc<Store>,
    /// The sessions of all contexts that wait for hints. They are shared, so that each certificate is decoded once.
    hinted: OnceLock<Arc<ServerSessions<Tiered>>>,
    /// The sessions of all contexts that do not.
    unhinted: OnceLock<Arc<ServerSessions<Tiered>>>,
}

/// Returns the version of this library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn rejoin_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the meaning of a status in a few words. Any number may be given. The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn rejoin_status_text(status: c_int) -> *const c_char {
    Status::text(status).as_ptr()
}

/// Copies the error of the last failed call of this thread: one line with cause and remedy. Writes at
/// most `bytes` bytes to `buffer`, the last of them 0. Returns the length of the whole line without
/// the 0, or 0 if no call has failed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_last_error(buffer: *mut c_char, bytes: size_t) -> size_t {
    // SAFETY: the caller vouches for the buffer.
    unsafe { failure::copy_last(buffer, bytes) }
}

/// Opens the store that `settings` name, or creates it, and stores a pointer to it in `*store`. Open it
/// before the process forks: child processes inherit the store, and may close it.
///
/// Close the store with `rejoin_close`. After a failure `*store` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_open(
    settings: *const RejoinSettings,
    store: *mut *mut RejoinStore,
) -> Status {
    answer(|| {
        let store = NonNull::new(store).ok_or_else(|| Failure::null("store"))?;
        // SAFETY: the caller vouches for `store`, which is not null.
        unsafe { store.write(std::ptr::null_mut()) };
        // SAFETY: the caller vouches for `settings`.
        let settings = unsafe { RejoinSettings::read(settings) }?;
        // SAFETY: the caller vouches for the texts that the settings point to.
        let opened = unsafe { settings.open() }?;
        let opened = Box::into_raw(Box::new(RejoinStore::new(opened)));
        // SAFETY: the caller vouches for `store`, which is not null.
        unsafe { store.write(opened) };
        Ok(())
    })
}

/// Closes a store. The program must not use it from then on. Contexts that it is attached to keep using
/// it until they are freed. Does nothing if `store` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_close(store: *mut RejoinStore) {
    if !store.is_null() {
        answer(|| {
            // SAFETY: `rejoin_open` made the store, and the caller gives it away.
            drop(unsafe { Box::from_raw(store) });
            Ok(())
        });
    }
}

/// Attaches the store to a server context, which then keeps its sessions in the store instead of its own
/// cache.
///
/// `flags` are 0, or some of `REJOIN_STATEFUL`, `REJOIN_WAIT_FOR_HINTS`, `REJOIN_SHARE_TICKET_KEYS`
/// and `REJOIN_EARLY_DATA_ONCE`. The session-id context of `context` stays as it is, and OpenSSL compares
/// it. The program's own session and info callbacks are called after the store's. If stateless tickets
/// are on, which is OpenSSL's default, and `REJOIN_STATEFUL` is not given, TLS 1.3 clients use those,
/// and have nothing in the store. A context that accepts early data is left alone without
/// `REJOIN_EARLY_DATA_ONCE`, unless it has `SSL_OP_NO_ANTI_REPLAY`.
///
/// The store replaces some callbacks of the program, because OpenSSL does not reveal them: the one of
/// `SSL_CTX_set_generate_session_id`; and with `REJOIN_SHARE_TICKET_KEYS` those of
/// `SSL_CTX_set_session_ticket_cb`, and the one for ticket keys.
///
/// Set the context up first, attach then, and make connections last. Connections made before use the
/// store from their next handshake on; none may be in a handshake during the call. No other thread may
/// use the context during the call.
///
/// Fails with `REJOIN_BAD_ARGUMENT` for a context that only connects, or is one of OpenSSL's own QUIC,
/// and with `REJOIN_ALREADY_ATTACHED` for one that is attached, which stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_attach(
    store: *const RejoinStore,
    context: *mut SSL_CTX,
    flags: u32,
) -> Status {
    answer(|| {
        // SAFETY: `rejoin_open` made the store, and the program has not closed it.
        let store = unsafe { store.as_ref() }.ok_or_else(|| Failure::null("store"))?;
        if context.is_null() {
            return Err(Failure::null("context"));
        }
        let known = REJOIN_STATEFUL
            | REJOIN_WAIT_FOR_HINTS
            | REJOIN_SHARE_TICKET_KEYS
            | REJOIN_EARLY_DATA_ONCE;
        if flags & !known != 0 {
            return Err(Failure::bad(format!("flags = {flags}: some are unknown")));
        }
        // SAFETY: the caller vouches for `context`.
        if unsafe { rejoin_openssl::only_connects(context) } {
            return Err(Failure::bad("a context that only connects has no sessions to keep"));
        }
        // SAFETY: the caller vouches for `context`.
        if unsafe { rejoin_openssl::is_quic(context) } {
            return Err(Failure::bad("contexts of OpenSSL's own QUIC are left alone"));
        }
        // SAFETY: the caller vouches for `context`, and no other thread uses it during the call.
        let attached = unsafe { store.everywhere(flags)?.attach_to(context) };
        match attached {
            Ok(true) => {
                posts::attached_by_the_program(&store.store);
                Ok(())
            }
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

/// Gives the hint that the client of this connection will come back in `interval_ms` milliseconds. Call
/// it in the thread that uses the connection, after its handshake. The last call counts.
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

/// Tells the store that there is no hint for the client of this connection: a session that waits for one
/// is stored now. Otherwise like `rejoin_hint`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_no_hint(connection: *mut SSL) -> Status {
    answer(|| {
        // SAFETY: the caller vouches for `connection`.
        rejoin_openssl::no_hint(unsafe { attached(connection) }?);
        Ok(())
    })
}

/// Reads the counters of the store, which all processes share, into `counters`. Its `struct_size` must
/// be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_read_counters(
    store: *const RejoinStore,
    counters: *mut RejoinCounters,
) -> Status {
    answer(|| {
        // SAFETY: `rejoin_open` made the store, and the program has not closed it.
        let store = &unsafe { store.as_ref() }.ok_or_else(|| Failure::null("store"))?.store;
        let counted = RejoinCounters::from(store.cache().counters());
        // SAFETY: the caller vouches for `counters`.
        unsafe { counted.write(counters) }
    })
}

/// Attaches to all server contexts of the process, with the settings in `REJOIN_CACHE`,
/// `REJOIN_CAPACITY` and the other variables. This happens once, at the first call of this function or
/// by the configuration module. The function is for programs that make connections in a way of their
/// own, and for the preload library; all others call `rejoin_attach`.
///
/// `context` is null, or the context of a connection that is about to be made. The first call does not
/// see contexts that were made before it: pass each of them before it makes a connection. No connection
/// may have been made on `context` before the first call for it. Does nothing for a context that only
/// connects, or is one of OpenSSL's own QUIC. All threads may call this function at the same time.
///
/// The first failure is also reported on standard error, in one line, and all later calls fail in the
/// same way. Success is reported in one line when the first client is served, unless `REJOIN_LOG` is
/// `errors`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_attach_process(context: *mut SSL_CTX) -> Status {
    answer(|| {
        // SAFETY: the caller vouches for `context`, which is not null.
        if !context.is_null() && unsafe { rejoin_openssl::only_connects(context) } {
            return Ok(());
        }
        let source = || "the environment".to_owned();
        let attached = process::attach_once(source, Vec::new, process::variable);
        attached.map_err(|why| Failure::new(Status::RejoinNotAttached, why))?;
        if !context.is_null() {
            // SAFETY: the caller vouches for `context`, which is not null.
            unsafe { Everywhere::include(context) };
        }
        Ok(())
    })
}

/// Asks the TLS manager for a connection, and stores in `*descriptor` a stream socket that carries its
/// plaintext. The manager speaks TLS with the server. `shutdown(*descriptor, SHUT_WR)` tells the server
/// that no more data follows. The socket is blocking and close-on-exec, and the program must close it.
///
/// `session` is null, or has its `struct_size` set; it receives a description of the connection. After a
/// failure `*descriptor` is -1; after `REJOIN_NO_MANAGER` a program connects directly, if it can. If
/// 0-RTT data may have been sent before the failure, `early_data` in `session` is
/// `REJOIN_EARLY_DATA_SENT`, and its other fields have no meaning.
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
        // Before the request leaves: the server would act on it.
        // SAFETY: the caller vouches for `session`.
        unsafe { RejoinSession::check(session) }?;
        // SAFETY: the caller vouches for the texts, the data and the socket of the request.
        let made = unsafe { request.connect() };
        if made.as_ref().is_err_and(|failure| failure.sent_early && request.may_send_early()) {
            // SAFETY: the caller vouches for `session`.
            unsafe { RejoinSession::LEFT_EARLY.write(session) }?;
        }
        let (socket, described) = made?;
        // SAFETY: the caller vouches for `session`.
        unsafe { described.write(session) }?;
        // SAFETY: the caller vouches for `descriptor`, which is not null.
        unsafe { descriptor.write(socket.into_raw_fd()) };
        Ok(())
    })
}

/// Checks that the server closed the connection with close_notify, after the end of file on the
/// descriptor of `rejoin_connect`, which does not tell. Call it if the program's protocol does not mark
/// the end by itself. `session` is the one that `rejoin_connect` filled.
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
            // Sessions are taken for early data alone.
            let tiered = Tiered::new(Arc::clone(&self.store)).taking_unanswered();
            let sessions = ServerSessions::new(tiered, *self.store.id_key(), hints);
            process::tell_when_sourceless(&sessions, self.store.name());
            sessions
        })
    }

    fn everywhere(&self, flags: u32) -> Result<Arc<Everywhere>, Failure> {
        let wait = flags & REJOIN_WAIT_FOR_HINTS != 0;
        let sessions = self.sessions(if wait { Hints::Expected } else { Hints::Never });
        let mut everywhere = Everywhere::default()
            .with_sessions(sessions, flags & REJOIN_STATEFUL != 0)
            .early_data_once(flags & REJOIN_EARLY_DATA_ONCE != 0);
        if flags & (REJOIN_SHARE_TICKET_KEYS | REJOIN_EARLY_DATA_ONCE) != 0 {
            let (now_s, complain) = (process::now_s(), process::complain);
            let keys = SharedKeys::open(Arc::clone(&self.store), None, None, now_s, complain)?;
            let keys = TicketKeys::following(Box::new(keys));
            everywhere = everywhere.with_tickets(&keys, TicketHistory::Carried);
        }
        Ok(Arc::new(everywhere))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, Instant};

    use super::*;

    /// A request, and where a manager would hear of it.
    fn request(name: &str) -> (RejoinRequest, UnixListener, CString) {
        let path = std::env::temp_dir().join(format!("rejoin-capi-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        listener.set_nonblocking(true).expect("a setting");
        let path = CString::new(path.to_str().expect("a path")).expect("a path");
        let mut request = RejoinRequest::ZERO;
        request.struct_size = size_of::<RejoinRequest>();
        (request.host, request.port) = (c"localhost".as_ptr(), 443);
        request.manager = path.as_ptr();
        (request, listener, path)
    }

    #[test]
    fn a_session_of_no_size_is_refused_before_anything_is_sent() {
        let (mut request, listener, _path) = request("size");
        (request.first, request.first_bytes) = (b"GET /".as_ptr(), 5);
        let mut descriptor = 7;
        for struct_size in [0, 4, 100_000] {
            let mut session = RejoinSession { struct_size, ..RejoinSession::LEFT_EARLY };
            // SAFETY: all three are what the function asks for, except for the size.
            let status = unsafe {
                rejoin_connect(&raw const request, &raw mut descriptor, &raw mut session)
            };
            assert_eq!((status, descriptor), (Status::RejoinBadArgument, -1), "{struct_size}");
            assert!(listener.accept().is_err(), "the manager was asked");
        }
    }

    #[test]
    fn a_socket_that_is_closed_is_a_bad_argument_at_once() {
        let (mut request, _listener, _path) = request("closed");
        (request.flags, request.socket) = (REJOIN_OVER_SOCKET, 99_999);
        let (mut descriptor, since) = (7, Instant::now());
        let session = std::ptr::null_mut();
        // SAFETY: the request is valid, except for its socket.
        let status = unsafe { rejoin_connect(&raw const request, &raw mut descriptor, session) };
        assert_eq!((status, descriptor), (Status::RejoinBadArgument, -1));
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    }
}
