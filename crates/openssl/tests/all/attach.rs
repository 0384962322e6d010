//! Handshakes between an attached server and OpenSSL's own client, over sockets, in both versions.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use openssl::ssl::{
    ShutdownState, SniError, Ssl, SslContext, SslMethod, SslStream, SslVerifyMode, SslVersion,
};
use rejoin_cache::{Cache, Capacity, Counters, Fairness, Hints, History, Settings, SourceBy};
use rejoin_openssl::{Client, ClientSession, ServerSessions, now_ms};

use crate::self_signed::certify;
use crate::{VERSIONS, builder, meet};

/// A server and a client of one version.
struct Pair {
    server: SslContext,
    sessions: Arc<ServerSessions>,
    client: Client,
}

fn cache(sessions: u64) -> Arc<Cache> {
    let settings = Settings::new(Capacity::Sessions(sessions));
    Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"))
}

impl Pair {
    fn new(version: SslVersion, hints: Hints) -> Self {
        Self::with(version, &ServerSessions::new(cache(100), [4; 16], hints), b"one")
    }

    fn with(version: SslVersion, sessions: &Arc<ServerSessions>, id_context: &[u8]) -> Self {
        let mut server = builder(SslMethod::tls_server(), version);
        certify(&mut server);
        sessions.attach(&mut server, id_context).expect("attached");
        let mut client = builder(SslMethod::tls_client(), version);
        client.set_verify(SslVerifyMode::NONE);
        let client = Client::new(client);
        Self { server: server.build(), sessions: Arc::clone(sessions), client }
    }

    fn counters(&self) -> Counters {
        self.sessions.store().counters()
    }

    /// Shakes hands, exchanges a byte each way, ends as `end` says. Returns whether it was
    /// resumed, as both sides agree, and the client's newest session.
    fn connect(&self, session: Option<&ClientSession>, end: End) -> (bool, ClientSession) {
        self.connect_to(None, session, end)
    }

    /// Connects like [`Self::connect`], and asks for a host.
    fn connect_to(
        &self,
        host: Option<&str>,
        session: Option<&ClientSession>,
        end: End,
    ) -> (bool, ClientSession) {
        let mut ssl = self.client.connection(session).expect("a client connection");
        host.map_or(Ok(()), |host| ssl.set_hostname(host)).expect("a name");
        let serve = |stream: &mut _| serve(stream, end);
        let (by_server, (by_client, newest)) = meet(&self.server, ssl, serve, |stream| {
            stream.write_all(b"?").expect("a question");
            stream.read_exact(&mut [0]).expect("an answer");
            let newest = ClientSession::newest(stream.ssl());
            match end {
                End::Clean | End::Hint(_) => drop(stream.shutdown()),
                // OpenSSL's client would not use the session of such a connection again.
                End::Unclean => stream.set_shutdown(ShutdownState::SENT),
                End::FatalAlert => {
                    // Not a record that the server can decrypt.
                    let garbage = [&[0x17, 3, 3, 0, 64][..], &[0x55; 64]].concat();
                    stream.get_mut().write_all(&garbage).expect("garbage");
                    // Until the server has sent its alert: one that cannot be sent is not told of.
                    let _ = stream.get_mut().read(&mut [0; 64]);
                    stream.set_shutdown(ShutdownState::SENT);
                }
            }
            (stream.ssl().session_reused(), newest.expect("a session"))
        });
        assert_eq!(by_server, by_client);
        (by_client, newest)
    }
}

/// How a connection ends.
#[derive(Clone, Copy)]
enum End {
    Clean,
    Unclean,
    FatalAlert,
    Hint(u64),
}

fn serve(stream: &mut SslStream<UnixStream>, end: End) -> bool {
    stream.read_exact(&mut [0]).expect("a question");
    if let End::Hint(interval_ms) = end {
        rejoin_openssl::hint(stream.ssl(), interval_ms);
    }
    stream.write_all(b"!").expect("an answer");
    // Until the client closes, cleanly or not, or sends what is no record.
    let _ = stream.read(&mut [0]);
    if matches!(end, End::Clean | End::Hint(_)) {
        let _ = stream.shutdown();
    }
    stream.ssl().session_reused()
}

