//! Stateless tickets between servers that share a ring and OpenSSL's own client, over sockets, in
//! both versions.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use openssl::ssl::{
    SniError, SslContext, SslContextBuilder, SslMethod, SslOptions, SslStream, SslVerifyMode,
    SslVersion,
};
use rejoin_cache::{Cache, Capacity, Hints, History, Settings};
use rejoin_openssl::{
    Client, ClientSession, ServerSessions, TicketCounters, TicketHistory, TicketKeys, now_ms,
};
use rejoin_store::{SharedKeys, Store};
use rejoin_testkit::folder::Folder;
use rejoin_tickets::{KeyRing, KeySource, Schedule, TicketEvent};

use crate::self_signed::certify;
use crate::{VERSIONS, builder, meet};

const HOUR_S: u64 = 3_600;

fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
}

/// A ring whose keys were made so many hours ago, the secret of each being its number.
fn ring(made: &[(u64, u8)]) -> KeyRing {
    let mut ring = KeyRing::new(Schedule::default());
    for (hours_ago, key) in made {
        let mut secret = [*key; 32];
        ring.rotate(now_s() - hours_ago * HOUR_S, &mut secret).expect("a key");
    }
    ring
}

fn server(
    version: SslVersion,
    keys: &Arc<TicketKeys>,
    label: &[u8],
    history: TicketHistory,
) -> SslContext {
    let mut server = certified(version);
    keys.attach(&mut server, label, history).expect("attached");
    server.build()
}

fn plain(version: SslVersion, keys: &Arc<TicketKeys>, label: &[u8]) -> SslContext {
    server(version, keys, label, TicketHistory::NotCarried)
}

fn client(version: SslVersion) -> Client {
    let mut client = builder(SslMethod::tls_client(), version);
    client.set_verify(SslVerifyMode::NONE);
    Client::new(client)
}

fn certified(version: SslVersion) -> SslContextBuilder {
    let mut server = builder(SslMethod::tls_server(), version);
    certify(&mut server);
    server
}

/// A connection, as both sides saw it.
struct Met {
    resumed: bool,
    session: ClientSession,
    ticket: Vec<u8>,
    history: Option<History>,
}

/// Shakes hands, exchanges a byte each way, and closes.
fn connect(client: &Client, server: &SslContext, session: Option<&ClientSession>) -> Met {
    connect_to(client, server, session, None)
}

/// Connects like [`connect`], and asks for a host.
fn connect_to(
    client: &Client,
    server: &SslContext,
    session: Option<&ClientSession>,
    host: Option<&str>,
) -> Met {
    let mut ssl = client.connection(session).expect("a client connection");
    host.map_or(Ok(()), |host| ssl.set_hostname(host)).expect("a name");
    let ((by_server, history), met) = meet(server, ssl, serve, |stream| {
        stream.write_all(b"?").expect("a question");
        stream.read_exact(&mut [0]).expect("an answer");
        let session = ClientSession::newest(stream.ssl()).expect("a session");
        let serialised = stream.ssl().session().expect("a session").to_der().expect("its bytes");
        let resumed = stream.ssl().session_reused();
        drop(stream.shutdown());
        Met { resumed, session, ticket: ticket_of(&serialised), history: None }
    });
    assert_eq!(by_server, met.resumed);
    Met { history, ..met }
}

fn serve(stream: &mut SslStream<UnixStream>) -> (bool, Option<History>) {
    stream.read_exact(&mut [0]).expect("a question");
    stream.write_all(b"!").expect("an answer");
    let _ = stream.read(&mut [0]);
    let _ = stream.shutdown();
    (stream.ssl().session_reused(), rejoin_openssl::history(stream.ssl()))
}

