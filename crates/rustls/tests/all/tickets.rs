//! Stateless tickets under keys that rotate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rejoin_cache::{Capacity, Settings};
use rejoin_rustls::{Connection, Context, TicketKeys};
use rejoin_store::Store;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::wait_until;
use rejoin_tickets::{KeyRing, KeySource, SECRET_BYTES, Schedule, TicketEvent};
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::{HandshakeKind, ServerConfig};

use crate::pair::{Asks, Site, VERSIONS, connect, connect_to};

fn context() -> Context {
    Context::new(b"shop").expect("a name")
}

fn open(folder: &Folder) -> Arc<Store> {
    let settings = Settings::new(Capacity::Sessions(100));
    let name = "shop".parse().expect("a name");
    Arc::new(Store::open(folder, &name, Some(&settings)).expect("a store"))
}

/// Returns a server as another process would have it.
fn server(folder: &Folder, config: ServerConfig, context: Context) -> Arc<ServerConfig> {
    let keys = TicketKeys::shared(&open(folder), None).expect("keys");
    with_keys(&keys, config, context)
}

fn with_keys(
    keys: &Arc<TicketKeys>,
    mut config: ServerConfig,
    context: Context,
) -> Arc<ServerConfig> {
    config.ticketer = keys.ticketer(context);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Arc::new(config)
}

fn counts(folder: &Folder) -> HashMap<&'static str, u64> {
    open(folder).ticket_counters().into_iter().collect()
}

#[test]
fn a_ticket_resumes_at_another_server_and_after_a_restart() {
    for version in VERSIONS {
        let (folder, site) = (Folder::new(), Site::new(version));
        let start = || server(&folder, site.server(Asks::Nobody), context());
        let (one, client) = (start(), site.client(None));
        assert_eq!(connect(&one, &client, None), Ok(HandshakeKind::Full));
        assert_eq!(connect(&start(), &client, None), Ok(HandshakeKind::Resumed), "{version:?}");
        drop(one);
        assert_eq!(connect(&start(), &client, None), Ok(HandshakeKind::Resumed), "{version:?}");
        let counts = counts(&folder);
        assert_eq!((counts["tickets_known"], counts["tickets_unknown"]), (2, 0));
        assert!(counts["tickets_issued"] >= 3, "{counts:?}");
    }
}

/// The agent of a machine has not reached Valkey since the cache was made.
#[test]
fn a_ticket_resumes_before_a_clusters_first_ring_has_come_and_after_it() {
    for version in VERSIONS {
        let (folder, site) = (Folder::new(), Site::new(version));
        let (name, settings) =
            ("shop".parse().expect("a name"), Settings::new(Capacity::Sessions(9)));
        let agents = Store::open_for_cluster(&folder, &name, Some(&settings), &[7; 16]);
        let agents = agents.expect("made");
        let start = || {
            let store = Store::open(&folder, &name, None).expect("there");
            let keys = TicketKeys::shared(&Arc::new(store), None).expect("keys");
            with_keys(&keys, site.server(Asks::Nobody), context())
        };
        let (one, client) = (start(), site.client(None));
        assert_eq!(connect(&one, &client, None), Ok(HandshakeKind::Full));
        assert_eq!(connect(&start(), &client, None), Ok(HandshakeKind::Resumed), "{version:?}");
        let mut ring = KeyRing::new(Schedule::default());
        ring.rotate(now_s(), &mut [5; SECRET_BYTES]).expect("a key");
        agents.adopt_ring(&ring, 1).expect("free");
        // A server asks once a second.
        std::thread::sleep(Duration::from_millis(1_100));
        assert_eq!(connect(&one, &client, None), Ok(HandshakeKind::Resumed), "{version:?}");
        assert_eq!(connect(&start(), &client, None), Ok(HandshakeKind::Resumed), "{version:?}");
        let counts: HashMap<_, _> = agents.ticket_counters().into_iter().collect();
        assert_eq!((counts["tickets_unknown"], counts["tickets_keyless"]), (0, 0));
        assert!(counts["tickets_renewed"] >= 1, "{counts:?}");
    }
}