#[test]
fn a_client_resumes_again_and_again() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Never);
        let (mut resumed, mut session) = pair.connect(None, End::Clean);
        assert!(!resumed);
        for _ in 0..5 {
            (resumed, session) = pair.connect(Some(&session), End::Clean);
            assert!(resumed, "{version:?}");
        }
        let Counters { hits, misses, forged, rejected, .. } = pair.counters();
        assert_eq!((hits, misses, forged, rejected), (5, 0, 0, 0), "{version:?}");
    }
}

#[test]
fn history_follows_the_client_across_ids() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Never);
        let (_, mut session) = pair.connect(None, End::Clean);
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(200));
            (_, session) = pair.connect(Some(&session), End::Clean);
        }
        // At the first hit nothing was known of the client. Those after it end what was learned
        // from the gap before: without history none would have been expected.
        let Counters { hits, predictions, prediction_error_ms, .. } = pair.counters();
        assert_eq!((hits, predictions), (4, 3), "{version:?}");
        assert!(prediction_error_ms < 10_000, "{version:?}: {prediction_error_ms}");
    }
}

#[test]
fn an_unclean_close_forgets_nothing() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Never);
        let (_, session) = pair.connect(None, End::Unclean);
        assert!(pair.connect(Some(&session), End::Clean).0, "{version:?}");
    }
}

#[test]
fn a_fatal_alert_forgets_the_sessions() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Never);
        let (_, session) = pair.connect(None, End::FatalAlert);
        assert_eq!(pair.counters().sessions, 0, "{version:?}");
        assert!(!pair.connect(Some(&session), End::Clean).0, "{version:?}");
    }
}

#[test]
fn ids_of_another_server_never_reach_the_cache() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Never);
        let (_, session) = pair.connect(None, End::Clean);
        let other_key = ServerSessions::new(cache(100), [5; 16], Hints::Never);
        let mut other = Pair::with(version, &other_key, b"one");
        other.client = pair.client;
        assert!(!other.connect(Some(&session), End::Clean).0, "{version:?}");
        let Counters { forged, misses, .. } = other.counters();
        assert_eq!((forged, misses), (1, 0), "{version:?}");
    }
}

#[test]
fn a_session_stays_in_its_context() {
    for version in VERSIONS {
        let one = Pair::new(version, Hints::Never);
        let (_, session) = one.connect(None, End::Clean);
        let mut two = Pair::with(version, &one.sessions, b"two");
        two.client = one.client;
        assert!(!two.connect(Some(&session), End::Clean).0, "{version:?}");
        assert_eq!(two.counters().forged, 1, "{version:?}");
    }
}

/// The server gives its context another name after we were told one: OpenSSL compares the one that
/// the session was made under.
#[test]
fn a_session_that_openssl_declines_is_counted() {
    for version in VERSIONS {
        let one = Pair::new(version, Hints::Never);
        let (_, session) = one.connect(None, End::Clean);
        let mut renamed = builder(SslMethod::tls_server(), version);
        certify(&mut renamed);
        one.sessions.attach(&mut renamed, b"one").expect("attached");
        renamed.set_session_id_context(b"renamed").expect("a context's name");
        let mut two = Pair::with(version, &one.sessions, b"one");
        (two.server, two.client) = (renamed.build(), one.client);
        assert!(!two.connect(Some(&session), End::Clean).0, "{version:?}");
        let counters = two.counters();
        assert_eq!((counters.hits, counters.rejected), (1, 1), "{version:?}");
        assert_eq!((counters.full_handshakes, counters.resumed_handshakes), (2, 0), "{version:?}");
    }
}

