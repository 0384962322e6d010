//! The connection that rustls works on at the moment, for the callbacks that rustls gives no connection.

use std::cell::RefCell;
use std::sync::Arc;

use crate::trust::judge::Judge;
use crate::upstream::policy::{Policy, Terms};

/// One connection's judge, and what its server said in the handshake.
#[derive(Debug, Clone)]
pub(crate) struct HandshakeContext {
    pub(crate) judge: Arc<Judge>,
    pub(crate) policy: Arc<Policy>,
    /// The signature scheme that the server used, and over TLS 1.2 the curve of its key.
    pub(crate) signed: Terms,
    /// The time of day by which certificates are judged.
    pub(crate) unix_s: u64,
    /// True if the server requested a client certificate.
    pub(crate) certificate_requested: bool,
    /// The stapled OCSP response, unverified. `None`: the server sent none, or resumed a session.
    pub(crate) staple: Option<Arc<[u8]>>,
}

thread_local! {
    static CURRENT: RefCell<Option<HandshakeContext>> = const { RefCell::new(None) };
}

/// Runs `work` with this context as the thread's current one.
pub(crate) fn scope<T>(context: &mut HandshakeContext, work: impl FnOnce() -> T) -> T {
    struct Outer<'a>(&'a mut HandshakeContext, Option<HandshakeContext>);
    impl Drop for Outer<'_> {
        fn drop(&mut self) {
            if let Some(context) = CURRENT.replace(self.1.take()) {
                *self.0 = context;
            }
        }
    }
    let inner = context.clone();
    let _outer = Outer(context, CURRENT.replace(Some(inner)));
    work()
}

/// Returns the thread's current context.
pub(crate) fn current() -> Option<HandshakeContext> {
    CURRENT.with_borrow(Clone::clone)
}

/// Notes that the current connection's server requested a client certificate.
pub(crate) fn note_certificate_requested() {
    CURRENT.with_borrow_mut(|context| {
        if let Some(context) = context {
            context.certificate_requested = true;
        }
    });
}

/// Notes the terms of the current connection's signature.
pub(crate) fn note_signed(terms: Terms) {
    CURRENT.with_borrow_mut(|context| {
        if let Some(context) = context {
            context.signed = terms;
        }
    });
}

/// Notes the OCSP response that the current connection's server stapled.
pub(crate) fn note_staple(staple: &[u8]) {
    CURRENT.with_borrow_mut(|context| {
        if let Some(context) = context.as_mut().filter(|_| !staple.is_empty()) {
            context.staple = Some(staple.into());
        }
    });
}
