//! Handshakes in memory between a rustls server on a cache of its own and a rustls client, in both
//! versions.

use std::sync::Arc;
use std::time::SystemTime;

use rejoin_cache::{
    Cache, Capacity, ContextTag, Counters, Fairness, Hints, NewSession, SessionId, Settings,
    SourceBy,
};
use rejoin_rustls::{Connection, ServerSessions, now_ms};
use rustls::server::StoresServerSessions;
use rustls::{ClientConfig, HandshakeKind, ServerConfig, SupportedProtocolVersion};

use crate::pair::{Asks, Site, VERSIONS, connect};

struct Pair {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    cache: Arc<Cache>,
    sessions: Arc<ServerSessions>,
}

impl Pair {
    fn new(version: &'static SupportedProtocolVersion, hints: Hints) -> Self {
        let settings = Settings::new(Capacity::Sessions(100));
        let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"));
        let sessions = ServerSessions::new(Arc::clone(&cache), 60_000, hints);
        let site = Site::new(version);
        let mut server = site.server(Asks::Nobody);
        server.session_storage = sessions.clone();
        Self { server: Arc::new(server), client: site.client(None), cache, sessions }
    }

    /// Shakes hands in the scope of `connection`, if there is one.
    fn connect(&self, connection: Option<&Connection>) -> HandshakeKind {
        connect(&self.server, &self.client, connection).expect("a handshake")
    }

    fn counters(&self) -> Counters {
        self.cache.counters()
    }
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

/// TLS 1.3 makes a new session with a new lifetime at every resumption.
#[test]
fn renewal_comes_to_an_end() {
    const DAY_S: u64 = 24 * 3_600;
    let pair = Pair::new(&rustls::version::TLS13, Hints::Never);
    let now_s = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let id = SessionId::new(&[1; 32]).expect("an id");
    for (days, is_found) in [(6, true), (8, false)] {
        // The time of the full handshake comes first.
        let authenticated_s = (now_s - days * DAY_S) as u32;
        let value = [&authenticated_s.to_le_bytes()[..], &[2; 150]].concat();
        let new = NewSession::new(id, &value, now_ms() + 60_000, ContextTag(0));
        pair.cache.insert(now_ms(), &new).expect("room");
        assert_eq!(pair.sessions.get(&[1; 32]).is_some(), is_found, "after {days} days");
    }
}

#[test]
fn a_source_gets_its_share() {
    let fairness = Some(Fairness { by: SourceBy::Address, percent: 10 });
    let settings = Settings { fairness, ..Settings::new(Capacity::Sessions(100)) };
    let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"));
    let sessions = ServerSessions::new(Arc::clone(&cache), 60_000, Hints::Never);
    let come = |from: [u8; 4], ids: std::ops::Range<u8>| {
        for id in ids {
            let connection = Connection::default();
            connection.comes_from(&SourceBy::network(from.into()));
            connection.scope(|| sessions.put(vec![id; 32], vec![id; 150]));
        }
        cache.counters().sessions
    };
    assert_eq!(come([192, 0, 2, 1], 0..40), 10);
    assert_eq!(come([192, 0, 3, 1], 40..45), 15);
    assert_eq!(come([192, 0, 2, 77], 45..60), 15, "another address of the first network");
    assert!(sessions.get(&[44; 32]).is_some());
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
        connection.hint(5_000);
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
        connection.forget();
        assert_eq!(pair.counters().sessions, 0, "{version:?}");
        assert_eq!(pair.connect(None), HandshakeKind::Full, "{version:?}");
    }
}
