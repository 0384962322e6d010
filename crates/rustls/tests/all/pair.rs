//! A rustls client and servers that shake hands in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rejoin_rustls::Connection;
use rejoin_testkit::certificates::rcgen::date_time_ymd;
use rejoin_testkit::certificates::{Authority, Pair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};

pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS12, &rustls::version::TLS13];

/// Makes clients and servers of one authority.
pub(crate) struct Site {
    version: &'static SupportedProtocolVersion,
    authority: Authority,
    server: Pair,
}

/// The demand of a server on clients.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Asks {
    Nobody,
    /// Clients without a certificate may come, too.
    Anybody,
    Everybody,
}

impl Site {
    pub(crate) fn new(version: &'static SupportedProtocolVersion) -> Self {
        let authority = Authority::new();
        let server = authority.issue(&["localhost", "other.test"]);
        Self { version, authority, server }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().to_vec().into()).expect("a root");
        Arc::new(roots)
    }

    pub(crate) fn server(&self, asks: Asks) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[self.version])
            .expect("a version");
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots(), provider);
        let config = match asks {
            Asks::Nobody => config.with_no_client_auth(),
            Asks::Anybody => config.with_client_cert_verifier(
                verifier.allow_unauthenticated().build().expect("a verifier"),
            ),
            Asks::Everybody => {
                config.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        config.with_single_cert(chain(&self.server), key(&self.server)).expect("a certificate")
    }

    pub(crate) fn client(&self, certificate: Option<&Pair>) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[self.version])
            .expect("a version")
            .with_root_certificates(self.roots());
        Arc::new(match certificate {
            Some(pair) => config.with_client_auth_cert(chain(pair), key(pair)).expect("a pair"),
            None => config.with_no_client_auth(),
        })
    }

    /// Writes the server's certificate and key, as `STEM.pem` and `STEM.key`.
    pub(crate) fn write_server(&self, stem: &Path) {
        self.server.write(stem);
    }

    pub(crate) fn certificate(&self) -> Pair {
        self.authority.issue(&["client.test"])
    }

    /// Returns a client's certificate that ends with this second of Unix time.
    pub(crate) fn certificate_until(&self, end_s: u64) -> Pair {
        self.authority.issue_with(&["client.test"], |parameters| {
            parameters.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(end_s);
        })
    }
}

fn chain(pair: &Pair) -> Vec<CertificateDer<'static>> {
    vec![pair.der.clone().into()]
}

fn key(pair: &Pair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(pair.key_der.clone()).into()
}

/// Shakes hands in the scope of a connection, if there is one.
pub(crate) fn connect(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    connection: Option<&Connection>,
) -> Result<HandshakeKind, rustls::Error> {
    connect_to("localhost", server, client, connection)
}

/// Does the same with a client that asks for this name.
pub(crate) fn connect_to(
    name: &'static str,
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    connection: Option<&Connection>,
) -> Result<HandshakeKind, rustls::Error> {
    let name = ServerName::try_from(name).expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a client");
    let mut server = ServerConnection::new(Arc::clone(server)).expect("a server");
    let mut wire = Vec::new();
    while client.wants_write() || server.wants_write() {
        while client.wants_write() {
            client.write_tls(&mut wire).expect("in memory");
        }
        receive(&mut wire, |bytes| server.read_tls(bytes));
        match connection {
            Some(connection) => connection.scope(|| server.process_new_packets().map(drop)),
            None => server.process_new_packets().map(drop),
        }?;
        while server.wants_write() {
            server.write_tls(&mut wire).expect("in memory");
        }
        receive(&mut wire, |bytes| client.read_tls(bytes));
        client.process_new_packets()?;
    }
    assert_eq!(client.handshake_kind(), server.handshake_kind());
    Ok(server.handshake_kind().expect("a handshake"))
}

fn receive(wire: &mut Vec<u8>, mut read: impl FnMut(&mut &[u8]) -> std::io::Result<usize>) {
    let mut bytes = &wire[..];
    while !bytes.is_empty() {
        read(&mut bytes).expect("in memory");
    }
    wire.clear();
}
