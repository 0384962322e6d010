//! The state of an `SSL_CTX`, kept in OpenSSL's extra data for it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libc::c_int;
use openssl_sys::{CRYPTO_EX_DATA, SSL, SSL_CTX};

use crate::context_name::ContextName;
use crate::everywhere::Everywhere;
use crate::ffi;
use crate::guard::ex_data_callback;
use crate::policy::Learned;
use crate::sessions::Cached;
use crate::ticket_keys::ContextTickets;

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
        let (is_stateful, is_named, tickets, own, server_info) = (false, false, None, None, None);
        let resumable_for = RESUMABLE_FOR;
        Self { cached: None, is_stateful, is_named, resumable_for, tickets, own, server_info }
    }
}

impl Attachment {
    /// Returns true if nothing else may be attached.
    pub(crate) fn is_settled(&self) -> bool {
        self.cached.is_some() || self.own.as_ref().is_some_and(|own| own.is_settled())
    }
}

/// The state that a context of its own has where [`Everywhere`] covers it.
#[derive(Debug)]
pub(crate) struct Own {
    /// The settings of this context alone, or `None` for those of the whole process.
    pub(crate) what: Option<Arc<Everywhere>>,
    /// Fills in the attachment of each connection. A pointer, because beginning installs the callbacks, and these
    /// need the attachment.
    pub(crate) begin: Begin,
    /// The callbacks of the program, read when the first connection began.
    pub(crate) set: OnceLock<OwnCallbacks>,
    pub(crate) name: OnceLock<ContextName>,
    pub(crate) learned: Learned,
}

/// Fills in the attachment of a connection that begins.
///
/// # Safety
/// The connection is valid, and shakes hands as a server on this context.
pub(crate) type Begin = unsafe fn(*mut SSL, *mut SSL_CTX, &Own, &mut Attachment);

/// The program's own session callbacks, which ours replaced and call.

#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnCallbacks {
    pub(crate) made: Option<ffi::SessionMade>,
    pub(crate) wanted: Option<ffi::SessionWanted>,
}

impl Own {
    pub(crate) fn new(what: Option<Arc<Everywhere>>, begin: Begin) -> Arc<Self> {
        let (set, name, learned) = (OnceLock::new(), OnceLock::new(), Learned::default());
        Arc::new(Self { what, begin, set, name, learned })
    }

    pub(crate) fn callbacks(&self) -> Option<OwnCallbacks> {
        self.set.get().copied()
    }

    /// Returns true if the context has settings of its own, or a connection began on it.
    pub(crate) fn is_settled(&self) -> bool {
        self.what.is_some() || self.set.get().is_some()
    }
}

/// Returns the attachment of a context, if it has one.
///
/// # Safety
/// `context` is valid for `'a`, during which nothing is attached to it.
pub(crate) unsafe fn attachment_of<'a>(context: *const SSL_CTX) -> Option<&'a Attachment> {
    // SAFETY: the caller vouches for `context`.
    let attachment = unsafe { openssl_sys::SSL_CTX_get_ex_data(context, context_index()) };
    // SAFETY: only this module stores under this index; the context owns what is stored.
    unsafe { attachment.cast::<Attachment>().as_ref() }
}

/// Replaces the attachment of a context. Returns false if OpenSSL is out of memory.
///
/// # Safety
/// `context` is valid and not yet used by another thread.
pub(crate) unsafe fn replace(context: *mut SSL_CTX, attachment: Attachment) -> bool {
    let index = context_index();
    // SAFETY: the caller vouches for `context`.
    let old = unsafe { openssl_sys::SSL_CTX_get_ex_data(context, index) };
    let new = Box::into_raw(Box::new(attachment));
    // SAFETY: the index is ours; OpenSSL hands the box to `free_attachment`.
    let stored = unsafe { openssl_sys::SSL_CTX_set_ex_data(context, index, new.cast()) } == 1;
    let unwanted = if stored { old.cast() } else { new };
    if !unwanted.is_null() {
        // SAFETY: made by `Box::into_raw` above, and no longer reachable through the context.
        drop(unsafe { Box::from_raw(unwanted) });
    }
    stored
}

/// Attaches to a context that is being made, of which only the extra data exists yet.
///
/// # Safety
/// `data` is the extra data of a context that no other thread has yet.
pub(crate) unsafe fn attach_while_made(data: *mut CRYPTO_EX_DATA, own: Arc<Own>) {
    let attachment = Attachment { own: Some(own), ..Attachment::default() };
    let attachment = Box::into_raw(Box::new(attachment));
    // SAFETY: the index is ours; OpenSSL hands the box to `free_attachment`.
    if unsafe { ffi::CRYPTO_set_ex_data(data, context_index(), attachment.cast()) } != 1 {
        // SAFETY: OpenSSL did not take it.
        drop(unsafe { Box::from_raw(attachment) });
    }
}

/// Returns the index of attachments, which OpenSSL must know before contexts are made.
pub(crate) fn context_index() -> c_int {
    static INDEX: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the callback fits the index's type; OpenSSL copies nothing else.
    *INDEX.get_or_init(|| unsafe {
        openssl_sys::SSL_CTX_get_ex_new_index(
            0,
            std::ptr::null_mut(),
            None,
            None,
            Some(free_attachment),
        )
    })
}

ex_data_callback! {
    fn free_attachment(_parent, attachment, _data) {
        if !attachment.is_null() {
            // SAFETY: stored by this module as a box, and freed once, by OpenSSL.
            drop(unsafe { Box::from_raw(attachment.cast::<Attachment>()) });
        }
    }
}
