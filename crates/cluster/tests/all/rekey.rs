//! The cluster's key, replaced while machines of two neighbouring steps work with each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_cache::{ContextTag, SecretBytes, SessionId};
use rejoin_cluster::sessions::{Entry, NEVER_MS, Past, Put, Sessions};
use rejoin_cluster::{
    ClusterKeys, ClusterSecret, Error, KeyName, Link, Machines, News, RekeyStep, Report,
    RingRecord, Settings,
};
use rejoin_testkit::cluster::{link, replay};
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::valkey::Valkey;
use rejoin_tickets::KeyId;

use crate::agent::{self, CONTEXT, Machine};

const NOW_MS: u64 = replay::BEGAN_MS;
const NOW_S: u64 = NOW_MS / 1_000;
const STEPS: [RekeyStep; 3] = [RekeyStep::Add, RekeyStep::Use, RekeyStep::Drop];

/// The key file of each step: before the first, and after each.
struct Files {
    folder: Folder,
    paths: [PathBuf; 4],
}

impl Files {
    fn new() -> Self {
        let folder = Folder::new();
        let paths = [0, 1, 2, 3].map(|step| folder.join(format!("key-{step}")));
        ClusterSecret::create(&paths[0]).expect("a key");
        for (step, pair) in STEPS.iter().zip(paths.windows(2)) {
            fs::copy(&pair[0], &pair[1]).expect("copied");
            ClusterSecret::rekey(&pair[1], None, *step).expect("in turn");
        }
        Self { folder, paths }
    }

    fn secret(&self, step: usize) -> ClusterSecret {
        ClusterSecret::read(&self.paths[step]).expect("a secret")
    }

    /// Puts the file of a step in place of a machine's, as a whole.
    fn install(&self, step: usize, path: &Path) {
        let beside = path.with_extension("new");
        fs::copy(&self.paths[step], &beside).expect("copied");
        fs::rename(beside, path).expect("replaced");
    }
}

struct Server {
    keys: ClusterKeys,
    link: Link,
}

impl Server {
    async fn new(valkey: &Valkey, secret: &ClusterSecret) -> Self {
        let keys = ClusterKeys::new("web".parse().expect("a name"), secret, None)
            .expect("a lead")
            .trusting_clock();
        Self { keys, link: link(valkey).await }
    }

    /// Follows the ring. Returns the ids of its keys.
    async fn ids(&mut self) -> Vec<KeyId> {
        self.keys.follow(&mut self.link, NOW_S).await.expect("it opens");
        self.keys.ring().expect("a ring").list(NOW_S).map(|key| key.id).collect()
    }

    async fn rotate(&mut self) -> KeyId {
        self.keys.rotate(&mut self.link, NOW_S).await.expect("a key")
    }
}

/// All follow the ring some times, and have the same one in the end.
async fn settle(servers: &mut [Server; 3]) -> (u64, Vec<KeyId>) {
    const ROUNDS: usize = 4;
    for _ in 0..ROUNDS {
        for server in &mut *servers {
            server.ids().await;
        }
    }
    let [one, two, three] = servers;
    let versions = [&one, &two, &three].map(|server| server.keys.version());
    let ids = one.ids().await;
    assert_eq!((two.ids().await, three.ids().await), (ids.clone(), ids.clone()));
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
    (versions[0], ids)
}

#[tokio::test]
async fn the_ring_goes_over_to_the_next_key_once() {
    let (valkey, files) = (Valkey::start(&[]), Files::new());
    let start = async || Server::new(&valkey, &files.secret(0)).await;
    let mut servers = [start().await, start().await, start().await];
    let begun = settle(&mut servers).await;
    let [old, new] = [0, 3].map(|step| files.secret(step).key_name());
    for (step, later, under) in [(1, 0, old), (2, 1, new), (3, 1, new)] {
        for at in 0..servers.len() {
            servers[at].keys.set_secret(&files.secret(step));
            let (version, ids) = settle(&mut servers).await;
            // The first machine that uses the next key writes the ring again, and nobody after it.
            assert_eq!((version, &ids), (begun.0 + later, &begun.1), "step {step}, machine {at}");
            assert!(servers.iter().all(|server| server.keys.wrapped_under() == Some(under)));
        }
    }
    let mut late = Server::new(&valkey, &files.secret(0)).await;
    let refused = late.keys.follow(&mut late.link, NOW_S).await;
    assert!(matches!(refused, Err(Error::Unopened { .. })), "{refused:?}");
}

