//! The acceptor for servers on tokio.

use std::sync::Arc;
use std::time::Duration;

use rejoin_cache::{Cache, Capacity, Counters, Fairness, Hints, Settings, SourceBy};
use rejoin_rustls::tokio::{Acceptor, TlsStream};
use rejoin_rustls::{Context, ServerSessions, TicketKeys, now_ms};
use rejoin_store::Store;
use rejoin_testkit::folder::Folder;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{LazyConfigAcceptor, TlsConnector};

use crate::pair::{Asks, Site, VERSIONS};

struct Server {
    acceptor: Acceptor,
    cache: Arc<Cache>,
    client: Arc<ClientConfig>,
}

impl Server {
    fn new(version: &'static SupportedProtocolVersion, hints: Hints) -> Self {
        Self::with(version, hints, &Settings::new(Capacity::Sessions(100)))
    }

    fn with(version: &'static SupportedProtocolVersion, hints: Hints, settings: &Settings) -> Self {
        let cache = Arc::new(Cache::new(settings, [3; 16], now_ms()).expect("valid settings"));
        let sessions = ServerSessions::new(Arc::clone(&cache), 60_000, hints);
        let site = Site::new(version);
        let acceptor = Acceptor::with_sessions(site.server(Asks::Nobody), &sessions);
        Self { acceptor, cache, client: site.client(None) }
    }

    /// Shakes hands, and lets the server say something.
    async fn connect(&self) -> (HandshakeKind, TlsStream<DuplexStream>) {
        connect(&self.acceptor, &self.client).await
    }

    fn counters(&self) -> Counters {
        self.cache.counters()
    }
}

async fn connect(
    acceptor: &Acceptor,
    client: &Arc<ClientConfig>,
) -> (HandshakeKind, TlsStream<DuplexStream>) {
    connect_from(None, acceptor, client).await
}

/// The same for a client of a source.
async fn connect_from(
    source: Option<&[u8]>,
    acceptor: &Acceptor,
    client: &Arc<ClientConfig>,
) -> (HandshakeKind, TlsStream<DuplexStream>) {
    let (near, far) = duplex(64 * 1_024);
    let serve = async {
        let accepted = match source {
            Some(source) => acceptor.accept_from(far, source).await,
            None => acceptor.accept(far).await,
        };
        let mut stream = accepted.expect("a handshake");
        stream.write_all(b"hello").await.expect("a client");
        stream.flush().await.expect("a client");
        stream
    };
    tokio::join!(ask(near, client), serve)
}

async fn ask(near: DuplexStream, client: &Arc<ClientConfig>) -> HandshakeKind {
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(Arc::clone(client));
    let mut stream = connector.connect(name, near).await.expect("a handshake");
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).await.expect("a server");
    stream.get_ref().1.handshake_kind().expect("a handshake")
}