/// The ticket, if any, in a session that OpenSSL serialised: `[10] EXPLICIT OCTET STRING`, with lengths of
/// one or two bytes.
fn ticket_of(serialised: &[u8]) -> Vec<u8> {
    let at = (0..serialised.len()).filter(|at| serialised[*at] == 0xaa);
    let mut octets = at.filter_map(|at| {
        let body = |bytes: &[u8]| match *bytes {
            [0x81, length, ..] => Some((2, usize::from(length))),
            [0x82, high, low, ..] => Some((3, usize::from(high) << 8 | usize::from(low))),
            _ => None,
        };
        let (head, length) = body(serialised.get(at + 1..)?)?;
        let inner = serialised.get(at + 1 + head..)?.get(..length)?;
        let (head, length) = body(inner.strip_prefix(&[4])?)?;
        (1 + head + length == inner.len()).then(|| inner[1 + head..].to_vec())
    });
    octets.next_back().unwrap_or_default()
}

#[test]
fn a_ticket_of_one_server_resumes_on_another() {
    for version in VERSIONS {
        let (a, b) = (TicketKeys::new(ring(&[(1, 1)])), TicketKeys::new(ring(&[(1, 1)])));
        let client = client(version);
        let first = connect(&client, &plain(version, &a, b"one"), None);
        assert!(!first.resumed);
        let second = connect(&client, &plain(version, &b, b"one"), Some(&first.session));
        assert!(second.resumed, "{version:?}");
        let renews = u64::from(version == SslVersion::TLS1_3);
        let expected = TicketCounters { known: 1, issued: renews, ..TicketCounters::default() };
        assert_eq!(b.counters(), expected, "{version:?}");
        assert!(a.counters().issued > 0);
    }
}

#[test]
fn a_ticket_stays_in_its_context_and_ring() {
    for version in VERSIONS {
        let keys = TicketKeys::new(ring(&[(1, 1)]));
        let others = TicketKeys::new(ring(&[(1, 2)]));
        let client = client(version);
        let first = connect(&client, &plain(version, &keys, b"one"), None);
        for (keys, label) in [(&keys, b"two"), (&others, b"one")] {
            let met = connect(&client, &plain(version, keys, label), Some(&first.session));
            assert!(!met.resumed, "{version:?}");
            assert_eq!((keys.counters().known, keys.counters().unknown), (0, 1), "{version:?}");
            assert_ne!(met.ticket[..16], first.ticket[..16], "the names differ, too");
        }
    }
}

#[test]
fn a_ticket_stays_under_the_name_it_was_made_under() {
    for version in VERSIONS {
        let keys = TicketKeys::new(ring(&[(1, 1)]));
        let [a, b] = [(); 2].map(|()| plain(version, &keys, b"one"));
        let client = client(version);
        let first = connect_to(&client, &a, None, Some("a.example"));
        for host in [None, Some("b.example")] {
            let met = connect_to(&client, &b, Some(&first.session), host);
            assert!(!met.resumed, "{version:?} {host:?}");
            assert_ne!(met.ticket[..16], first.ticket[..16], "the names differ, too");
        }
        let upper = connect_to(&client, &b, Some(&first.session), Some("A.Example"));
        assert!(upper.resumed, "{version:?}: names have no case");
        assert_eq!((keys.counters().known, keys.counters().unknown), (1, 2), "{version:?}");
    }
}

/// A ring that another process changes.
#[derive(Default)]
struct Elsewhere {
    ring: Mutex<Option<KeyRing>>,
    events: Mutex<Vec<TicketEvent>>,
}

struct Followed(Arc<Elsewhere>);

impl KeySource for Followed {
    fn newer(&self, _now_s: u64) -> Option<KeyRing> {
        self.0.ring.lock().expect("no panic").take()
    }

    fn record(&self, event: TicketEvent) {
        self.0.events.lock().expect("no panic").push(event);
    }
}

#[test]
fn a_ring_that_changes_elsewhere_is_followed() {
    for version in VERSIONS {
        let elsewhere = Arc::new(Elsewhere::default());
        let bring = |ring| *elsewhere.ring.lock().expect("no panic") = Some(ring);
        bring(ring(&[(5, 1)]));
        let keys = TicketKeys::following(Box::new(Followed(Arc::clone(&elsewhere))));
        let server = plain(version, &keys, b"one");
        let client = client(version);
        let first = connect(&client, &server, None);
        bring(ring(&[(5, 1), (2, 2)]));
        // The source is asked again in the next second of the clock.
        let second_s = now_s();
        while now_s() == second_s {
            thread::sleep(Duration::from_millis(5));
        }
        let second = connect(&client, &server, Some(&first.session));
        assert!(second.resumed, "{version:?}");
        assert_ne!(second.ticket[..16], first.ticket[..16], "{version:?}: of the new key");
        let events = elsewhere.events.lock().expect("no panic");
        assert_eq!(events.first(), Some(&TicketEvent::Issued), "{events:?}");
        assert!(events.ends_with(&[TicketEvent::Known, TicketEvent::Renewed, TicketEvent::Issued]));
    }
}

