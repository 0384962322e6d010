//! Handshakes in memory between a rustls server on the store and a rustls client, in both
//! versions.

use std::sync::Arc;

use rejoin_cache::{Cache, Capacity, Counters, Hints, Settings};
use rejoin_rustls::{Connection, ServerSessions, now_ms};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::StoresServerSessions;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

struct Pair {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    sessions: Arc<ServerSessions>,
}

impl Pair {
    fn new(version: &'static SupportedProtocolVersion, hints: Hints) -> Self {
        let settings = Settings::new(Capacity::Sessions(100));
        let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"));
        let sessions = ServerSessions::new(cache, 60_000, hints);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a pair");
        let certificate = CertificateDer::from(made.cert);
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], PrivateKeyDer::from(key))
            .expect("a certificate");
        server.session_storage = sessions.clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a root");
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { server: Arc::new(server), client: Arc::new(client), sessions }
    }

    /// Shakes hands in the scope of `connection`, if there is one.
    fn connect(&self, connection: Option<&Connection>) -> HandshakeKind {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(Arc::clone(&self.client), name).expect("a client");
        let mut server = ServerConnection::new(Arc::clone(&self.server)).expect("a server");
        let mut wire = Vec::new();
        while client.wants_write() || server.wants_write() {
            while client.wants_write() {
                client.write_tls(&mut wire).expect("in memory");
            }
            receive(&mut wire, |bytes| server.read_tls(bytes));
            match connection {
                Some(connection) => connection.scope(|| server.process_new_packets().map(drop)),
                None => server.process_new_packets().map(drop),
            }
            .expect("a server");
            while server.wants_write() {
                server.write_tls(&mut wire).expect("in memory");
            }
            receive(&mut wire, |bytes| client.read_tls(bytes));
            client.process_new_packets().expect("a client");
        }
        assert_eq!(client.handshake_kind(), server.handshake_kind());
        server.handshake_kind().expect("a handshake")
    }

    fn counters(&self) -> Counters {
        self.sessions.cache().counters()
    }
}

fn receive(wire: &mut Vec<u8>, mut read: impl FnMut(&mut &[u8]) -> std::io::Result<usize>) {
    let mut bytes = &wire[..];
    while !bytes.is_empty() {
        read(&mut bytes).expect("in memory");
    }
    wire.clear();
}

#[test]
fn a_client_resumes_again_and_again() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Never);
        assert_eq!(pair.connect(None), HandshakeKind::Full);
        for _ in 0..5 {
            assert_eq!(pair.connect(None), HandshakeKind::Resumed, "{version:?}");
        }
        assert_eq!(pair.counters().hits, 5);
    }
}

#[test]
fn a_ticket_is_handed_out_once() {
    let pair = Pair::new(&rustls::version::TLS13, Hints::Never);
    assert!(pair.sessions.put(vec![1; 32], vec![2; 150]));
    assert_eq!(pair.sessions.get(&[1; 32]), Some(vec![2; 150]));
    assert_eq!(pair.sessions.take(&[1; 32]), Some(vec![2; 150]));
    assert_eq!(pair.sessions.take(&[1; 32]), None);
    assert!(!pair.sessions.put(vec![1; 33], vec![2; 150]), "no session id is that long");
}

#[test]
fn in_a_scope_history_follows_the_client() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Never);
        for _ in 0..4 {
            pair.connect(Some(&Connection::default()));
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        // At the first hit nothing was known of the client; at the others its last gap was.
        let Counters { hits, predictions, prediction_error_ms, .. } = pair.counters();
        assert_eq!((hits, predictions), (3, 2), "{version:?}");
        assert!(prediction_error_ms < 10_000, "{version:?}: {prediction_error_ms}");
    }
}

#[test]
fn in_a_scope_a_session_waits_for_its_hint() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Expected);
        let connection = Connection::default();
        pair.connect(Some(&connection));
        assert_eq!(pair.counters().sessions, 0, "{version:?}");
        connection.hint(&pair.sessions, 5_000);
        assert!(pair.counters().sessions > 0, "{version:?}");
        assert_eq!(pair.connect(Some(&Connection::default())), HandshakeKind::Resumed);
    }
}

#[test]
fn a_session_whose_hint_never_comes_is_stored_at_the_end() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Expected);
        let connection = Connection::default();
        pair.connect(Some(&connection));
        assert_eq!(pair.counters().sessions, 0, "{version:?}");
        drop(connection);
        assert!(pair.counters().sessions > 0, "{version:?}");
    }
}

#[test]
fn a_forgotten_connection_is_not_resumed() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Never);
        let connection = Connection::default();
        pair.connect(Some(&connection));
        connection.forget(&pair.sessions);
        assert_eq!(pair.counters().sessions, 0, "{version:?}");
        assert_eq!(pair.connect(None), HandshakeKind::Full, "{version:?}");
    }
}