#[tokio::test]
async fn history_follows_the_client_and_handshakes_are_counted() {
    for version in VERSIONS {
        let server = Server::new(version, Hints::Never);
        for at in 0..4 {
            let (kind, _) = server.connect().await;
            let expected = if at == 0 { HandshakeKind::Full } else { HandshakeKind::Resumed };
            assert_eq!(kind, expected, "{version:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let counters = server.counters();
        assert_eq!((counters.full_handshakes, counters.resumed_handshakes), (1, 3));
        // At the first hit nothing was known of the client; at the others its last gap was.
        assert_eq!((counters.hits, counters.predictions), (3, 2), "{version:?}");
    }
}

/// A client without a session, and like it no other.
fn newcomer(server: &Server) -> Arc<ClientConfig> {
    let mut client = (*server.client).clone();
    client.resumption = rustls::client::Resumption::disabled();
    Arc::new(client)
}

#[tokio::test]
async fn a_source_gets_its_share_and_nobody_elses() {
    let fairness = Some(Fairness { by: SourceBy::Address, percent: 10 });
    let settings = Settings { fairness, ..Settings::new(Capacity::Sessions(100)) };
    for version in VERSIONS {
        let server = Server::with(version, Hints::Never, &settings);
        let [honest, flood] =
            [[192, 0, 2, 1], [192, 0, 3, 1]].map(|of| SourceBy::network(of.into()));
        connect_from(Some(&honest), &server.acceptor, &server.client).await;
        let of_honest = server.counters().sessions;
        for _ in 0..20 {
            connect_from(Some(&flood), &server.acceptor, &newcomer(&server)).await;
        }
        assert_eq!(server.counters().sessions, of_honest + 10, "{version:?}");
        let (kind, _) = connect_from(Some(&honest), &server.acceptor, &server.client).await;
        assert_eq!(kind, HandshakeKind::Resumed, "{version:?}");
    }
}

/// Handshakes whose steps alternate on one thread are kept apart.
#[tokio::test]
async fn clients_that_come_together_are_told_apart() {
    let server = Server::new(&rustls::version::TLS13, Hints::Never);
    let own = |_| {
        let mut own = (*server.client).clone();
        own.resumption = rustls::client::Resumption::in_memory_sessions(8);
        Arc::new(own)
    };
    let clients: Vec<_> = (0..8).map(own).collect();
    for _ in 0..4 {
        let all = clients.iter().map(|client| connect(&server.acceptor, client));
        join(all.collect()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let counters = server.counters();
    assert_eq!((counters.hits, counters.predictions), (3 * 8, 2 * 8));
}

/// Polls all of them in turn.
async fn join<F: Future>(futures: Vec<F>) {
    let mut left: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|task| {
        left.retain_mut(|future| future.as_mut().poll(task).is_pending());
        if left.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn a_session_waits_for_its_hint_or_for_the_end() {
    for version in VERSIONS {
        let server = Server::new(version, Hints::Expected);
        let (_, stream) = server.connect().await;
        assert_eq!(server.counters().sessions, 0, "{version:?}");
        stream.connection().hint(5_000);
        assert!(server.counters().sessions > 0, "{version:?}");

        let server = Server::new(version, Hints::Expected);
        let (_, stream) = server.connect().await;
        drop(stream);
        assert!(server.counters().sessions > 0, "{version:?}");
    }
}

#[tokio::test]
async fn a_server_that_chooses_by_name_counts_and_learns_too() {
    for version in VERSIONS {
        let server = Server::new(version, Hints::Never);
        for _ in 0..4 {
            let (near, far) = duplex(64 * 1_024);
            let serve = async {
                let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), far);
                let start = hello.await.expect("a ClientHello");
                assert_eq!(start.client_hello().server_name(), Some("localhost"));
                let mut stream = server.acceptor.accept_started(start).await.expect("a handshake");
                stream.write_all(b"hello").await.expect("a client");
                stream.flush().await.expect("a client");
            };
            tokio::join!(ask(near, &server.client), serve);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let counters = server.counters();
        assert_eq!((counters.full_handshakes, counters.resumed_handshakes), (1, 3));
        assert_eq!((counters.hits, counters.predictions), (3, 2), "{version:?}");
    }
}

#[tokio::test]
async fn handshakes_with_tickets_are_counted_in_the_store_of_the_keys() {
    for version in VERSIONS {
        let (folder, site) = (Folder::new(), Site::new(version));
        let settings = Settings::new(Capacity::Sessions(100));
        let name = "shop".parse().expect("a name");
        let store = Arc::new(Store::open(&folder, &name, Some(&settings)).expect("a store"));
        let keys = TicketKeys::shared(&store, None).expect("keys");
        let tickets = keys.ticketer(Context::new(b"shop").expect("a name"));
        let acceptor = Acceptor::with_tickets(site.server(Asks::Nobody), &tickets);
        let client = site.client(None);
        for _ in 0..3 {
            connect(&acceptor, &client).await;
        }
        let counters = store.cache().counters();
        assert_eq!((counters.full_handshakes, counters.resumed_handshakes), (1, 2));
    }
}

#[tokio::test]
async fn what_breaks_the_protocol_is_not_resumed() {
    for version in VERSIONS {
        let server = Server::new(version, Hints::Never);
        let (near, far) = duplex(64 * 1_024);
        let client = async {
            let name = ServerName::try_from("localhost").expect("a name");
            let connector = TlsConnector::from(Arc::clone(&server.client));
            let mut stream = connector.connect(name, near).await.expect("a handshake");
            stream.read_u8().await.expect("a server");
            let (mut io, _) = stream.into_inner();
            io.write_all(&[23, 3, 3, 0, 32]).await.expect("a server");
            io.write_all(&[7; 32]).await.expect("a server");
            io
        };
        let serve = async {
            let mut stream = server.acceptor.accept(far).await.expect("a handshake");
            assert!(server.counters().sessions > 0);
            stream.write_u8(7).await.expect("a client");
            stream.flush().await.expect("a client");
            stream.read_u8().await.expect_err("no record");
        };
        tokio::join!(client, serve);
        assert_eq!(server.counters().sessions, 0, "{version:?}");
    }
}
