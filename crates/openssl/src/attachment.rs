//! The state of an `SSL_CTX`, kept in OpenSSL's extra data for it.

use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libc::c_long;
use openssl::sha::Sha256;
use openssl_sys::{SSL, SSL_CTX};
use zeroize::Zeroizing;

use crate::board::{Outcome, Place};
use crate::context_name::ContextName;
use crate::everywhere::Everywhere;
use crate::extra::Extra;
use crate::sessions::Cached;
use crate::ticket_keys::ContextTickets;
use crate::{family, ffi};

/// How long a client may go on resuming after a full handshake, from session to session, unless set otherwise:
/// the longest that RFC 8446, section 4.6.1, allows one ticket.
pub const RESUMABLE_FOR: Duration = Duration::from_secs(rejoin_tickets::LONGEST_TICKET_LIFETIME_S);

/// The settings and callbacks that one context is attached with.
#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    pub(crate) cached: Option<Cached>,
    /// Stateless tickets are off, regardless of the program's options.
    pub(crate) is_stateful: bool,
    /// Sessions of other session-id contexts resume here, too.
    pub(crate) is_named: bool,
    /// A stored session of TLS 1.3 resumes at most once.
    pub(crate) is_single_use: bool,
    /// Early data is accepted, and none twice.
    pub(crate) accepts_early_once: bool,
    /// The operator vouches that programs under the context's name check client certificates alike.
    pub(crate) is_vouched: bool,
    /// The program itself issues tickets, which resume in each process that has the context.
    pub(crate) issues_tickets: bool,
    /// How long a client may go on resuming after a full handshake.
    pub(crate) resumable_for: Duration,
    pub(crate) tickets: Option<ContextTickets>,
    /// Set on a context that [`Everywhere`] covers.
    pub(crate) own: Option<Arc<Own>>,
    /// The server's own callback, set on the context before ours.
    pub(crate) server_info: Option<ffi::InfoCallback>,
}

impl Default for Attachment {
    fn default() -> Self {
        Self {
            cached: None,
            is_stateful: false,
            is_named: false,
            is_single_use: false,
            accepts_early_once: false,
            is_vouched: false,
            issues_tickets: false,
            resumable_for: RESUMABLE_FOR,
            tickets: None,
            own: None,
            server_info: None,
        }
    }
}

impl Attachment {
    /// Sets the options of a connection that this attachment needs. A server that switches contexts by name may give the
    /// connection the options of the new one, as nginx does.
    ///
    /// # Safety
    /// `ssl` is valid.
    pub(crate) unsafe fn set_options(&self, ssl: *mut SSL) {
        let of = |is_wanted: bool, option: u64| if is_wanted { option } else { 0 };
        let options = of(self.is_stateful, ffi::SSL_OP_NO_TICKET)
            | of(self.accepts_early_once, ffi::SSL_OP_NO_ANTI_REPLAY);
        if options != 0 {
            // SAFETY: the caller vouches for `ssl`.
            unsafe { ffi::SSL_set_options(ssl, options) };
        }
    }

    /// Returns true if nothing else may be attached.
    pub(crate) fn is_settled(&self) -> bool {
        self.cached.is_some() || self.own.as_ref().is_some_and(|own| own.is_settled())
    }
}

/// The state that a context of its own has where [`Everywhere`] covers it.
#[derive(Debug)]
pub(crate) struct Own {
    /// The context's identity, in this process and in those that it forks later, or, if the context was made before Rejoin
    /// came, in all that were forked since. No other context has it, whatever its address.
    pub(crate) identity: [u8; 16],
    /// True if the context was made before Rejoin came. Other processes may have inherited it, and come to Rejoin by
    /// themselves.
    pub(crate) is_earlier: bool,
    /// The settings of this context alone, or `None` for those of the whole process.
    pub(crate) what: Option<Arc<Everywhere>>,
    /// Fills in the attachment of each connection. A pointer, because beginning installs the callbacks, and these
    /// need the attachment.
    pub(crate) begin: Begin,
    /// The callbacks of the program, read when the first connection began.
    pub(crate) set: OnceLock<OwnCallbacks>,
    /// True if the program itself keeps sessions of the context, read before Rejoin changed that.
    pub(crate) is_caching: OnceLock<bool>,
    pub(crate) fills: OnceLock<Filled>,
    pub(crate) name: OnceLock<ContextName>,
    pub(crate) place: Place,
}

