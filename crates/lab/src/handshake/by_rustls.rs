//! A pair by rustls with aws-lc-rs.

use std::ops::DerefMut;
use std::sync::Arc;

use rejoin_cache::{Cache, Hints};
use rejoin_rustls::{Connection, ServerSessions};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer, kx_group};
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, HandshakeKind, ServerConfig,
    ServerConnection, SideData, SupportedProtocolVersion,
};

use super::chains::{Chains, NAME};
use super::pair::{Connected, Pair, Watch};
use super::{Kept, Suite, cache_settings};
use crate::Error;
use crate::over_memory::{MOST_FLIGHTS, Pipe, failed};
use rejoin_serve::Versions;

/// How long sessions are good, in milliseconds.
const LIFETIME_MS: u64 = 7_200_000;
/// A client's sessions.
const CLIENT_SESSIONS: usize = 8;

/// Both sides; the client's sessions are in its configuration.
pub(super) struct RustlsPair {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl RustlsPair {
    pub(super) fn new(chains: &Chains, suite: Suite, kept: Kept) -> Result<Self, Error> {
        let Suite { versions, client_certificates, .. } = suite;
        let roots = Arc::new(chains.roots()?);
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&versions_of(versions))?
            .with_root_certificates(Arc::clone(&roots));
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&versions_of(versions))?;
        let (client, server) = if client_certificates {
            let (chain, key) = chains.client.for_rustls()?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            let verifier = verifier.map_err(failed)?;
            (client.with_client_auth_cert(chain, key)?, server.with_client_cert_verifier(verifier))
        } else {
            (client.with_no_client_auth(), server.with_no_client_auth())
        };
        let (chain, key) = chains.server.for_rustls()?;
        let mut server = server.with_single_cert(chain, key)?;
        keep(&mut server, kept)?;
        let name = ServerName::try_from(NAME).map_err(failed)?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client), name })
    }

    /// A client without a certificate or a session.
    fn forget(&mut self) {
        let mut client = (*self.client).clone();
        client.resumption = Resumption::in_memory_sessions(CLIENT_SESSIONS);
        self.client = Arc::new(client);
    }
}

/// Where sessions are kept from one connection to the next.
fn keep(server: &mut ServerConfig, kept: Kept) -> Result<(), Error> {
    match kept {
        Kept::Cache => {
            let cache = Cache::new(&cache_settings(), [0; 16], rejoin_rustls::now_ms())?;
            let sessions = ServerSessions::new(Arc::new(cache), LIFETIME_MS, Hints::Never);
            server.session_storage = sessions;
        }
        Kept::Tickets => {
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.ticketer = Ticketer::new()?;
        }
        Kept::OpenSsl => return Err(failed("rustls has no cache of OpenSSL's")),
    }
    Ok(())
}

fn provider() -> Arc<CryptoProvider> {
    let kx_groups = vec![kx_group::X25519, kx_group::SECP256R1];
    Arc::new(CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() })
}

fn versions_of(versions: Versions) -> [&'static SupportedProtocolVersion; 1] {
    match versions {
        Versions::Tls12 => [&rustls::version::TLS12],
        Versions::Tls13 | Versions::Both => [&rustls::version::TLS13],
    }
}

impl Pair for RustlsPair {
    fn connect(&mut self, resumes: bool, watch: &Watch) -> Result<Connected, Error> {
        if !resumes {
            self.forget();
        }
        let (mut ours, mut theirs) = Pipe::pair();
        let (mut server_meter, mut client_meter) = (watch.meter(), watch.meter());
        let (config, name) = (Arc::clone(&self.client), self.name.clone());
        let mut client = client_meter.time(|| ClientConnection::new(config, name))?;
        let visit = Connection::default();
        let config = Arc::clone(&self.server);
        let mut server = server_meter.time(|| ServerConnection::new(config))?;
        for _ in 0..MOST_FLIGHTS {
            client_meter.time(|| advance(&mut client, &mut theirs))?;
            server_meter.time(|| visit.scope(|| advance(&mut server, &mut ours)))?;
        }
        // What was sent last, such as tickets.
        client_meter.time(|| advance(&mut client, &mut theirs))?;
        if client.is_handshaking() || server.is_handshaking() || theirs.has_news() {
            return Err(failed("no end of a handshake"));
        }
        let is_resumed = |kind| kind == Some(HandshakeKind::Resumed);
        let resumed = is_resumed(client.handshake_kind()) && is_resumed(server.handshake_kind());
        server_meter.time(|| drop((server, visit)));
        client_meter.time(|| drop(client));
        Ok(Connected {
            resumed,
            server: server_meter.side(ours.sent_bytes()),
            client: client_meter.side(theirs.sent_bytes()),
        })
    }
}

/// Reads and writes all that there is.
fn advance<C, D>(connection: &mut C, pipe: &mut Pipe) -> Result<(), Error>
where
    C: DerefMut<Target = ConnectionCommon<D>>,
    D: SideData,
{
    while pipe.has_news() {
        connection.read_tls(pipe).map_err(failed)?;
        connection.process_new_packets()?;
    }
    while connection.wants_write() {
        connection.write_tls(pipe).map_err(failed)?;
    }
    Ok(())
}
