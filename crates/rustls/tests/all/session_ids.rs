//! The sessions of TLS 1.2 that a server with tickets has for clients that take none.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use rejoin_cache::{Cache, Capacity, Hints, Settings};
use rejoin_rustls::tokio::Acceptor;
use rejoin_rustls::{Connection, Context, ServerSessions, TicketKeys, now_ms};
use rejoin_store::Store;
use rejoin_testkit::certificates::Pair;
use rejoin_testkit::folder::Folder;
use rustls::client::{Resumption, Tls12Resumption};
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, HandshakeKind, ServerConfig};

use crate::pair::{Asks, Site, connect};

const TWICE: [HandshakeKind; 2] = [HandshakeKind::Full, HandshakeKind::Resumed];

fn site() -> Site {
    Site::new(&rustls::version::TLS12)
}

fn context() -> Context {
    Context::new(b"shop").expect("a name")
}

/// A client that takes no tickets.
fn client(site: &Site, certificate: Option<&Pair>) -> Arc<ClientConfig> {
    let mut client = (*site.client(certificate)).clone();
    let resumption = Resumption::in_memory_sessions(8);
    client.resumption = resumption.tls12_resumption(Tls12Resumption::SessionIdOnly);
    Arc::new(client)
}

/// A server with tickets and with the store that the configuration has, as the acceptor makes it and as a program does
/// without tokio.
fn servers(config: &ServerConfig, context: &Context) -> [Arc<ServerConfig>; 2] {
    let folder = Folder::new();
    let settings = Settings::new(Capacity::Sessions(100));
    let name = "shop".parse().expect("a name");
    let store = Arc::new(Store::open(&folder, &name, Some(&settings)).expect("a store"));
    let ticketer = TicketKeys::shared(&store, None).expect("keys").ticketer(context.clone());
    let acceptor = Acceptor::with_tickets(config.clone(), &ticketer);
    let mut own = config.clone();
    own.session_storage = ticketer.checked(own.session_storage);
    own.ticketer = ticketer;
    [Arc::clone(acceptor.config()), Arc::new(own)]
}

fn expect(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>, kinds: [HandshakeKind; 2]) {
    for kind in kinds {
        assert_eq!(connect(server, client, Some(&Connection::default())), Ok(kind));
    }
}

#[test]
fn a_client_without_tickets_resumes() {
    let site = site();
    let mut config = site.server(Asks::Nobody);
    for server in servers(&config, &context()) {
        expect(&server, &client(&site, None), TWICE);
    }
    // With sessions of ours as the store, too.
    let settings = Settings::new(Capacity::Sessions(100));
    let cache = Arc::new(Cache::new(&settings, [3; 16], now_ms()).expect("valid settings"));
    config.session_storage = ServerSessions::new(cache, 60_000, Hints::Never);
    for server in servers(&config, &context()) {
        expect(&server, &client(&site, None), TWICE);
    }
    // A server that wants none has none.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    for server in servers(&config, &context()) {
        expect(&server, &client(&site, None), [HandshakeKind::Full; 2]);
    }
}

#[test]
fn a_certificate_that_the_context_does_not_ask_for_does_not_resume() {
    let site = site();
    let config = site.server(Asks::Anybody);
    for server in servers(&config, &context()) {
        let named = client(&site, Some(&site.certificate()));
        expect(&server, &named, [HandshakeKind::Full; 2]);
    }
    for server in servers(&config, &context().asking(["ca"])) {
        expect(&server, &client(&site, Some(&site.certificate())), TWICE);
    }
}

#[test]
fn a_session_ends_with_its_clients_certificate_and_after_a_time() {
    const LIFE_S: u64 = 5;
    let now_s = || SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let site = site();
    let longest = Duration::from_secs(LIFE_S);
    let asking = servers(&site.server(Asks::Anybody), &context().asking(["ca"]));
    let bounded = servers(&site.server(Asks::Nobody), &context().resumable_for(longest));
    let certificate = site.certificate_until(now_s() + LIFE_S);
    let asking = asking.map(|server| (server, client(&site, Some(&certificate))));
    let bounded = bounded.map(|server| (server, client(&site, None)));
    for (server, client) in asking.iter().chain(&bounded) {
        expect(server, client, TWICE);
    }
    let made_s = now_s();
    while now_s() <= made_s + LIFE_S {
        thread::sleep(Duration::from_millis(100));
    }
    for (server, client) in &asking {
        let outcome = connect(server, client, None);
        assert!(outcome.is_err(), "{outcome:?}");
    }
    for (server, client) in &bounded {
        assert_eq!(connect(server, client, None), Ok(HandshakeKind::Full));
    }
}
