//! The agents of two machines with a real Valkey or Redis, and servers that use them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rejoin_cache::{ContextTag, NewSession, SecretBytes, SessionId, SessionStore};
use rejoin_cluster::{
    Agent, ClusterKeys, ClusterSecret, Error, Health, HealthFacts as Facts, News, RingRecord,
    SentinelSettings, Sessions, Settings,
};
use rejoin_store::{Store, Tiered, now_ms};
use rejoin_testkit::cluster::link;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::{Signal, wait_until};
use rejoin_testkit::sentinels::Watched;
use rejoin_testkit::valkey::Valkey;
use rejoin_tickets::{KeyId, KeyRing, Schedule};
use tokio::sync::oneshot;

pub(crate) const CONTEXT: ContextTag = ContextTag(5);
/// The score from which on clients are not expected back.
const NEVER: &str = "4503599627370496";

pub(crate) fn id(number: u8) -> SessionId {
    SessionId::new(&[number; 32]).expect("32 bytes")
}

/// A machine: a cache, its agent on a thread, and a server. It stops when dropped.
pub(crate) struct Machine {
    pub(crate) store: Arc<Store>,
    pub(crate) server: Tiered,
    pub(crate) health: Arc<Health>,
    /// The rules of its user.
    rules: String,
    stop: Option<oneshot::Sender<()>>,
    agent: Option<JoinHandle<()>>,
}

impl Machine {
    fn start(valkey: &Valkey, number: u8) -> Self {
        let folder = valkey.folder.join(number.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        Self::telling(settings(valkey, &folder), &folder, |_| {})
    }

    pub(crate) fn telling(
        settings: Settings,
        folder: &Path,
        tell: impl FnMut(News<'_>) + Send + 'static,
    ) -> Self {
        let rules = settings.acl_rules();
        let agent = Agent::new(settings).expect("an agent");
        let (name, health) = (agent.store().name().clone(), Arc::clone(agent.health()));
        let (stop, stopped) = oneshot::channel::<()>();
        let agent = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let until = async { drop(stopped.await) };
            runtime.expect("a runtime").block_on(agent.run(until, tell)).expect("it works");
        });
        let store = Arc::new(Store::open(folder, &name, None).expect("the agent made it"));
        let is_ready = || {
            let is_linked = store.mailbox().is_some_and(|mailbox| mailbox.facts().is_linked);
            is_linked && store.ring().ok().flatten().is_some()
        };
        wait_until("the agent's ring", is_ready);
        let server = Tiered::new(Arc::clone(&store));
        Self { store, server, health, rules, stop: Some(stop), agent: Some(agent) }
    }

    /// Starts a machine. Returns it, and a function that returns its agent's news so far.
    pub(crate) fn noting(
        settings: Settings,
        folder: &Path,
    ) -> (Self, impl Fn() -> Vec<String> + use<>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tells = Arc::clone(&told);
        let tell = move |news: News<'_>| tells.lock().expect("no panic").push(format!("{news:?}"));
        (Self::telling(settings, folder, tell), move || told.lock().expect("no panic").clone())
    }

    pub(crate) fn insert(&self, number: u8) {
        let value = [number; 100];
        let new = NewSession::new(id(number), &value, now_ms() + 3_600_000, CONTEXT);
        self.server.insert(now_ms(), &new).expect("there is room");
    }

    pub(crate) fn takes(&self, number: u8, context: ContextTag) -> bool {
        let mut value = SecretBytes::default();
        let found = self.server.take(now_ms(), &id(number), context, &mut value).found;
        assert!(!found || *value == [number; 100]);
        found
    }

    pub(crate) fn gets(&self, number: u8) -> bool {
        let mut value = SecretBytes::default();
        let found = self.server.get(now_ms(), &id(number), CONTEXT, &mut value).found;
        assert!(!found || *value == [number; 100]);
        found
    }

