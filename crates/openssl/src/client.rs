//! TLS clients that keep their sessions themselves, many in one process.
//!
//! OpenSSL lets a session be used with the context it was made by, and no other. [`Client`] and
//! [`ClientSession`] keep that promise, so that their users need no `unsafe`.

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::error::ErrorStack;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslRef, SslSession};

use crate::ffi;

/// A client context.
pub struct Client(SslContext);

/// A session, and the context it belongs to.
#[derive(Clone)]
pub struct ClientSession {
    session: SslSession,
    context: SslContext,
}

impl Client {
    /// OpenSSL's client keeps no sessions by itself.
    pub fn new(context: SslContextBuilder) -> Self {
        Self(context.build())
    }

    /// A connection to be made, resuming `session` if there is one.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory. A session of another client is not used.
    pub fn connection(&self, session: Option<&ClientSession>) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(&self.0)?;
        let ours = session.filter(|session| session.context.as_ptr() == self.0.as_ptr());
        if let Some(ClientSession { session, .. }) = ours {
            // SAFETY: the session was made by this same context.
            unsafe { ssl.set_session(session)? };
        }
        Ok(ssl)
    }
}

impl ClientSession {
    /// The newest session of a connection. Over TLS 1.3 sessions arrive with the first data, after
    /// the handshake; before, and when a server gives none, what this returns resumes nothing.
    pub fn newest(ssl: &SslRef) -> Option<Self> {
        let session = ssl.session()?.to_owned();
        Some(Self { session, context: ssl.ssl_context().to_owned() })
    }
}

/// Returns true if the server has accepted the early data (0-RTT) of a client's connection, whose handshake is done.
pub fn is_early_data_accepted(ssl: &SslRef) -> bool {
    // SAFETY: the reference keeps the SSL alive, and the call reads a number.
    unsafe { ffi::SSL_get_early_data_status(ssl.as_ptr()) == ffi::SSL_EARLY_DATA_ACCEPTED }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client(…)")
    }
}

impl std::fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientSession(…)")
    }
}
