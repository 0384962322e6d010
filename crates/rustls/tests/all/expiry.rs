//! Sessions whose client's certificate expires.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use rejoin_cache::{Cache, Capacity, Hints, Settings};
use rejoin_rustls::{Context, ServerSessions, TicketKeys, now_ms};
use rejoin_store::Store;
use rejoin_testkit::folder::Folder;
use rustls::server::NoServerSessionStorage;
use rustls::{HandshakeKind, ServerConfig};

use crate::pair::{Asks, Site, VERSIONS, connect};

fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
}

/// Returns servers with tickets, with sessions in shared memory, and with a cache of their own.
fn servers(site: &Site, store: &Arc<Store>) -> [ServerConfig; 3] {
    let context = || Context::new(b"shop").expect("a name").asking(["ca"]);
    let mut all = [(); 3].map(|()| site.server(Asks::Anybody));
    let [tickets, shared, own] = &mut all;
    tickets.ticketer = TicketKeys::shared(store, None).expect("keys").ticketer(context());
    tickets.session_storage = Arc::new(NoServerSessionStorage {});
    shared.session_storage =
        ServerSessions::shared(Arc::clone(store), context(), 60_000, Hints::Never);
    let settings = Settings::new(Capacity::Sessions(100));
    let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"));
    own.session_storage = ServerSessions::new(cache, 60_000, Hints::Never);
    all
}

#[test]
fn a_session_does_not_outlive_its_clients_certificate() {
    const LIFE_S: u64 = 5;
    let folder = Folder::new();
    let settings = Settings::new(Capacity::Sessions(100));
    let name = "shop".parse().expect("a name");
    let store = Arc::new(Store::open(&folder, &name, Some(&settings)).expect("a store"));
    let sites = VERSIONS.map(Site::new);
    let end_s = now_s() + LIFE_S;
    let mut all = Vec::new();
    for (site, version) in sites.iter().zip(VERSIONS) {
        for (at, server) in servers(site, &store).into_iter().enumerate() {
            let client = site.client(Some(&site.certificate_until(end_s)));
            let server = Arc::new(server);
            for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
                assert_eq!(connect(&server, &client, None), Ok(expected), "{version:?} {at}");
            }
            all.push((server, client, at, version));
        }
    }
    while now_s() <= end_s {
        thread::sleep(Duration::from_millis(100));
    }
    for (server, client, at, version) in all {
        let outcome = connect(&server, &client, None);
        assert!(outcome.is_err(), "{version:?} {at}: {outcome:?}");
    }
}
