//! Servers of two machines, whose agents share sessions and ticket keys over a real Valkey or Redis.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rejoin_cache::Hints;
use rejoin_cluster::{Agent, ClusterSecret, Settings};
use rejoin_rustls::{Context, ServerSessions, TicketKeys};
use rejoin_store::Store;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::valkey::Valkey;
use rustls::{HandshakeKind, ServerConfig};
use tokio::sync::oneshot;

use crate::pair::{Asks, Site, VERSIONS, connect};

/// A machine: a store, and its agent on a thread. It stops when dropped.
struct Machine {
    store: Arc<Store>,
    agent: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Machine {
    fn start(valkey: &Valkey, number: u8) -> Self {
        let (folder, key) = (valkey.folder.join(number.to_string()), valkey.folder.join("key"));
        std::fs::create_dir_all(&folder).expect("a folder");
        if !key.exists() {
            ClusterSecret::create(&key).expect("a key");
        }
        let text = format!(
            "name = \"web\"\nservers = [\"127.0.0.1:{}\"]\nkey_file = {key:?}\nfolder = {folder:?}\n\
             capacity = \"1MiB\"\ndeadline_ms = 50\n[sessions]\nshards = 1\n",
            valkey.port
        );
        let file = folder.join("cluster.toml");
        std::fs::write(&file, text).expect("written");
        let agent = Agent::new(Settings::read(&file).expect("settings")).expect("an agent");
        let store = Arc::clone(agent.store());
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let until = async { drop(stopped.await) };
            runtime.expect("a runtime").block_on(agent.run(until, |_| {})).expect("it works");
        });
        wait_until("the agent's ring", || {
            let is_linked = store.mailbox().is_some_and(|mailbox| mailbox.facts().is_linked);
            is_linked && store.ring().ok().flatten().is_some()
        });
        Self { store, agent: Some((stop, thread)) }
    }

    fn with_sessions(&self, mut config: ServerConfig) -> Arc<ServerConfig> {
        let store = Arc::clone(&self.store);
        config.session_storage = ServerSessions::shared(store, context(), 60_000, Hints::Never);
        Arc::new(config)
    }

    fn with_tickets(&self, mut config: ServerConfig) -> Arc<ServerConfig> {
        let keys = TicketKeys::shared(&self.store, None).expect("keys");
        config.ticketer = keys.ticketer(context());
        Arc::new(config)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.agent.take() {
            drop(stop);
            thread.join().expect("no panic");
        }
    }
}

fn context() -> Context {
    Context::new(b"shop").expect("a name")
}

#[test]
fn a_session_resumes_at_another_machine() {
    for version in VERSIONS {
        let (valkey, site) = (Valkey::start(&[]), Site::new(version));
        let [one, other] = [1, 2].map(|number| Machine::start(&valkey, number));
        let client = site.client(None);
        let full = connect(&one.with_sessions(site.server(Asks::Nobody)), &client, None);
        assert_eq!(full, Ok(HandshakeKind::Full));
        let stored = one.store.cache().counters().stored.to_string();
        wait_until("it is known in the cluster", || {
            valkey.say("HLEN rejoin:{web.0}:values") == stored
        });
        let there = connect(&other.with_sessions(site.server(Asks::Nobody)), &client, None);
        assert_eq!(there, Ok(HandshakeKind::Resumed), "{version:?}");
    }
}

#[test]
fn a_ticket_resumes_at_another_machine() {
    for version in VERSIONS {
        let (valkey, site) = (Valkey::start(&[]), Site::new(version));
        let [one, other] = [1, 2].map(|number| Machine::start(&valkey, number));
        let client = site.client(None);
        for (machine, kind) in [
            (&one, HandshakeKind::Full),
            (&other, HandshakeKind::Resumed),
            (&one, HandshakeKind::Resumed),
        ] {
            let server = machine.with_tickets(site.server(Asks::Nobody));
            assert_eq!(connect(&server, &client, None), Ok(kind), "{version:?}");
        }
    }
}