    /// Stores a session, and takes it. Returns true if that is certain.
    pub(crate) fn takes_certainly(&self, number: u8) -> bool {
        let before = self.health.read().stored;
        wait_until("a session sent", || {
            // The first ones may be lost: the agent has not noticed yet that Valkey was away.
            self.insert(number);
            thread::sleep(Duration::from_millis(100));
            self.health.read().stored > before
        });
        self.takes_this_certainly(number)
    }

    /// Takes a session. Returns true if it is there, and that is certain.
    pub(crate) fn takes_this_certainly(&self, number: u8) -> bool {
        self.server.take(now_ms(), &id(number), CONTEXT, &mut SecretBytes::default()).is_certain
    }

    /// Makes a function that waits for so long, takes another session, and returns true if that is certain.
    fn certainty(&self, pause: Duration) -> impl FnMut() -> bool {
        let mut numbers = 0..u8::MAX;
        move || {
            thread::sleep(pause);
            self.takes_certainly(numbers.next().expect("not so many"))
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.agent.take().map(JoinHandle::join);
    }
}

pub(crate) fn settings(valkey: &Valkey, folder: &Path) -> Settings {
    let key: PathBuf = valkey.folder.join("key");
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
    Settings::read(&file).expect("settings")
}

pub(crate) fn until_counted(valkey: &Valkey, command: &str, expected: u32) {
    let expected = expected.to_string();
    wait_until(&format!("{command} to be {expected}"), || valkey.say(command) == expected);
}

#[test]
#[ignore = "waits for 40 s"]
fn a_session_is_certain_until_valkey_may_have_lost_its_last_writes() {
    const COPIES_ARE_ACCEPTED_FOR: Duration = Duration::from_secs(12);
    let mut valkey = Valkey::start(&[]);
    let mut numbers = 0..u8::MAX;
    let mut number = || numbers.next().expect("not so many");
    let machine = Machine::start(&valkey, 1);
    for _ in 0..2 {
        let begin = Instant::now();
        while !machine.takes_certainly(number()) {
            thread::sleep(Duration::from_secs(1));
        }
        assert!(begin.elapsed() > COPIES_ARE_ACCEPTED_FOR);
        assert!(machine.takes_certainly(number()) && machine.health.read().uncertain > 0);
        valkey.say("SAVE");
        valkey.stop();
        valkey.start_again();
        wait_until("the agent", || machine.health.read().is_linked);
        assert!(!machine.takes_certainly(number()));
    }
}

/// While Valkey is silent, clients' first flights are turned away. Copies of them may come once it answers.
#[test]
#[ignore = "waits for 40 s"]
fn no_session_is_certain_for_a_while_after_valkey_was_silent() {
    let valkey = Valkey::start(&[]);
    let machine = Machine::start(&valkey, 1);
    let mut is_certain = machine.certainty(Duration::from_millis(500));
    while !is_certain() {}
    valkey.process().signal(Signal::STOP);
    wait_until("the agent notices", || !machine.health.read().is_linked);
    let answers_from = Instant::now();
    valkey.process().signal(Signal::CONT);
    wait_until("the agent is back", || machine.health.read().is_linked);
    while !is_certain() {}
    assert!(answers_from.elapsed() > Duration::from_secs(18));
}

/// Its servers find no agent then, and turn first flights away. Copies of them may come once it goes on.
#[test]
#[ignore = "waits for 40 s"]
fn no_session_is_certain_for_a_while_after_the_agent_stood_still() {
    let valkey = Valkey::start(&[]);
    let machine = Machine::start(&valkey, 1);
    let mut is_certain = machine.certainty(Duration::from_millis(500));
    while !is_certain() {}
    let stood_still = Instant::now();
    // The time of its last sign of life is forgotten.
    machine.store.mailbox().expect("a cluster's").leave();
    while !is_certain() {}
    assert!(stood_still.elapsed() > Duration::from_secs(18));
}

/// An agent that reaches a minority of the sentinels does not know whether another primary was promoted.
#[test]
#[ignore = "waits for 30 s"]
fn no_session_is_certain_without_a_majority_of_the_sentinels() {
    let watched = Watched::start(1, &[]);
    let folder = Folder::new();
    let settings = settings(&watched.servers[0], &folder);
    let servers = watched.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port));
    let sentinel = SentinelSettings {
        servers: servers.collect(),
        master: Watched::NAME.to_owned(),
        user: None,
        password_file: None,
        tls: None,
    };
    let settings = Settings { servers: Vec::new(), sentinel: Some(sentinel), ..settings };
    let machine = Machine::telling(settings, &folder, |_| {});
    let mut is_certain = machine.certainty(Duration::from_secs(1));
    let begin = Instant::now();
    while !is_certain() {}
    assert!(begin.elapsed() > Duration::from_secs(18));
    let [first, second, _] = &watched.sentinels[..] else { panic!("three") };
    [first, second].iter().for_each(|sentinel| sentinel.process.signal(Signal::STOP));
    while is_certain() {}
    assert!(!is_certain());
    [first, second].iter().for_each(|sentinel| sentinel.process.signal(Signal::CONT));
    while !is_certain() {}
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