/// A ring, and a disk that is done when the test is.
struct OnSlowDisk(Mutex<Option<KeyRing>>, Arc<Barrier>);

impl KeySource for OnSlowDisk {
    fn newer(&self, _now_s: u64) -> Option<KeyRing> {
        self.0.lock().expect("no panic").take()
    }

    fn keep(&self) {
        self.1.wait();
        self.1.wait();
    }

    fn record(&self, _event: TicketEvent) {}
}

#[test]
fn while_one_handshake_waits_for_the_disk_the_others_have_its_ring() {
    for version in VERSIONS {
        let at_disk = Arc::new(Barrier::new(2));
        let source = OnSlowDisk(Mutex::new(Some(ring(&[(5, 1)]))), Arc::clone(&at_disk));
        let keys = TicketKeys::following(Box::new(source));
        let server = plain(version, &keys, b"one");
        let client = client(version);
        let (first, second) = thread::scope(|scope| {
            scope.spawn(|| connect(&client, &server, None));
            at_disk.wait();
            let first = connect(&client, &server, None);
            let second = connect(&client, &server, Some(&first.session));
            at_disk.wait();
            (first, second)
        });
        assert!(!first.resumed && second.resumed, "{version:?}");
        assert_eq!(keys.counters().keyless, 0, "{version:?}");
    }
}

#[test]
fn a_ticket_of_an_older_key_resumes_and_is_renewed() {
    for version in VERSIONS {
        let keys = TicketKeys::new(ring(&[(5, 1)]));
        let server = plain(version, &keys, b"one");
        let client = client(version);
        let first = connect(&client, &server, None);
        keys.replace(ring(&[(5, 1), (2, 2)]));
        let second = connect(&client, &server, Some(&first.session));
        assert!(second.resumed, "{version:?}");
        assert_ne!(second.ticket[..16], first.ticket[..16], "{version:?}: of the new key");
        assert_eq!(keys.counters().renewed, 1, "{version:?}");
        let third = connect(&client, &server, Some(&second.session));
        assert!(third.resumed, "{version:?}");
        assert_eq!(third.ticket[..16], second.ticket[..16], "{version:?}");
        assert_eq!(keys.counters().renewed, 1, "{version:?}");
    }
}

#[test]
fn a_ticket_of_an_expired_or_retired_key_is_a_full_handshake() {
    for version in VERSIONS {
        let keys = TicketKeys::new(ring(&[(5, 1)]));
        let server = plain(version, &keys, b"one");
        let client = client(version);
        let first = connect(&client, &server, None);
        let mut retired = ring(&[(5, 1), (4, 2)]);
        let id = retired.list(now_s()).next().expect("a key").id;
        assert!(retired.retire(&id));
        for ring in [ring(&[(50, 1), (26, 2)]), retired] {
            keys.replace(ring);
            let met = connect(&client, &server, Some(&first.session));
            assert!(!met.resumed, "{version:?}");
            assert!(connect(&client, &server, Some(&met.session)).resumed, "{version:?}");
        }
        assert_eq!(keys.counters().unknown, 2, "{version:?}");
    }
}

/// A server with OpenSSL's own keys sealed it.
#[test]
fn a_ticket_of_nobody_is_a_full_handshake() {
    for version in VERSIONS {
        let keys = TicketKeys::new(ring(&[(1, 1)]));
        let ours = plain(version, &keys, b"one");
        let mut stranger = certified(version);
        stranger.set_session_id_context(b"one").expect("a context");
        let client = client(version);
        let first = connect(&client, &stranger.build(), None);
        assert!(!connect(&client, &ours, Some(&first.session)).resumed, "{version:?}");
        assert_eq!(keys.counters().unknown, 1, "{version:?}");
    }
}