/// A machine that does not use the next key yet makes a ticket key, and one that uses it writes that again, once.
#[tokio::test]
async fn rings_of_neighbouring_steps_do_not_replace_each_other_for_ever() {
    let (valkey, files) = (Valkey::start(&[]), Files::new());
    let of = async |step| Server::new(&valkey, &files.secret(step)).await;
    let mut servers = [of(1).await, of(2).await, of(1).await];
    let new = files.secret(2).key_name();
    let (before, ids) = settle(&mut servers).await;
    let made = servers[0].rotate().await;
    assert_ne!(servers[0].keys.wrapped_under(), Some(new));
    let (after, all) = settle(&mut servers).await;
    assert_eq!((after, all), (before + 2, [&ids[..], &[made]].concat()));
    assert_eq!(servers[2].keys.wrapped_under(), Some(new));
    assert!(
        servers[0].keys.revoke(&mut servers[0].link.clone(), &made, NOW_S).await.expect("there")
    );
    assert_eq!(settle(&mut servers).await, (after + 2, ids));
    // Whoever only looks changes nothing.
    servers[0].rotate().await;
    let mut looker = of(2).await;
    looker.keys = looker.keys.only_followed();
    assert_eq!(looker.ids().await.len(), 2);
    assert_ne!(looker.keys.wrapped_under(), Some(new));
    assert_eq!(version_in(&valkey), after + 3);
}

fn version_in(valkey: &Valkey) -> u64 {
    valkey.say("HGET rejoin:{web}:ring version").parse().expect("a number")
}

/// A version that was seen under one key is not forgotten with it.
#[test]
fn a_record_goes_over_to_the_next_key() {
    const SEEN: &str = "key.seen";
    let files = Files::new();
    let path = files.folder.join("key");
    let name = "web".parse().expect("a name");
    let seen = |step: usize| {
        files.install(step, &path);
        RingRecord::open(&path, &files.secret(step), &name).expect("ours").seen()
    };
    let text = || fs::read_to_string(files.folder.join(SEEN)).expect("a record");
    let valkey = Valkey::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    files.install(0, &path);
    let version = runtime.expect("a runtime").block_on(async {
        let mut server = Server::new(&valkey, &files.secret(0)).await;
        let record = RingRecord::open(&path, &files.secret(0), &name).expect("ours");
        server.keys = server.keys.recorded_in(record);
        server.rotate().await;
        server.keys.version()
    });
    let first = text();
    assert_eq!((seen(1), text()), (version, first.clone()));
    assert_eq!(seen(2), version);
    let second = text();
    assert_ne!(second, first);
    assert_eq!((seen(1), seen(2), seen(3)), (version, version, version));
    assert_eq!(text(), second);
    assert_eq!(seen(0), 0, "that key is not accepted any more");
}

fn id(number: u8) -> SessionId {
    SessionId::new(&[number; 32]).expect("32 bytes")
}

/// The sessions of machines, each of which is in a step.
struct Pair {
    valkey: Valkey,
    files: Files,
    settings: Settings,
}

impl Pair {
    fn new() -> Self {
        let (valkey, files) = (Valkey::start(&[]), Files::new());
        let settings = agent::settings(&valkey, &files.folder);
        Self { valkey, files, settings }
    }

    async fn of(&self, step: usize) -> Sessions {
        let (link, secret) = (link(&self.valkey).await, self.files.secret(step));
        Sessions::of_cluster(link, &self.settings, &secret, &replay::ring(1)).expect("in range")
    }

    fn held(&self) -> String {
        self.valkey.say("HLEN rejoin:{web.0}:values")
    }
}

async fn put(sessions: &Sessions, number: u8) {
    let (id, value) = (id(number), SecretBytes::from(vec![number; 100]));
    let (past, expires_ms) = (Past::default(), NOW_MS + 3_600_000);
    let returns_ms = NOW_MS + 60_000;
    let entry = Entry { id: &id, context: CONTEXT, value: &value, expires_ms, past, returns_ms };
    assert_eq!(sessions.put(NOW_MS, &entry).await.expect("room"), Put::Stored { evicted: 0 });
}

