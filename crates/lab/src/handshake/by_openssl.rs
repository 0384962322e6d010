//! A pair by the system's OpenSSL.

use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::ssl::{
    ShutdownState, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode,
    SslStream, SslVerifyMode,
};
use rejoin_cache::{Cache, Hints};
use rejoin_openssl::{Client, ClientSession, ServerSessions};

use super::chains::{Chains, NAME};
use super::pair::{Connected, Pair, Watch};
use super::{Kept, Suite, cache_settings};
use crate::Error;
use crate::over_memory::{Pipe, context, failed, shake_hands};

/// Both sides, and the client's session.
pub(super) struct OpenSslPair {
    pub(super) server: SslContext,
    client: Client,
    session: Option<ClientSession>,
}

impl OpenSslPair {
    pub(super) fn new(chains: &Chains, suite: Suite, kept: Kept) -> Result<Self, Error> {
        let Suite { versions, client_certificates, .. } = suite;
        let mut server = context(SslMethod::tls_server(), versions)?;
        chains.server.install(&mut server)?;
        keep(&mut server, kept)?;
        let mut client = context(SslMethod::tls_client(), versions)?;
        client.set_cert_store(chains.store()?);
        client.set_verify(SslVerifyMode::PEER);
        if client_certificates {
            server.set_cert_store(chains.store()?);
            server.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
            chains.client.install(&mut client)?;
        }
        Ok(Self { server: server.build(), client: Client::new(client), session: None })
    }

    /// Verifies the server and its name.
    fn client(&self, resumes: bool, pipe: Pipe) -> Result<SslStream<Pipe>, ErrorStack> {
        let session = self.session.as_ref().filter(|_| resumes);
        let mut ssl = self.client.connection(session)?;
        ssl.set_hostname(NAME)?;
        ssl.param_mut().set_host(NAME)?;
        SslStream::new(ssl, pipe)
    }
}

/// Where sessions are kept from one connection to the next.
fn keep(server: &mut SslContextBuilder, kept: Kept) -> Result<(), Error> {
    const ID_CONTEXT: &[u8] = b"rejoin";
    match kept {
        Kept::Cache => {
            let cache = Cache::new(&cache_settings(), [0; 16], rejoin_openssl::now_ms())?;
            // No other process sees these sessions.
            ServerSessions::new(Arc::new(cache), [0; 16], Hints::Never)
                .attach(server, ID_CONTEXT)?;
        }
        Kept::Tickets => {
            server.set_session_id_context(ID_CONTEXT)?;
            server.set_session_cache_mode(SslSessionCacheMode::OFF);
        }
        Kept::OpenSsl => {
            server.set_session_id_context(ID_CONTEXT)?;
            server.set_session_cache_mode(SslSessionCacheMode::SERVER);
            server.set_options(SslOptions::NO_TICKET);
        }
    }
    Ok(())
}

impl Pair for OpenSslPair {
    fn connect(&mut self, resumes: bool, watch: &Watch) -> Result<Connected, Error> {
        let (ours, theirs) = Pipe::pair();
        let (mut server_meter, mut client_meter) = (watch.meter(), watch.meter());
        let mut client = client_meter.time(|| self.client(resumes, theirs))?;
        let mut server = server_meter.time(|| SslStream::new(Ssl::new(&self.server)?, ours))?;
        let connect = || client_meter.time(|| client.connect());
        if !shake_hands(connect, || server_meter.time(|| server.accept()))? {
            return Err(failed("no end of a handshake"));
        }
        // Tickets come after the handshake; there is nothing else to be read.
        let _ = client_meter.time(|| client.ssl_read(&mut [0]));
        let resumed = server.ssl().session_reused() && client.ssl().session_reused();
        self.session = ClientSession::newest(client.ssl());
        let sent = (server.get_ref().sent_bytes(), client.get_ref().sent_bytes());
        server_meter.time(|| end(server));
        client_meter.time(|| end(client));
        Ok(Connected {
            resumed,
            server: server_meter.side(sent.0),
            client: client_meter.side(sent.1),
        })
    }
}

/// Sessions of connections that are not closed would not be used again.
fn end(mut stream: SslStream<Pipe>) {
    stream.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
}