/// Letters are handled side by side. A script that Valkey has lost is sent a second time, and is late then.
#[test]
fn a_session_that_was_removed_does_not_come_back() {
    let valkey = Valkey::start(&[]);
    let [one, other] = [1, 2].map(|number| Machine::start(&valkey, number));
    for round in 0..100 {
        // Not more often: a script that is lost twice is given up.
        valkey.say("SCRIPT FLUSH");
        for number in 0..3 {
            one.insert(number);
            // The agent sends the session, or finds that it is gone.
            thread::sleep(Duration::from_micros(20 * (round % 40)));
            assert!(one.server.remove(&id(number)));
        }
        thread::sleep(Duration::from_millis(20));
        until_counted(&valkey, "ZCARD rejoin:{web.0}:order", 0);
    }
    assert!(!(0..3).any(|number| other.gets(number)));
    // The same id may be stored again.
    let before = one.health.read().stored;
    one.insert(1);
    wait_until("a session sent", || one.health.read().stored > before);
    wait_until("another machine gets it", || other.gets(1));
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
    wait_until("its own count", || other.health.read().misses.altered == 1);
}

#[test]
fn an_agent_counts_what_it_carries_and_whether_it_is_answered() {
    let mut valkey = Valkey::start(&["--maxmemory-policy", "noeviction"]);
    let [one, other] = [1, 2].map(|number| Machine::start(&valkey, number));
    let (sent, fetched) = (|| one.health.read(), || other.health.read());
    one.insert(7);
    wait_until("a session sent", || sent().stored == 1);
    assert!(other.takes(7, CONTEXT) && !other.takes(8, CONTEXT));
    // Its server would use it in another context.
    one.insert(9);
    wait_until("two sessions sent", || sent().stored == 2);
    assert!(!other.takes(9, ContextTag(6)));
    wait_until("a session put back", || fetched().stored == 1);
    let Facts { found, absent, unfit, unfetched, .. } = fetched();
    assert_eq!((found, absent, unfit, unfetched), (1, 1, 1, 0));
    valkey.say("CONFIG SET maxmemory 1");
    one.insert(10);
    wait_until("a full Valkey", || sent().unsent == 1);
    let before = sent();
    assert!(before.is_linked && before.answered > 0 && before.last_answer_s > Some(1_000_000_000));
    assert!(!before.answered_within.is_zero());
    valkey.stop();
    wait_until("silence", || !sent().is_linked);
    let Facts { unanswered, last_answer_s, .. } = sent();
    assert!(unanswered > before.unanswered && last_answer_s >= before.last_answer_s);
    valkey.start_again();
    wait_until("an answer", || sent().is_linked);
}

/// Settings of a machine whose Valkey does not answer.
fn unlinked(folder: &Folder) -> Settings {
    let key = folder.join("key");
    ClusterSecret::create(&key).expect("a key");
    let text = format!(
        "name = \"web\"\nservers = [\"127.0.0.1:1\"]\nkey_file = {key:?}\nfolder = {:?}\ncapacity = \"1MiB\"\n",
        folder.path()
    );
    let file = folder.join("cluster.toml");
    std::fs::write(&file, text).expect("written");
    Settings::read(&file).expect("settings")
}