#[test]
fn tickets_of_elsewhere_do_not_resume() {
    for version in VERSIONS {
        let (folder, site) = (Folder::new(), Site::new(version));
        let start = |asks, context| server(&folder, site.server(asks), context);
        let (shop, client) = (start(Asks::Nobody, context()), site.client(None));
        assert_eq!(connect(&shop, &client, None), Ok(HandshakeKind::Full));
        let forum = start(Asks::Nobody, Context::new(b"forum").expect("a name"));
        assert_eq!(connect(&forum, &client, None), Ok(HandshakeKind::Full), "{version:?}");
        assert_eq!(counts(&folder)["tickets_unknown"], 1);
        assert_eq!(connect_to("other.test", &shop, &client, None), Ok(HandshakeKind::Full));
        let strict = start(Asks::Everybody, context().asking(["ca"]));
        assert!(connect(&strict, &client, None).is_err(), "{version:?}");
        // A server that says that it asks nobody, and does: its clients get no ticket.
        let (wrong, named) =
            (start(Asks::Everybody, context()), site.client(Some(&site.certificate())));
        for _ in 0..2 {
            assert_eq!(connect(&wrong, &named, None), Ok(HandshakeKind::Full), "{version:?}");
        }
        let strict_too = start(Asks::Everybody, context().asking(["ca"]));
        assert_eq!(connect(&strict, &named, None), Ok(HandshakeKind::Full));
        assert_eq!(connect(&strict_too, &named, None), Ok(HandshakeKind::Resumed), "{version:?}");
    }
}

#[test]
fn servers_follow_a_revoked_key_within_a_second() {
    let (folder, site) = (Folder::new(), Site::new(&rustls::version::TLS13));
    let (server, store) = (server(&folder, site.server(Asks::Nobody), context()), open(&folder));
    let client = site.client(None);
    assert_eq!(connect(&server, &client, None), Ok(HandshakeKind::Full));
    let key = store.ring().expect("a page").expect("a ring").list(now_s()).next().expect("a key");
    store.rotate_keys(now_s()).expect("a key");
    assert!(store.retire_key(&key.id).expect("a page"));
    // Until then each connection is given another ticket under the old key.
    wait_until("the server follows", || {
        std::thread::sleep(Duration::from_millis(50));
        connect(&server, &client, None) == Ok(HandshakeKind::Full)
    });
    assert_eq!(counts(&folder)["tickets_unknown"], 1);
    assert_eq!(connect(&server, &client, None), Ok(HandshakeKind::Resumed));
}

#[test]
fn in_a_scope_a_client_authenticates_again_after_a_time() {
    let (folder, site) = (Folder::new(), Site::new(&rustls::version::TLS13));
    let context = context().resumable_for(Duration::from_secs(2));
    let server = server(&folder, site.server(Asks::Nobody), context);
    let client = site.client(None);
    let connect = || connect(&server, &client, Some(&Connection::default()));
    assert_eq!(connect(), Ok(HandshakeKind::Full));
    let began = Instant::now();
    let kinds = std::iter::from_fn(|| {
        std::thread::sleep(Duration::from_millis(100));
        Some(connect().expect("a handshake"))
    });
    let until_full = kinds.take(100).take_while(|kind| *kind == HandshakeKind::Resumed).count();
    assert!(
        (1..100).contains(&until_full) && began.elapsed() > Duration::from_secs(2),
        "{until_full}"
    );
    assert_eq!(counts(&folder)["tickets_overdue"], 1);
}

/// A source whose disk never answers.
#[derive(Default)]
struct Slow {
    ring: Mutex<Option<KeyRing>>,
    disk: Mutex<()>,
    looks: AtomicU64,
    events: Mutex<Vec<TicketEvent>>,
}