#[test]
fn an_empty_ring_fails_no_handshake() {
    for version in VERSIONS {
        let keys = TicketKeys::new(KeyRing::new(Schedule::default()));
        let server = plain(version, &keys, b"one");
        let client = client(version);
        let first = connect(&client, &server, None);
        assert!(!connect(&client, &server, Some(&first.session)).resumed, "{version:?}");
        assert!(keys.counters().keyless > 0 && keys.counters().issued == 0, "{version:?}");
        keys.replace(ring(&[(1, 1)]));
        let met = connect(&client, &server, None);
        assert!(connect(&client, &server, Some(&met.session)).resumed, "{version:?}");
    }
}

/// The agent of a machine has not reached Valkey since the cache was made.
#[test]
fn tickets_open_before_a_clusters_first_ring_has_come_and_after_it() {
    for version in VERSIONS {
        let folder = Folder::below(std::path::Path::new(Store::FOLDER));
        let (name, settings) =
            ("web".parse().expect("a name"), Settings::new(Capacity::Sessions(9)));
        let open = || Store::open_for_cluster(&folder, &name, Some(&settings), &[7; 16]);
        let agents = open().expect("made");
        let shared = || {
            let store = Arc::new(open().expect("there"));
            let keys = SharedKeys::open(store, None, None, now_s(), |error| panic!("{error}"));
            TicketKeys::following(Box::new(keys.expect("of the cache")))
        };
        let (one, other) = (shared(), shared());
        let server = |keys, label| plain(version, keys, label);
        let (client, elsewhere) = (client(version), TicketKeys::new(ring(&[(2, 2)])));
        let first = connect(&client, &server(&one, b"one"), None);
        for keys in [&one, &other] {
            let second = connect(&client, &server(keys, b"one"), Some(&first.session));
            assert!(second.resumed, "{version:?}");
        }
        let in_other = connect(&client, &server(&other, b"two"), Some(&first.session));
        assert!(!in_other.resumed, "{version:?}");

        agents.adopt_ring(&ring(&[(30, 1), (2, 2)]), 1).expect("free");
        // Each asks once a second.
        thread::sleep(Duration::from_millis(1_100));
        for keys in [&one, &other, &shared()] {
            let before = keys.counters();
            let back = connect(&client, &server(keys, b"one"), Some(&first.session));
            assert!(back.resumed, "{version:?}");
            assert_eq!(keys.counters().renewed, before.renewed + 1, "{version:?}");
            // The new one is under the cluster's key.
            let next = connect(&client, &server(&elsewhere, b"one"), Some(&back.session));
            assert!(next.resumed, "{version:?}");
            assert_eq!(keys.counters().keyless, 0, "{version:?}");
        }
    }
}

#[test]
fn history_travels_in_the_ticket_from_server_to_server() {
    const GAP: Duration = Duration::from_millis(400);
    let version = SslVersion::TLS1_3;
    let keys = TicketKeys::new(ring(&[(1, 1)]));
    let [a, b] = [(); 2].map(|()| server(version, &keys, b"one", TicketHistory::Carried));
    let client = client(version);
    let (mut before, mut most_ms) = (Instant::now(), 0);
    let mut met = connect(&client, &a, None);
    assert_eq!(met.history, Some(History::default()));
    for (visit, server) in [&b, &a, &b].into_iter().enumerate() {
        thread::sleep(GAP);
        met = connect(&client, server, Some(&met.session));
        // The gap is from handshake to handshake, and as long as a busy machine makes it.
        most_ms = most_ms.max(before.elapsed().as_millis() as u64 + 500);
        before = Instant::now();
        assert!(met.resumed);
        let (interval, agreed) = met.history.and_then(History::interval).expect("a gap is known");
        assert!((390..most_ms).contains(&interval.as_ms()), "{visit}: {interval:?}");
        assert_eq!(agreed, visit > 0, "{visit}");
    }
    let silent = plain(version, &keys, b"one");
    met = connect(&client, &silent, Some(&met.session));
    assert!(met.resumed && met.history == Some(History::default()));
}