/// Runs an agent until it ends by itself, or for so long.
fn end_after(agent: Agent, longest: Duration) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let shutdown = async { tokio::time::sleep(longest).await };
    runtime.expect("a runtime").block_on(agent.run(shutdown, |_| {}))
}

/// It sleeps on that memory nearly all the time.
#[test]
fn an_agent_whose_cache_is_cut_short_ends_with_a_reason() {
    let folder = Folder::new();
    let agent = Agent::new(unlinked(&folder)).expect("an agent");
    let store = Arc::clone(agent.store());
    let ended = thread::spawn(|| end_after(agent, Duration::from_secs(30)));
    wait_until("the agent", || store.mailbox().is_some_and(|mailbox| mailbox.has_agent()));
    thread::sleep(Duration::from_millis(50));
    let file = std::fs::File::options().write(true).open(folder.join("rejoin-web"));
    file.expect("there").set_len(4096).expect("cut");
    let error = ended.join().expect("no panic").expect_err("it is of no use");
    assert!(matches!(error, Error::CacheCutShort { .. }), "{error}");
}

/// Two agents that start in one instant find no sign of life of each other.
#[test]
fn of_agents_that_start_at_once_one_stays() {
    const CACHES: usize = 20;
    const AGENTS: usize = 3;
    let folders: Vec<Folder> = (0..CACHES).map(|_| Folder::new()).collect();
    let all: Vec<Settings> = folders.iter().map(unlinked).collect();
    // Made before, and by nobody who lives.
    all.iter().for_each(|settings| drop(Agent::new(settings.clone()).expect("an agent")));
    thread::sleep(Duration::from_secs(1));
    let start = Barrier::new(CACHES * AGENTS);
    let ended = |settings: &Settings| {
        start.wait();
        Agent::new(settings.clone()).and_then(|agent| end_after(agent, Duration::from_secs(4)))
    };
    let other = |ended: &Result<(), Error>| matches!(ended, Err(Error::OtherAgent { .. }));
    thread::scope(|scope| {
        let agents = |settings| [(); AGENTS].map(|()| scope.spawn(move || ended(settings)));
        let started: Vec<_> = all.iter().map(agents).collect();
        for agents in started {
            let ended = agents.map(|agent| agent.join().expect("no panic"));
            let others = ended.iter().filter(|ended| other(ended)).count();
            let stayed = ended.iter().filter(|ended| ended.is_ok()).count();
            assert_eq!((stayed, others), (1, AGENTS - 1), "{ended:?}");
        }
    });
}

/// An agent that stood still was taken for gone, and another one was started.
#[test]
fn an_agent_whose_cache_another_one_serves_meanwhile_ends() {
    let folder = Folder::new();
    let settings = unlinked(&folder);
    let first = Agent::new(settings.clone()).expect("an agent");
    thread::sleep(Duration::from_millis(1_100));
    let second = Agent::new(settings).expect("an agent");
    let second = thread::spawn(|| end_after(second, Duration::from_secs(3)));
    thread::sleep(Duration::from_millis(500));
    let first = end_after(first, Duration::from_secs(1));
    assert!(matches!(first, Err(Error::OtherAgent { .. })), "{first:?}");
    second.join().expect("no panic").expect("it is the only one");
}

const RING: &str = "rejoin:{web}:ring";

/// A ring in Valkey: its version and its page.
type Held = (u64, Vec<u8>);

async fn held(valkey: &Valkey) -> Held {
    let read = redis::cmd("HMGET").arg(RING).arg("version").arg("page").to_owned();
    read.query_async(&mut link(valkey).await).await.expect("a ring")
}

async fn put(valkey: &Valkey, (version, page): &Held) {
    let mut put = redis::cmd("HSET");
    put.arg(RING).arg("version").arg(*version).arg("page").arg(page);
    put.exec_async(&mut link(valkey).await).await.expect("put");
}

