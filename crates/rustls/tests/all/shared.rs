//! Sessions in memory that processes share.

use std::sync::Arc;
use std::time::Duration;

use rejoin_cache::{
    Capacity, ContextTag, Counters, Hints, IdSeal, NewSession, SecretBytes, SessionId, Settings,
};
use rejoin_rustls::{Connection, Context, ServerSessions, now_ms};
use rejoin_store::Store;
use rejoin_testkit::folder::Folder;
use rustls::server::StoresServerSessions;
use rustls::{HandshakeKind, ServerConfig};

use crate::pair::{Asks, Site, VERSIONS, connect, connect_to};

fn context() -> Context {
    Context::new(b"shop").expect("a name")
}

/// Opens the store as another process would.
fn open(folder: &Folder) -> Arc<Store> {
    let settings = Settings::new(Capacity::Sessions(100));
    let name = "shop".parse().expect("a name");
    Arc::new(Store::open(folder, &name, Some(&settings)).expect("a store"))
}

fn counters(folder: &Folder) -> Counters {
    open(folder).cache().counters()
}

/// Returns a server as another process would have it.
fn server(folder: &Folder, mut config: ServerConfig, context: Context) -> Arc<ServerConfig> {
    let sessions = ServerSessions::shared(open(folder), context, 60_000, Hints::Never);
    config.session_storage = sessions;
    Arc::new(config)
}

#[test]
fn a_session_resumes_at_another_server_and_after_a_restart() {
    for version in VERSIONS {
        let (folder, site) = (Folder::new(), Site::new(version));
        let start = || server(&folder, site.server(Asks::Nobody), context());
        let (one, client) = (start(), site.client(None));
        assert_eq!(connect(&one, &client, None), Ok(HandshakeKind::Full));
        assert_eq!(connect(&start(), &client, None), Ok(HandshakeKind::Resumed), "{version:?}");
        drop(one);
        assert_eq!(connect(&start(), &client, None), Ok(HandshakeKind::Resumed), "{version:?}");
        assert_eq!(counters(&folder).hits, 2);
    }
}

#[test]
fn another_context_or_name_does_not_resume_it() {
    for version in VERSIONS {
        let (folder, site) = (Folder::new(), Site::new(version));
        let start = |context| server(&folder, site.server(Asks::Nobody), context);
        let other = Context::new(b"forum").expect("a name");
        let client = site.client(None);
        let shop = start(context());
        assert_eq!(connect(&shop, &client, None), Ok(HandshakeKind::Full));
        assert_eq!(connect(&start(other), &client, None), Ok(HandshakeKind::Full), "{version:?}");
        assert_eq!(connect_to("other.test", &shop, &client, None), Ok(HandshakeKind::Full));
    }
}

#[test]
fn a_certificate_is_not_got_around_by_a_session() {
    for version in VERSIONS {
        let (folder, site) = (Folder::new(), Site::new(version));
        let start = |asks, context| server(&folder, site.server(asks), context);
        let (open, strict) = (
            start(Asks::Nobody, context()),
            start(Asks::Everybody, context().asking(["ca", "everybody"])),
        );
        // A client that resumed there would never have shown one.
        let nameless = site.client(None);
        assert_eq!(connect(&open, &nameless, None), Ok(HandshakeKind::Full));
        assert!(connect(&strict, &nameless, None).is_err(), "{version:?}");
        // Nor may one resume where others are believed.
        let named = site.client(Some(&site.certificate()));
        let lax = start(Asks::Anybody, context().asking(["ca", "anybody"]));
        assert_eq!(connect(&lax, &named, None), Ok(HandshakeKind::Full));
        assert_eq!(connect(&strict, &named, None), Ok(HandshakeKind::Full), "{version:?}");
        let again = start(Asks::Everybody, context().asking(["ca", "everybody"]));
        assert_eq!(connect(&again, &named, None), Ok(HandshakeKind::Resumed), "{version:?}");
    }
}

#[test]
fn a_context_that_asks_nobody_keeps_no_session_with_a_certificate() {
    for version in VERSIONS {
        let (folder, site) = (Folder::new(), Site::new(version));
        let wrong = server(&folder, site.server(Asks::Everybody), context());
        let named = site.client(Some(&site.certificate()));
        for _ in 0..2 {
            assert_eq!(connect(&wrong, &named, None), Ok(HandshakeKind::Full), "{version:?}");
        }
        assert_eq!(counters(&folder).stored, 0, "{version:?}");
    }
}

#[test]
fn in_a_scope_a_client_authenticates_again_after_a_time() {
    for version in VERSIONS {
        let (folder, site) = (Folder::new(), Site::new(version));
        let context = context().resumable_for(Duration::from_secs(2));
        let server = server(&folder, site.server(Asks::Nobody), context);
        let client = site.client(None);
        let connect = || connect(&server, &client, Some(&Connection::default()));
        assert_eq!(connect(), Ok(HandshakeKind::Full));
        let began = std::time::Instant::now();
        // Each resumption over TLS 1.3 renews the session, and does not renew this time.
        let kinds = std::iter::from_fn(|| {
            std::thread::sleep(Duration::from_millis(100));
            Some(connect().expect("a handshake"))
        });
        let until_full = kinds.take(100).take_while(|kind| *kind == HandshakeKind::Resumed).count();
        let took = began.elapsed();
        assert!(
            (1..100).contains(&until_full) && took > Duration::from_secs(2),
            "{until_full} in {took:?}"
        );
    }
}

/// A session in the form of rustls: without a name, of TLS 1.3, with a secret of two bytes.
const SESSION: [u8; 25] =
    [0, 3, 4, 0x13, 1, 2, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Neither a process that can write to the memory, nor one with another rustls, makes ours take other bytes for a secret:
/// that would fail the handshake.
#[test]
fn what_somebody_else_wrote_is_not_resumed() {
    let folder = Folder::new();
    let store = open(&folder);
    let sessions = ServerSessions::shared(Arc::clone(&store), context(), 60_000, Hints::Never);
    assert!(!sessions.put(vec![9; 32], vec![2; 25]), "no session of rustls");
    assert!(sessions.put(vec![9; 32], SESSION.to_vec()));

    let label = [b"rustls 0.23", &[4][..], b"shop"].concat();
    let tag = ContextTag::of(&label, &store.id_key().map(|byte| byte ^ 0x5c));
    let (id, mut value) = (SessionId::new(&[9; 32]).expect("an id"), SecretBytes::default());
    assert!(store.cache().peek(now_ms(), &id, tag, &mut value));
    let write = |value: &[u8]| {
        let new = NewSession::new(id, value, now_ms() + 60_000, tag);
        store.cache().insert(now_ms(), &new).expect("room");
        sessions.take(id.as_bytes())
    };
    assert_eq!(write(&value), Some(SESSION.to_vec()));
    for at in 0..value.len() {
        let mut altered = value.to_vec();
        altered[at] ^= 1;
        assert_eq!(write(&altered), None, "byte {at}");
    }
    let mut other_form = SecretBytes::from([&value[..4], &SESSION, &[0]].concat());
    IdSeal::new(*store.id_key()).seal_value(&id, &label, &mut other_form);
    assert_eq!(write(&other_form), None);
}

#[test]
fn a_client_hello_full_of_ids_costs_few_lookups() {
    let folder = Folder::new();
    let sessions = ServerSessions::shared(open(&folder), context(), 60_000, Hints::Never);
    Connection::default().scope(|| {
        for id in 0..200 {
            assert_eq!(sessions.take(&[id; 32]), None);
        }
    });
    assert_eq!(counters(&folder).misses, 8);
}
