//! Sessions of two sites, each with a real Valkey, agents, and servers that use them.

use std::path::Path;
use std::sync::{Arc, Mutex};

use rejoin_cache::SessionStore;
use rejoin_cluster::{ClusterSecret, News, Settings};
use rejoin_testkit::process::{Signal, wait_until};
use rejoin_testkit::valkey::Valkey;

use crate::agent::{CONTEXT, Machine, id, until_counted};

const HELD: &str = "HLEN rejoin:{web.0}:values";
const RING: &str = "HGET rejoin:{web}:ring version";

/// The first byte of the only value.
const VERSION: &str =
    "EVAL \"return string.byte(redis.call('HVALS', KEYS[1])[1])\" 1 rejoin:{web.0}:values";
/// That of a session that came from another site.
const MOVED: &str = "2";

/// Berlin is the home of the ring.
struct World {
    berlin: Valkey,
    tokyo: Valkey,
}

impl World {
    fn new() -> Self {
        let world = Self { berlin: Valkey::start(&[]), tokyo: Valkey::start(&[]) };
        ClusterSecret::create(&world.berlin.folder.join("key")).expect("a key");
        world
    }

    fn in_berlin(&self, number: u8) -> Machine {
        self.machine(("berlin", &self.berlin), ("tokyo", &self.tokyo), number, |_| {})
    }

    fn in_tokyo(&self, number: u8) -> Machine {
        self.in_tokyo_telling(number, |_| {})
    }

    fn in_tokyo_telling(&self, number: u8, tell: impl FnMut(News<'_>) + Send + 'static) -> Machine {
        self.machine(("tokyo", &self.tokyo), ("berlin", &self.berlin), number, tell)
    }

    fn machine(
        &self,
        (site, own): (&str, &Valkey),
        (name, other): (&str, &Valkey),
        number: u8,
        tell: impl FnMut(News<'_>) + Send + 'static,
    ) -> Machine {
        let folder = own.folder.join(number.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        let key = folder.join("key");
        std::fs::copy(self.berlin.folder.join("key"), &key).expect("copied");
        let text = format!(
            "name = \"web\"\nsite = \"{site}\"\nhome = \"berlin\"\nservers = [\"127.0.0.1:{}\"]\n\
             key_file = {key:?}\nfolder = {folder:?}\ncapacity = \"1MiB\"\ndeadline_ms = 50\n\
             [sessions]\nshards = 1\n[[sites]]\nname = \"{name}\"\nservers = [\"127.0.0.1:{}\"]\n",
            own.port, other.port
        );
        Machine::telling(settings(&folder, &text), &folder, tell)
    }
}

fn settings(folder: &Path, text: &str) -> Settings {
    let file = folder.join("cluster.toml");
    std::fs::write(&file, text).expect("written");
    Settings::read(&file).expect("settings")
}

#[test]
fn a_session_of_another_site_is_there_at_the_second_visit() {
    let world = World::new();
    let (berlin, tokyo) = (world.in_berlin(1), world.in_tokyo(2));
    berlin.insert(7);
    until_counted(&world.berlin, HELD, 1);
    assert!(!tokyo.gets(7), "no handshake waits for another site");
    wait_until("it is found", || tokyo.health.read().sought.found == 1);
    assert!(tokyo.gets(7));
    // It is in the site, and still where it was made.
    until_counted(&world.tokyo, HELD, 1);
    assert_eq!([&world.berlin, &world.tokyo].map(|site| site.say(VERSION)), ["1", MOVED]);
    assert!(world.in_tokyo(3).gets(7) && world.in_berlin(4).gets(7));
}

#[test]
fn a_session_for_a_single_use_is_in_one_site_only_and_used_once() {
    let world = World::new();
    let (berlin, tokyo) = (world.in_berlin(1), world.in_tokyo(2));
    berlin.insert(7);
    until_counted(&world.berlin, HELD, 1);
    assert!(!tokyo.takes(7, CONTEXT));
    wait_until("it is found", || tokyo.health.read().sought.found == 1);
    until_counted(&world.berlin, HELD, 0);
    until_counted(&world.tokyo, HELD, 1);
    assert_eq!(world.tokyo.say(VERSION), MOVED);
    // It has left, and is not stored there again for a while: whoever sends the last letter of it late would bring it back.
    assert!(!berlin.takes(7, CONTEXT));
    wait_until("it is put back", || berlin.health.read().sought.unfit == 1);
    assert_eq!([&world.berlin, &world.tokyo].map(|site| site.say(HELD)), ["0", "1"]);
    assert_eq!(world.tokyo.say(VERSION), MOVED);
    assert!(tokyo.takes(7, CONTEXT) && !tokyo.takes(7, CONTEXT));
    assert_eq!([&world.berlin, &world.tokyo].map(|site| site.say(HELD)), ["0", "0"]);
}

#[test]
fn a_session_of_another_context_stays_in_its_site() {
    let world = World::new();
    let (berlin, tokyo) = (world.in_berlin(1), world.in_tokyo(2));
    berlin.insert(7);
    until_counted(&world.berlin, HELD, 1);
    assert!(!tokyo.takes(7, rejoin_cache::ContextTag(6)));
    wait_until("it does not fit", || tokyo.health.read().sought.unfit == 1);
    assert_eq!(world.tokyo.say(HELD), "0");
    assert!(berlin.takes(7, CONTEXT));
}

#[test]
fn a_session_that_a_server_removes_is_removed_in_all_sites() {
    let world = World::new();
    let (berlin, tokyo) = (world.in_berlin(1), world.in_tokyo(2));
    berlin.insert(7);
    until_counted(&world.berlin, HELD, 1);
    tokyo.server.remove(&id(7));
    until_counted(&world.berlin, HELD, 0);
    wait_until("it is counted", || tokyo.health.read().sought.removed == 1);
}

#[test]
fn an_id_that_nobody_has_is_asked_for_once_in_a_while() {
    let world = World::new();
    let tokyo = world.in_tokyo(2);
    let before = world.berlin.calls("hget");
    wait_until("it is known", || {
        assert!(!tokyo.gets(7));
        tokyo.health.read().sought.lately >= 2
    });
    assert_eq!((tokyo.health.read().sought.absent, world.berlin.calls("hget") - before), (1, 1));
}

#[test]
fn a_site_goes_on_while_the_other_is_away() {
    let world = World::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let tell = move |news: News<'_>| tells.lock().expect("no panic").push(format!("{news:?}"));
    let (one, other) = (world.in_tokyo_telling(1, tell), world.in_tokyo(2));
    let has_told =
        |what: &str| told.lock().expect("no panic").iter().any(|line| line.starts_with(what));
    wait_until("the home", || has_told("HomeLinked") && world.tokyo.say(RING) == "1");
    world.berlin.process().signal(Signal::STOP);
    wait_until("it is told", || has_told("HomeCut"));
    assert_eq!(one.health.read().is_home_linked, Some(false));
    assert!(one.health.read().is_linked && !has_told("Cut"));
    one.insert(7);
    until_counted(&world.tokyo, HELD, 1);
    assert!(other.gets(7) && !other.gets(8));
    wait_until("nobody answers", || other.health.read().sought.failed == 1);
    assert_eq!(other.health.read().unfetched, 0);
    // A machine that starts now has the ring from its own site.
    assert!(world.in_tokyo(3).gets(7));
    world.berlin.process().signal(Signal::CONT);
    wait_until("it is back", || one.health.read().is_home_linked == Some(true));
}