fn keys_of(ring: Option<KeyRing>) -> Vec<KeyId> {
    ring.map_or_else(Vec::new, |ring| ring.list(now_s()).map(|key| key.id).collect())
}

fn now_s() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
}

impl Machine {
    pub(crate) fn keys(&self) -> Vec<KeyId> {
        keys_of(self.store.ring().expect("free"))
    }
}

/// A cluster whose first key leaked and was revoked, and the ring from before.
struct Revoked {
    valkey: Valkey,
    before: Held,
    leaked: KeyId,
    now: Vec<KeyId>,
}

impl Revoked {
    /// Starts it with one machine, whose agent has seen the newer ring and has ended.
    async fn start() -> Self {
        let valkey = Valkey::start(&[]);
        let machine = Machine::start(&valkey, 1);
        let [leaked] = machine.keys()[..] else { panic!("one key") };
        let before = held(&valkey).await;
        let key = ClusterSecret::read(&valkey.folder.join("key")).expect("a key");
        let keys = ClusterKeys::new("web".parse().expect("a name"), &key, None)
            .expect("a lead")
            .trusting_clock();
        let (mut keys, mut link) = (keys.only_followed(), link(&valkey).await);
        let newer = keys.rotate(&mut link, now_s()).await.expect("a key");
        assert!(keys.revoke(&mut link, &leaked, now_s()).await.expect("revoked"));
        wait_until("the newer ring on the machine", || machine.keys() == [newer]);
        drop(machine);
        Self { valkey, before, leaked, now: vec![newer] }
    }
}

#[tokio::test]
async fn a_revoked_key_does_not_come_back_when_the_agent_restarts() {
    let Revoked { valkey, before, leaked, now } = Revoked::start().await;
    put(&valkey, &before).await;
    let machine = Machine::start(&valkey, 1);
    wait_until("the newer ring in Valkey", || {
        valkey.say(&format!("HGET {RING} version")).parse::<u64>().expect("a number") > 3
            || machine.keys().contains(&leaked)
    });
    assert_eq!(machine.keys(), now, "the revoked key {leaked} is back");
}

/// Only what is beside the key file is left when a machine restarts.
#[tokio::test]
async fn an_older_ring_is_refused_when_the_machine_has_restarted_unless_it_is_accepted() {
    let Revoked { valkey, before, leaked, .. } = Revoked::start().await;
    let folder = valkey.folder.join("1");
    Store::remove(&folder, &"web".parse().expect("a name")).expect("removed");
    put(&valkey, &before).await;
    let ran = async |accepts: bool| {
        let agent = Agent::new(settings(&valkey, &folder)).expect("an agent");
        let (store, mut told) = (Arc::clone(agent.store()), Vec::new());
        let until = tokio::time::sleep(Duration::from_secs(3));
        let tell = |news: News<'_>| told.push(format!("{news:?} {}", reason(&news)));
        agent.accepting_older_ring(accepts).run(until, tell).await.expect("it works");
        (keys_of(store.ring().expect("free")), told)
    };
    let (keys, told) = ran(false).await;
    assert_eq!(keys, [], "{told:?}");
    let refused = told.iter().any(|line| line.contains("--accept-older-ring"));
    assert!(refused && told.len() == 1, "{told:?}");
    assert_eq!(ran(true).await.0, [leaked]);
    // It is the newest now.
    assert_eq!(ran(false).await.0, [leaked]);
}

/// By such a clock all sessions have expired.
#[tokio::test]
async fn nothing_is_removed_for_its_age_by_a_clock_of_another_day() {
    let valkey = Valkey::start(&[]);
    let machine = Machine::start(&valkey, 1);
    machine.insert(1);
    wait_until("a session sent", || machine.health.read().stored == 1);
    let settings = settings(&valkey, &valkey.folder.join("1"));
    let secret = ClusterSecret::read(&settings.key_file).expect("a key");
    let ring = KeyRing::new(Schedule::default());
    let sessions = Sessions::of_cluster(link(&valkey).await, &settings, &secret, &ring);
    let sessions = sessions.expect("in range");
    let evicted = async |hours: u64| {
        sessions.evict((now_s() + 3_600 * hours) * 1_000, 0, 0, 9).await.expect("an answer")
    };
    assert_eq!(evicted(30).await, 0);
    assert_eq!(evicted(0).await, 0, "its client is not overdue");
    assert!(
        sessions.get(now_s() * 1_000, &id(1)).await.expect("an answer").is_none(),
        "another ring"
    );
    assert_eq!(valkey.say("ZCARD rejoin:{web.0}:order"), "1");
}