#[tokio::test]
async fn machines_of_neighbouring_steps_find_each_others_sessions() {
    let pair = Pair::new();
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)] {
        let (one, other) = (pair.of(from).await, pair.of(to).await);
        for number in 1..=4 {
            put(&one, number).await;
        }
        let found = other.get(NOW_MS, &id(1)).await.expect("an answer").expect("it is there");
        assert_eq!((&*found.value, found.context), (&[1; 100][..], CONTEXT));
        let (past, expires_ms) = (Past { seen_ms: 7, ..Past::default() }, NOW_MS + 3_600_000);
        assert!(other.expect(&id(2), past, NEVER_MS, expires_ms).await.expect("an answer"));
        let seen = one.get(NOW_MS, &id(2)).await.expect("an answer").expect("it is there");
        assert_eq!(seen.past, past);
        assert!(other.remove(&id(3)).await.expect("an answer"));
        assert!(!other.remove(&id(3)).await.expect("an answer"));
        // One that is put back is where it was, for both.
        let taken = other.take(NOW_MS, &id(4)).await.expect("an answer").expect("it is there");
        assert!(one.take(NOW_MS, &id(4)).await.expect("an answer").is_none());
        let (id, returns_ms) = (id(4), NOW_MS + 60_000);
        let (context, value) = (ContextTag(5), &taken.value);
        let past = Past::default();
        let entry = Entry { id: &id, context, value, expires_ms, past, returns_ms };
        let back = other.put_back(NOW_MS, &entry, taken.taken.as_ref().expect("it was taken"));
        assert_eq!(back.await.expect("an answer"), Put::Stored { evicted: 0 }, "{from} to {to}");
        for number in [1, 2, 4] {
            let of = self::id(number);
            assert!(one.take(NOW_MS, &of).await.expect("an answer").is_some(), "{number}");
            assert!(other.take(NOW_MS, &of).await.expect("an answer").is_none(), "{number}");
        }
        assert_eq!(pair.held(), "0", "{from} to {to}");
        assert_eq!(other.misses().absent, 3);
        pair.valkey.say("FLUSHALL");
    }
    // The last key's sessions are lost when it is dropped, and no other ones.
    let (before, after) = (pair.of(1).await, pair.of(3).await);
    put(&before, 1).await;
    assert!(after.get(NOW_MS, &id(1)).await.expect("an answer").is_none());
}

#[tokio::test]
async fn machines_of_neighbouring_steps_read_each_others_reports() {
    let (valkey, files) = (Valkey::start(&[]), Files::new());
    let name = "web".parse().expect("a name");
    let of = |step: usize| Machines::new(&name, &files.secret(step));
    let mut link = link(&valkey).await;
    let mut before = None;
    for step in 0..=3 {
        // Its place stays the same, whatever it is under.
        let key = files.secret(step).key_name();
        let report = Report::new("one".parse().expect("a name"), None, key);
        assert_eq!(of(step).put(&mut link, &report).await.expect("room"), before);
        for reader in 0..=3_usize {
            let listed = of(reader).read(&mut link).await.expect("an answer");
            let read: Vec<_> = listed.reports.into_iter().map(|(report, _)| report).collect();
            // The first key is accepted until the last step, and the next one from the first step on.
            let is_readable = if step < 2 { reader < 3 } else { reader > 0 };
            assert_eq!(read == [report.clone()], is_readable, "{step} by {reader}");
            assert_eq!(listed.unopened, usize::from(!is_readable), "{step} by {reader}");
        }
        before = Some(report);
    }
}

/// A machine with a key file of its own, and what its agent tells.
struct Own {
    machine: Machine,
    path: PathBuf,
    told: Arc<Mutex<Vec<String>>>,
}

impl Own {
    fn start(valkey: &Valkey, files: &Files, number: u8) -> Self {
        let folder = files.folder.join(format!("machine-{number}"));
        fs::create_dir(&folder).expect("a folder");
        let path = folder.join("key");
        files.install(0, &path);
        let machine = Some(format!("machine-{number}").parse().expect("a name"));
        let key_file = path.clone();
        let settings = Settings { key_file, machine, ..agent::settings(valkey, &folder) };
        let told = Arc::new(Mutex::new(Vec::new()));
        let tells = Arc::clone(&told);
        let tell = move |news: News<'_>| tells.lock().expect("no panic").push(format!("{news:?}"));
        Self { machine: Machine::telling(settings, &folder, tell), path, told }
    }