/// OpenSSL's client would not use the old ticket again, nor tell its program of the new one.
#[test]
fn over_tls_1_2_a_ticket_is_not_renewed_for_the_sake_of_history() {
    let keys = TicketKeys::new(ring(&[(1, 1)]));
    let server = server(SslVersion::TLS1_2, &keys, b"one", TicketHistory::Carried);
    let client = client(SslVersion::TLS1_2);
    let first = connect(&client, &server, None);
    for _ in 0..3 {
        assert!(connect(&client, &server, Some(&first.session)).resumed);
    }
    assert_eq!(
        keys.counters(),
        TicketCounters { issued: 1, known: 3, ..TicketCounters::default() }
    );
}

/// A server with tickets and a cache, attached in either order.
fn with_cache(version: SslVersion, tickets_first: bool) -> (SslContext, Arc<ServerSessions>) {
    let settings = Settings::new(Capacity::Sessions(10));
    let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("a cache"));
    let sessions = ServerSessions::new(cache, [4; 16], Hints::Never);
    let keys = TicketKeys::new(ring(&[(1, 1)]));
    let mut server = certified(version);
    for tickets in [tickets_first, !tickets_first] {
        if tickets {
            keys.attach(&mut server, b"one", TicketHistory::Carried).expect("attached");
        } else {
            sessions.attach(&mut server, b"one").expect("attached");
        }
    }
    (server.build(), sessions)
}

#[test]
fn with_tickets_nothing_is_stored() {
    for (version, tickets_first) in VERSIONS.into_iter().flat_map(|v| [(v, false), (v, true)]) {
        let (server, sessions) = with_cache(version, tickets_first);
        let client = client(version);
        let first = connect(&client, &server, None);
        let second = connect(&client, &server, Some(&first.session));
        assert!(second.resumed, "{version:?} {tickets_first}");
        let is_known = second.history.and_then(History::interval).is_some();
        assert_eq!(is_known, version == SslVersion::TLS1_3);
        assert_eq!(sessions.store().counters().stored, 0, "{version:?} {tickets_first}");
    }
}

#[test]
fn a_client_that_knows_no_tickets_has_its_session_in_the_cache() {
    let (server, sessions) = with_cache(SslVersion::TLS1_2, false);
    let mut client = builder(SslMethod::tls_client(), SslVersion::TLS1_2);
    client.set_verify(SslVerifyMode::NONE);
    client.set_options(SslOptions::NO_TICKET);
    let client = Client::new(client);
    let first = connect(&client, &server, None);
    assert!(first.ticket.is_empty());
    assert!(connect(&client, &server, Some(&first.session)).resumed);
    assert_eq!(sessions.store().counters().hits, 1);
}

/// The servername callback switches to a context with other keys: tickets are of the first.
#[test]
fn a_server_that_switches_contexts_by_name_resumes() {
    for version in VERSIONS {
        let keys = TicketKeys::new(ring(&[(1, 1)]));
        let other = plain(version, &keys, b"other");
        let mut server = certified(version);
        keys.attach(&mut server, b"one", TicketHistory::NotCarried).expect("attached");
        server.set_servername_callback(move |ssl, _| {
            ssl.set_ssl_context(&other).map_err(|_| SniError::ALERT_FATAL)
        });
        let server = server.build();
        let client = client(version);
        let first = connect(&client, &server, None);
        assert!(connect(&client, &server, Some(&first.session)).resumed, "{version:?}");
        let one = plain(version, &keys, b"one");
        let straight = connect(&client, &one, None);
        assert_eq!(straight.ticket[..16], first.ticket[..16], "{version:?}: the label's");
    }
}

#[test]
fn nothing_prints_a_key() {
    let keys = TicketKeys::new(ring(&[(1, 0xa7)]));
    let _attached = plain(SslVersion::TLS1_3, &keys, b"one");
    let text = format!("{keys:?} {keys:#?}").to_lowercase();
    assert!(text.contains("issued"), "{text}");
    assert!(!text.contains("167, 167") && !text.contains("a7a7"), "{text}");
}