/// Valkey restarts empty and a machine with it. Others that have the ring put it back.
#[tokio::test]
async fn a_machine_that_has_lost_the_ring_waits_for_those_that_have_it() {
    let valkey = Valkey::start(&[]);
    let folder = valkey.folder.join("1");
    std::fs::create_dir_all(&folder).expect("a folder");
    let machine = Machine::start(&valkey, 1);
    let before = machine.keys();
    drop(machine);
    let kept = held(&valkey).await;
    Store::remove(&folder, &"web".parse().expect("a name")).expect("removed");
    valkey.say("FLUSHALL");
    let agent = Agent::new(settings(&valkey, &folder)).expect("an agent");
    let store = Arc::clone(agent.store());
    let comes_back = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(valkey.say(&format!("EXISTS {RING}")), "0", "a new ring was begun");
        put(&valkey, &kept).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    };
    let mut told = Vec::new();
    let tell = |news: News<'_>| {
        if let News::WaitsForRing(waits) = news {
            told.push(waits);
        }
    };
    agent.run(comes_back, tell).await.expect("it works");
    assert_eq!(keys_of(store.ring().expect("free")), before);
    assert_eq!(told, [true, false]);
}

/// Nobody has the newer ring any more, and the operator decides: both machines lost their caches. They have the same new keys
/// half a minute later, in which a third one could have put the ring back.
#[tokio::test]
async fn new_keys_begin_half_a_minute_after_a_refused_ring_was_deleted() {
    let Revoked { valkey, before, leaked, now } = Revoked::start().await;
    let folders = ["1", "2"].map(|number| valkey.folder.join(number));
    std::fs::create_dir_all(&folders[1]).expect("a folder");
    Store::remove(&folders[0], &"web".parse().expect("a name")).expect("removed");
    put(&valkey, &before).await;
    let [one, two] = folders.map(|at| Agent::new(settings(&valkey, &at)).expect("an agent"));
    let stores = [&one, &two].map(|agent| Arc::clone(agent.store()));
    let keys = || stores.each_ref().map(|store| keys_of(store.ring().expect("free")));
    let (ends, ended) = oneshot::channel::<()>();
    let begins = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(keys(), [[], []], "the older ring is refused");
        valkey.say(&format!("DEL {RING}"));
        let deleted = Instant::now();
        while keys().iter().any(Vec::is_empty) {
            let waited = deleted.elapsed();
            assert!(waited < Duration::from_secs(40), "no new keys after {waited:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(deleted.elapsed() >= Duration::from_secs(30), "after {:?}", deleted.elapsed());
        drop(ends);
    };
    let mut told = Vec::new();
    let tell = |news: News<'_>| {
        if let News::WaitsForRing(waits) = news {
            told.push(waits);
        }
    };
    let until_ended = async { drop(ended.await) };
    let (one, two) = tokio::join!(one.run(begins, tell), two.run(until_ended, |_| {}));
    one.and(two).expect("they work");
    let [ones, twos] = keys();
    assert_eq!(ones, twos);
    assert!(!ones.contains(&leaked) && !ones.contains(&now[0]), "{ones:?}: not new");
    assert_eq!(told, [true, false]);
}

