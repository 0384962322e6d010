//! The agents of two machines with a real Valkey or Redis, and servers that use them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rejoin_cache::{ContextTag, History, NewSession, SecretBytes, SessionId, SessionStore};
use rejoin_cluster::{Agent, Settings, WrappingKey};
use rejoin_store::{Store, Tiered, now_ms};
use rejoin_testkit::cluster::link;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::valkey::Valkey;
use tokio::sync::oneshot;

const CONTEXT: ContextTag = ContextTag(5);
/// The score from which on clients are not expected back.
const NEVER: &str = "4503599627370496";

fn id(number: u8) -> SessionId {
    SessionId::new(&[number; 32]).expect("32 bytes")
}

/// A machine: a cache, its agent on a thread, and a server. It stops when dropped.
struct Machine {
    server: Tiered,
    stop: Option<oneshot::Sender<()>>,
    agent: Option<JoinHandle<()>>,
}

impl Machine {
    fn start(valkey: &Valkey, number: u8) -> Self {
        let folder = valkey.folder.join(number.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        let agent = Agent::new(settings(valkey, &folder)).expect("an agent");
        let name = agent.store().name().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let agent = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let until = async { drop(stopped.await) };
            runtime.expect("a runtime").block_on(agent.run(until, |_| {})).expect("it works");
        });
        let store = Arc::new(Store::open(&folder, &name, None).expect("the agent made it"));
        let is_ready = || {
            let is_linked = store.mailbox().is_some_and(|mailbox| mailbox.facts().is_linked);
            is_linked && store.ring().ok().flatten().is_some()
        };
        wait_until("the agent's ring", is_ready);
        let server = Tiered::new(store);
        Self { server, stop: Some(stop), agent: Some(agent) }
    }

    fn insert(&self, number: u8) {
        let new = NewSession {
            id: id(number),
            value: &[number; 100],
            expires_ms: now_ms() + 3_600_000,
            context: CONTEXT,
            history: History::default(),
            hint_ms: None,
            sibling: false,
            seen_ms: None,
        };
        self.server.insert(now_ms(), &new).expect("there is room");
    }

    fn takes(&self, number: u8, context: ContextTag) -> bool {
        let mut value = SecretBytes::default();
        let found = self.server.take(now_ms(), &id(number), context, &mut value).found;
        assert!(!found || *value == [number; 100]);
        found
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.agent.take().map(JoinHandle::join);
    }
}

fn settings(valkey: &Valkey, folder: &Path) -> Settings {
    let key: PathBuf = valkey.folder.join("key");
    if !key.exists() {
        WrappingKey::create(&key).expect("a key");
    }
    let text = format!(
        "name = \"web\"\nservers = [\"127.0.0.1:{}\"]\nkey_file = {key:?}\nfolder = {folder:?}\n\
         capacity = \"1MiB\"\ndeadline_ms = 50\n[sessions]\nshards = 1\n",
        valkey.port
    );
    let file = folder.join("cluster.toml");
    std::fs::write(&file, text).expect("written");
    Settings::read(&file).expect("settings")
}

fn until_counted(valkey: &Valkey, command: &str, expected: u32) {
    let expected = expected.to_string();
    wait_until(&format!("{command} to be {expected}"), || valkey.say(command) == expected);
}

/// A server with another context must not use a session; the server that made it still can.
#[test]
fn a_session_that_finds_no_place_is_put_back() {
    let valkey = Valkey::start(&[]);
    let [one, other] = [1, 2].map(|number| Machine::start(&valkey, number));
    one.insert(7);
    until_counted(&valkey, "ZCARD rejoin:{web.0}:order", 1);
    assert!(!other.takes(7, ContextTag(6)));
    until_counted(&valkey, "HLEN rejoin:{web.0}:values", 1);
    assert!(one.takes(7, CONTEXT));
    until_counted(&valkey, "HLEN rejoin:{web.0}:values", 0);
    assert!(!one.takes(7, CONTEXT), "it is had once");
}

#[test]
fn whoever_has_a_newer_session_is_not_expected_for_the_older_one() {
    let valkey = Valkey::start(&[]);
    let machine = Machine::start(&valkey, 1);
    machine.insert(7);
    machine.insert(8);
    until_counted(&valkey, "ZCARD rejoin:{web.0}:order", 2);
    let unexpected = format!("ZCOUNT rejoin:{{web.0}}:order {NEVER} +inf");
    assert_eq!(valkey.say(&unexpected), "0");
    machine.server.retire(&id(7));
    until_counted(&valkey, &unexpected, 1);
}

#[tokio::test]
async fn the_cluster_is_told_of_what_was_altered() {
    const ALTER: &str = "\
        for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do \
          local value = redis.call('HGET', KEYS[1], id) \
          local other = string.char((value:byte(-1) + 1) % 256) \
          redis.call('HSET', KEYS[1], id, value:sub(1, -2) .. other) \
        end";
    let valkey = Valkey::start(&[]);
    let [one, other] = [1, 2].map(|number| Machine::start(&valkey, number));
    one.insert(7);
    until_counted(&valkey, "HLEN rejoin:{web.0}:values", 1);
    let mut alter = redis::cmd("EVAL");
    alter.arg(ALTER).arg(1).arg("rejoin:{web.0}:values");
    let () = alter.query_async(&mut link(&valkey).await).await.expect("altered");
    assert!(!other.takes(7, CONTEXT));
    until_counted(&valkey, "HINCRBY rejoin:{web.0}:counts rejected 0", 1);
}