    fn told(&self, what: &str) -> usize {
        self.told.lock().expect("no panic").iter().filter(|line| line.starts_with(what)).count()
    }

    fn take_step(&self, files: &Files, step: usize) {
        files.install(step, &self.path);
        wait_until("the agent", || {
            self.told("Rekeyed") == step && self.machine.health.read().rekey_step == step as u64 % 3
        });
    }
}

/// The step and the key of each machine that has reported.
fn reported(valkey: &Valkey, secret: &ClusterSecret) -> Vec<(u64, KeyName)> {
    let machines = Machines::new(&"web".parse().expect("a name"), secret);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let listed = runtime
        .expect("a runtime")
        .block_on(async { machines.read(&mut link(valkey).await).await.expect("an answer") });
    listed.reports.iter().map(|(report, _)| (report.rekey_step, report.key)).collect()
}

#[test]
fn agents_take_each_step_without_a_restart() {
    let (valkey, files) = (Valkey::start(&[]), Files::new());
    let machines = [1, 2].map(|number| Own::start(&valkey, &files, number));
    let [one, other] = &machines;
    let mut numbers = 1..u8::MAX;
    let mut resumes = || {
        for (from, to) in [(one, other), (other, one)] {
            let number = numbers.next().expect("not so many");
            let before = from.machine.health.read().stored;
            from.machine.insert(number);
            wait_until("a session sent", || from.machine.health.read().stored > before);
            assert!(to.machine.takes(number, CONTEXT), "{number}");
        }
    };
    resumes();
    for step in 1..=3 {
        one.take_step(&files, step);
        resumes();
        other.take_step(&files, step);
        resumes();
        // Both say so under the new key, and none is shown twice.
        let secret = files.secret(step);
        let expected = (step as u64 % 3, secret.key_name());
        wait_until("their reports", || reported(&valkey, &secret) == [expected; 2]);
    }
    wait_until("the same ring", || {
        one.machine.store.ring_version() == other.machine.store.ring_version()
    });
    assert_eq!(one.machine.keys(), other.machine.keys());
    assert_eq!(one.machine.keys().len(), 1, "the ring of the beginning");
    for machine in &machines {
        assert_eq!(machine.told("Cut") + machine.told("NotRekeyed"), 0);
        assert_eq!(machine.machine.health.read().misses.absent, 0);
    }
}

#[test]
fn a_bad_key_file_changes_nothing_and_is_told_once() {
    let (valkey, files) = (Valkey::start(&[]), Files::new());
    let [one, other] = [1, 2].map(|number| Own::start(&valkey, &files, number));
    one.take_step(&files, 1);
    fs::write(&one.path, "torn").expect("written");
    wait_until("it is told", || one.told("NotRekeyed") == 1);
    thread::sleep(Duration::from_secs(2));
    assert_eq!((one.told("NotRekeyed"), one.told("Rekeyed")), (1, 1));
    other.machine.insert(7);
    wait_until("a session sent", || other.machine.health.read().stored == 1);
    assert!(one.machine.takes(7, CONTEXT));
    // It is used as soon as it is whole again.
    one.take_step(&files, 2);
}

/// An agent is certain of no session while it has two keys, and for a while afterwards.
#[test]
#[ignore = "waits for 50 s"]
fn no_session_is_certain_while_the_key_is_replaced() {
    const COPIES_ARE_ACCEPTED_FOR: Duration = Duration::from_secs(12);
    let (valkey, files) = (Valkey::start(&[]), Files::new());
    let one = Own::start(&valkey, &files, 1);
    let mut numbers = 1..u8::MAX;
    let mut is_certain = || {
        thread::sleep(Duration::from_millis(500));
        one.machine.takes_certainly(numbers.next().expect("not so many"))
    };
    while !is_certain() {}
    for step in 1..=2 {
        one.take_step(&files, step);
        (0..3).for_each(|_| assert!(!is_certain()));
    }
    one.take_step(&files, 3);
    let begin = Instant::now();
    while !is_certain() {}
    assert!(begin.elapsed() > COPIES_ARE_ACCEPTED_FOR);
}