/// The rules of an earlier version lack a key and some commands.
#[test]
fn rules_that_are_too_narrow_are_told_once() {
    let valkey = Valkey::start(&[]);
    let folder = Folder::new();
    let settings = Settings {
        user: Some("agent".to_owned()),
        password_file: Some(folder.write("password", "secret")),
        ..settings(&valkey, &folder)
    };
    let narrower = settings.acl_rules().replace(" ~rejoin:{web.*}:taken", "");
    valkey.say(&format!("ACL SETUSER agent on >secret {narrower}"));
    let (machine, told) = Machine::noting(settings, &folder);
    let denied = || {
        let told = told().into_iter();
        told.filter(|line| line.starts_with("Denied")).collect::<Vec<_>>()
    };
    machine.insert(7);
    wait_until("it is told", || !denied().is_empty());
    machine.insert(8);
    wait_until("two failed", || machine.health.read().unsent == 2);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(denied().len(), 1, "{:?}", denied());
    // With the rules that it tells, it works.
    valkey.say(&format!("ACL SETUSER agent {}", machine.rules));
    machine.insert(9);
    wait_until("a session sent", || machine.health.read().stored == 1);
}

fn reason(news: &News<'_>) -> String {
    match news {
        News::Cut(error)
        | News::Unrecorded(error)
        | News::Denied(error)
        | News::NotRekeyed(error)
        | News::Unseen(error)
        | News::TwoPrimaries(error)
        | News::HomeCut(_, error) => error.to_string(),
        News::ClocksApart(apart) => format!("{apart:?}"),
        News::WaitsForRing(waits) => waits.to_string(),
        News::Linked(_) | News::HomeLinked(_) | News::Rekeyed(_) => String::new(),
    }
}

/// Root may look at the ring before the agent of another user starts.
#[test]
fn a_record_that_root_makes_is_the_key_owners() {
    use std::os::unix::fs::{MetadataExt, chown};
    let folder = Folder::new();
    let path = folder.join("key");
    let name = "web".parse().expect("a name");
    let key = ClusterSecret::create(&path).expect("a key");
    if chown(&path, Some(1234), None).is_err() {
        return eprintln!("skipped: a file of another user (needs root)");
    }
    let file = folder.join("key.seen");
    let owner = || std::fs::metadata(&file).expect("there").uid();
    RingRecord::open(&path, &key, &name).expect("made");
    assert_eq!(owner(), 1234);
    // An earlier version left it root's. A file that has another name is left alone.
    let other = folder.join("other");
    std::fs::hard_link(&file, &other).expect("linked");
    chown(&file, Some(0), None).expect("root");
    RingRecord::open(&path, &key, &name).expect("readable");
    assert_eq!(owner(), 0);
    std::fs::remove_file(other).expect("there");
    RingRecord::open(&path, &key, &name).expect("readable");
    assert_eq!(owner(), 1234);
}

/// A new key file begins anew, whatever was recorded under the old one.
#[test]
fn a_record_is_its_keys_alone_and_nobody_elses_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.join("key");
    let (name, other) = ("web".parse().expect("a name"), "other".parse().expect("a name"));
    let key = ClusterSecret::create(&path).expect("a key");
    let file = folder.join("key.seen");
    let seen = |name, key| RingRecord::open(&path, key, name).map(|record| record.seen());
    assert_eq!(seen(&name, &key).expect("made"), 0);
    let mode = || std::fs::metadata(&file).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    // What a cluster of another key or name recorded is nothing to this one.
    for line in ["", "7", "00000000000000000007 00\n", "not a record at all\n"] {
        std::fs::write(&file, line).expect("written");
        assert_eq!(seen(&name, &key).expect("readable"), 0, "{line:?}");
        assert_eq!(seen(&other, &key).expect("readable"), 0, "{line:?}");
    }
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("ours");
    assert!(matches!(seen(&name, &key), Err(Error::BadKeyFile { .. })));
    std::fs::remove_file(&file).expect("there");
    let victim = folder.write("victim", "untouched");
    std::os::unix::fs::symlink(&victim, &file).expect("a link");
    assert!(matches!(seen(&name, &key), Err(Error::BadKeyFile { .. })));
    assert_eq!(std::fs::read_to_string(victim).expect("there"), "untouched");
}