impl Slow {
    /// Makes keys by a schedule of 12 hours, so many hours ago.
    fn make(&self, ages_h: &[u64]) {
        let schedule = Schedule::new(12 * 3_600, 3_600, 3_600).expect("a schedule");
        let mut ring = KeyRing::new(schedule);
        for age_h in ages_h {
            let mut secret = [*age_h as u8 + 1; SECRET_BYTES];
            ring.rotate(now_s() - age_h * 3_600, &mut secret).expect("room");
        }
        *self.ring.lock().expect("no panic") = Some(ring);
    }

    fn count(&self, event: TicketEvent) -> usize {
        self.events.lock().expect("no panic").iter().filter(|of| **of == event).count()
    }
}

impl KeySource for Slow {
    fn newer(&self, _: u64) -> Option<KeyRing> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.ring.lock().expect("no panic").take()
    }

    fn keep(&self) {
        drop(self.disk.lock());
    }

    fn record(&self, event: TicketEvent) {
        self.events.lock().expect("no panic").push(event);
    }
}

#[test]
fn no_handshake_waits_for_the_disk_and_few_ask_for_keys() {
    let (slow, site) = (Arc::new(Slow::default()), Site::new(&rustls::version::TLS13));
    let disk = slow.disk.lock().expect("no panic");
    slow.make(&[3]);
    let began = Instant::now();
    let keys = TicketKeys::following(slow.clone());
    let server = with_keys(&keys, site.server(Asks::Nobody), context());
    let client = site.client(None);
    assert_eq!(connect(&server, &client, None), Ok(HandshakeKind::Full));
    for _ in 0..50 {
        assert_eq!(connect(&server, &client, None), Ok(HandshakeKind::Resumed));
    }
    let (looks, seconds) = (slow.looks.load(Ordering::Relaxed), began.elapsed().as_secs());
    assert!(looks <= seconds + 2, "{looks} in {seconds} s");
    assert_eq!(server.ticketer.lifetime(), 3_600);

    assert_eq!(slow.count(TicketEvent::Renewed), 0);
    let away = site.client(None);
    assert_eq!(connect(&server, &away, None), Ok(HandshakeKind::Full));
    slow.make(&[3, 2]);
    wait_until("the server has asked for keys", || {
        assert_eq!(connect(&server, &client, None), Ok(HandshakeKind::Resumed));
        slow.ring.lock().expect("no panic").is_none()
    });
    // A client that was away the while has a ticket under the old key, and is given one under the new.
    let renewed = slow.count(TicketEvent::Renewed);
    for _ in 0..2 {
        assert_eq!(connect(&server, &away, None), Ok(HandshakeKind::Resumed));
        assert_eq!(slow.count(TicketEvent::Renewed), renewed + 1);
    }
    drop(disk);
}

#[test]
fn without_a_key_handshakes_are_full() {
    for version in VERSIONS {
        let (empty, site) = (Arc::new(Slow::default()), Site::new(version));
        let keys = TicketKeys::following(empty.clone());
        let server = with_keys(&keys, site.server(Asks::Nobody), context());
        let client = site.client(None);
        for _ in 0..2 {
            assert_eq!(connect(&server, &client, None), Ok(HandshakeKind::Full), "{version:?}");
        }
        assert!(empty.count(TicketEvent::Keyless) >= 2);
    }
}

#[test]
fn made_up_tickets_are_none() {
    let folder = Folder::new();
    let keys = TicketKeys::shared(&open(&folder), None).expect("keys");
    let tickets = keys.ticketer(context());
    for length in [0, 1, 16, 43, 44, 45, 200, 65_535, 70_000] {
        assert_eq!(tickets.decrypt(&vec![7; length]), None, "{length}");
    }
    assert_eq!(tickets.encrypt(b"no session of rustls"), None);
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
}