/// The places where the program may keep data of its own with what resumes, which nobody can ask OpenSSL for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Filled {
    /// It may have a callback of its own for session tickets.
    pub(crate) tickets: bool,
    /// It has an index for extra data of sessions, which no serialised session brings back.
    pub(crate) sessions: bool,
}

/// Fills in the attachment of a connection that begins, and returns what came of it.
///
/// # Safety
/// The connection is valid, and shakes hands as a server on this context.
pub(crate) type Begin = unsafe fn(*mut SSL, *mut SSL_CTX, &Own, &mut Attachment) -> Outcome;

/// The program's own session callbacks, which ours replaced and call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnCallbacks {
    pub(crate) made: Option<ffi::SessionMade>,
    pub(crate) wanted: Option<ffi::SessionWanted>,
}

impl Own {
    pub(crate) fn new(what: Option<Arc<Everywhere>>, begin: Begin) -> Arc<Self> {
        Self::with(family::random(), false, what, begin)
    }

    /// Returns the state of a context that was made before Rejoin came.
    ///
    /// # Safety
    /// `context` is valid.
    pub(crate) unsafe fn of_earlier(context: *mut SSL_CTX, begin: Begin) -> Arc<Self> {
        // SAFETY: the caller vouches for `context`.
        let identity = unsafe { inherited_identity(context) };
        Self::with(identity.unwrap_or_else(family::random), true, None, begin)
    }

    fn with(
        identity: [u8; 16],
        is_earlier: bool,
        what: Option<Arc<Everywhere>>,
        begin: Begin,
    ) -> Arc<Self> {
        let (set, is_caching, name) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let fills = OnceLock::new();
        let place = Place::of(&identity);
        Arc::new(Self { identity, is_earlier, what, begin, set, is_caching, fills, name, place })
    }

    pub(crate) fn callbacks(&self) -> Option<OwnCallbacks> {
        self.set.get().copied()
    }

    /// Returns true if the context has settings of its own, or a connection began on it.
    pub(crate) fn is_settled(&self) -> bool {
        self.what.is_some() || self.set.get().is_some()
    }
}

/// Returns an identity that all processes compute alike which have inherited this context. It comes from the ticket keys that
/// OpenSSL made for the context, by which each of these processes opens the tickets of all, and from its address, because a
/// program may give one key to several contexts. `None` if libssl does not give the keys.
///
/// # Safety
/// `context` is valid.
unsafe fn inherited_identity(context: *mut SSL_CTX) -> Option<[u8; 16]> {
    let mut keys = Zeroizing::new([0_u8; ffi::TICKET_KEYS_BYTES]);
    let (what, bytes) = (ffi::SSL_CTRL_GET_TLSEXT_TICKET_KEYS, ffi::TICKET_KEYS_BYTES as c_long);
    // SAFETY: the caller vouches for `context`; without a buffer the call returns the number of bytes.
    let needed = unsafe { openssl_sys::SSL_CTX_ctrl(context, what, 0, null_mut()) };
    if needed != bytes {
        return None;
    }
    // SAFETY: the caller vouches for `context`, and the buffer has as many bytes as the call writes.
    let written =
        unsafe { openssl_sys::SSL_CTX_ctrl(context, what, bytes, keys.as_mut_ptr().cast()) };
    let mut hash = Sha256::new();
    hash.update(b"rejoin inherited");
    hash.update(&keys[..]);
    hash.update(&(context as usize).to_le_bytes());
    (written == 1).then(|| hash.finish().first_chunk().copied()).flatten()
}

/// The attachments of contexts.
pub(crate) static ATTACHMENTS: Extra<SSL_CTX, Attachment> = Extra::new();

/// Returns the attachment of a context, if it has one.
///
/// # Safety
/// `context` is valid for `'a`, during which nothing is attached to it.
pub(crate) unsafe fn attachment_of<'a>(context: *const SSL_CTX) -> Option<&'a Attachment> {
    // SAFETY: the caller vouches for `context`.
    unsafe { ATTACHMENTS.get(context) }
}