/// The servername callback switches to a context that knows nothing of us, or to one that does.
/// The cache loses all sessions and forgets all clients after each visit. Over TLS 1.3 ids tell what is known of their clients.
#[test]
fn a_client_without_a_session_is_known_by_its_id() {
    for version in VERSIONS {
        let pair = Pair::new(version, Hints::Never);
        let visit = |session: Option<&ClientSession>| {
            let ssl = pair.client.connection(session).expect("a client connection");
            let serve = |stream: &mut SslStream<UnixStream>| {
                let resumed = serve(stream, End::Clean);
                (resumed, rejoin_openssl::history(stream.ssl()).expect("attached"))
            };
            let (served, newest) = meet(&pair.server, ssl, serve, |stream| {
                stream.write_all(b"?").expect("a question");
                stream.read_exact(&mut [0]).expect("an answer");
                let newest = ClientSession::newest(stream.ssl()).expect("a session");
                drop(stream.shutdown());
                newest
            });
            pair.sessions.store().clear();
            (served, newest)
        };
        let (_, mut session) = visit(None);
        let mut last = History::default();
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(400));
            let ((resumed, history), newest) = visit(Some(&session));
            assert!(!resumed, "{version:?}");
            (last, session) = (history, newest);
        }
        let known = last.interval().map(|(interval, keeps)| (interval.as_ms(), keeps));
        match version {
            SslVersion::TLS1_3 => {
                let (interval_ms, keeps) = known.expect("three gaps");
                assert!(keeps && (350..2_000).contains(&interval_ms), "{interval_ms} {keeps}");
            }
            _ => assert_eq!(known, None),
        }
    }
}

#[test]
fn a_server_that_switches_contexts_by_name_resumes() {
    for (version, attached) in VERSIONS.into_iter().flat_map(|v| [(v, false), (v, true)]) {
        let sessions = ServerSessions::new(cache(100), [4; 16], Hints::Never);
        let mut other = builder(SslMethod::tls_server(), version);
        certify(&mut other);
        if attached {
            sessions.attach(&mut other, b"other").expect("attached");
        }
        let other = other.build();
        let mut server = builder(SslMethod::tls_server(), version);
        certify(&mut server);
        sessions.attach(&mut server, b"one").expect("attached");
        server.set_servername_callback(move |ssl, _| {
            ssl.set_ssl_context(&other).map_err(|_| SniError::ALERT_FATAL)
        });
        let mut pair = Pair::with(version, &sessions, b"one");
        pair.server = server.build();
        let (_, session) = pair.connect(None, End::Clean);
        let (resumed, session) = pair.connect(Some(&session), End::Clean);
        assert!(resumed, "{version:?} {attached}");
        assert!(pair.connect(Some(&session), End::Clean).0, "{version:?} {attached}");
        assert_eq!(pair.counters().foreign_context, 0, "{version:?} {attached}");
    }
}

#[test]
fn a_session_waits_for_its_hint() {
    for version in VERSIONS {
        for end in [End::Hint(5_000), End::Clean] {
            let pair = Pair::new(version, Hints::Expected);
            let (_, session) = pair.connect(None, end);
            assert!(pair.connect(Some(&session), End::Clean).0, "{version:?}");
        }
    }
}

#[test]
fn a_refused_session_is_a_full_handshake_and_no_more() {
    for version in VERSIONS {
        let sessions = ServerSessions::new(cache(1), [4; 16], Hints::Expected);
        let pair = Pair::with(version, &sessions, b"one");
        let (_, soon) = pair.connect(None, End::Hint(1_000));
        let (_, late) = pair.connect(None, End::Hint(1_000_000));
        assert!(pair.counters().refused_returns_later > 0, "{version:?}");
        assert!(!pair.connect(Some(&late), End::Hint(1_000_000)).0, "{version:?}");
        assert!(pair.connect(Some(&soon), End::Hint(1_000)).0, "{version:?}");
    }
}

