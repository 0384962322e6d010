//! TLS clients that keep their sessions themselves, many in one process.
//!
//! OpenSSL lets a session be used with the context it was made by, and no other. [`Client`] and
//! [`ClientSession`] keep that promise, so that their users need no `unsafe`.

use std::sync::LazyLock;

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslRef, SslSession, SslSessionCacheMode};

/// A client context whose connections remember the newest session they were given.
pub struct Client(SslContext);

/// A session, and the context it belongs to.
#[derive(Clone)]
pub struct ClientSession {
    session: SslSession,
    context: SslContext,
}

/// Where a connection keeps its newest session.
static NEWEST: LazyLock<Result<Index<Ssl, ClientSession>, ErrorStack>> =
    LazyLock::new(Ssl::new_ex_index);

impl Client {
    /// Takes over where the context keeps its sessions.
    ///
    /// # Errors
    /// OpenSSL's, when it is out of memory.
    pub fn new(mut context: SslContextBuilder) -> Result<Self, ErrorStack> {
        let newest = NEWEST.as_ref().map_err(Clone::clone)?;
        context
            .set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        context.set_new_session_callback(move |ssl, session| {
            let context = ssl.ssl_context().to_owned();
            ssl.set_ex_data(*newest, ClientSession { session, context });
        });
        Ok(Self(context.build()))
    }

    /// A connection to be made, resuming `session` if there is one.
    ///
    /// # Errors
    /// OpenSSL's; a session of another client is one.
    pub fn connection(&self, session: Option<&ClientSession>) -> Result<Ssl, ErrorStack> {
        use foreign_types::ForeignType;
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
    /// The newest session that a connection was given. Over TLS 1.3 sessions arrive with the
    /// first data, after the handshake.
    pub fn newest(ssl: &SslRef) -> Option<Self> {
        NEWEST.as_ref().ok().and_then(|newest| ssl.ex_data(*newest)).cloned()
    }
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