#[test]
fn the_clients_of_a_name_get_their_share() {
    let by_name = Some(Fairness { by: SourceBy::Name, percent: 10 });
    for version in VERSIONS {
        let settings = Settings { fairness: by_name, ..Settings::new(Capacity::Sessions(100)) };
        let cache = Cache::new(&settings, [3; 16], now_ms()).expect("valid settings");
        let sessions = ServerSessions::new(Arc::new(cache), [4; 16], Hints::Never);
        let pair = Pair::with(version, &sessions, b"one");
        let unknown = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&unknown);
        sessions.when_sourceless(move |by| {
            assert_eq!(by, SourceBy::Name);
            told.fetch_add(1, Ordering::Relaxed);
        });
        let flood: Vec<ClientSession> =
            (0..40).map(|_| pair.connect_to(Some("flood.example"), None, End::Clean).1).collect();
        assert_eq!(unknown.load(Ordering::Relaxed), 0, "{version:?}");
        assert!(pair.counters().sessions <= 10, "{version:?}: {:?}", pair.counters());
        let again = |session| pair.connect_to(Some("flood.example"), Some(session), End::Clean).0;
        assert!(flood.iter().filter(|session| again(session)).count() <= 10, "{version:?}");
        let nameless: Vec<ClientSession> =
            (0..20).map(|_| pair.connect(None, End::Clean).1).collect();
        assert!(nameless.iter().all(|session| pair.connect(Some(session), End::Clean).0));
        assert_eq!(unknown.load(Ordering::Relaxed), 1, "{version:?}: it is told once");
    }
}

#[test]
fn nine_hundred_forged_identities_cost_no_lookup() {
    let pair = Pair::new(SslVersion::TLS1_3, Hints::Never);
    let (mut ours, theirs) = UnixStream::pair().expect("sockets");
    let server = Ssl::new(&pair.server).expect("a server connection");
    thread::scope(|scope| {
        let served =
            scope.spawn(move || SslStream::new(server, theirs).expect("a stream").accept().is_ok());
        client_hello(900).chunks(16_000).for_each(|part| {
            let length = (part.len() as u16).to_be_bytes();
            let record = [&[0x16, 3, 1][..], &length, part].concat();
            ours.write_all(&record).expect("a record");
        });
        let mut first = [0];
        ours.read_exact(&mut first).expect("an answer");
        ours.shutdown(std::net::Shutdown::Both).expect("an end");
        assert!(!served.join().expect("the server"));
    });
    let Counters { forged, misses, hits, .. } = pair.counters();
    assert_eq!((forged, misses, hits), (900, 0, 0));
    assert!(!pair.connect(None, End::Clean).0, "still serving");
}

/// A TLS 1.3 ClientHello that offers so many made-up sessions.
fn client_hello(identities: usize) -> Vec<u8> {
    let long = |bytes: Vec<u8>| [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
    let extension = |kind: u16, bytes: Vec<u8>| [&kind.to_be_bytes()[..], &long(bytes)].concat();
    let identity = |n: usize| [long(vec![n as u8 ^ 0x5a; 32]), vec![0; 4]].concat();
    let offered = long((0..identities).flat_map(identity).collect());
    let binders = long((0..identities).flat_map(|_| [vec![32], vec![0; 32]].concat()).collect());
    let key_share = [&[0, 29][..], &long(vec![9; 32])].concat();
    let extensions = [
        extension(43, vec![2, 3, 4]),
        extension(10, vec![0, 2, 0, 29]),
        extension(13, vec![0, 4, 8, 4, 4, 3]),
        extension(51, long(key_share)),
        extension(45, vec![1, 1]),
        extension(41, [offered, binders].concat()),
    ]
    .concat();
    let body =
        [vec![3, 3], vec![7; 32], vec![0], vec![0, 2, 0x13, 1], vec![1, 0], long(extensions)]
            .concat();
    let length = (body.len() as u32).to_be_bytes();
    [&[1][..], &length[1..], &body].concat()
}
