//! The ring of a cluster with three sites, each with a real Valkey: its home, its copies, and what comes back when the
//! home was away, restored or emptied.

use rejoin_cluster::{
    ClusterKeys, ClusterSecret, Error, Followed, Place, RekeyStep, Servers, Site, SiteKeys,
    SiteName, Sites,
};
use rejoin_testkit::cluster::{address, link};
use rejoin_testkit::process::Signal;
use rejoin_testkit::valkey::Valkey;
use rejoin_tickets::{KeyId, KeyRing};

pub(crate) const NOW_S: u64 = 1_800_000_000;
pub(crate) const TURN_S: u64 = 12 * 3_600;
const RING: &str = "rejoin:{web}:ring";
/// The home is the first one.
const NAMES: [&str; 3] = ["berlin", "tokyo", "osaka"];
pub(crate) const HOME: usize = 0;
const TOKYO: usize = 1;

pub(crate) struct World {
    pub(crate) valkeys: [Valkey; 3],
    secret: ClusterSecret,
}

pub(crate) struct Machine(pub(crate) SiteKeys);

/// A ring in Valkey: its version and its page.
pub(crate) type Held = (u64, Vec<u8>);

impl World {
    pub(crate) fn new() -> Self {
        let valkeys = NAMES.map(|_| Valkey::start(&[]));
        let secret = ClusterSecret::create(&valkeys[HOME].folder.join("key")).expect("a key");
        Self { valkeys, secret }
    }

    pub(crate) fn keys(&self) -> ClusterKeys {
        ClusterKeys::new("web".parse().expect("a name"), &self.secret, None)
            .expect("a lead")
            .trusting_clock()
    }

    async fn machine(&self, site: usize) -> Machine {
        self.machine_of(site, self.keys()).await
    }

    async fn machine_of(&self, site: usize, keys: ClusterKeys) -> Machine {
        self.machine_by(site, self.valkeys[HOME].port, keys).await
    }

    /// A machine that reaches the home by this port.
    pub(crate) async fn machine_by(&self, site: usize, home: u16, keys: ClusterKeys) -> Machine {
        let name = |at: usize| NAMES[at].parse::<SiteName>().expect("a name");
        let servers = |at: usize| {
            let port = if at == HOME { home } else { self.valkeys[at].port };
            Servers::new(Place::Primary(vec![address(port)]))
        };
        let others = (0..NAMES.len()).filter(|at| *at != site);
        let others = others.map(|at| Site { name: name(at), servers: servers(at) }).collect();
        let sites = Sites::new(servers(site), others, Some(&name(HOME)));
        // Whoever cannot connect now goes on trying.
        let links = sites.connect().await.unwrap_or_else(|_| sites.open());
        Machine(SiteKeys::new(keys, &links))
    }

    /// Takes a step in the replacement of the cluster's key, for machines that start, and for these.
    fn rekey(&mut self, step: RekeyStep, machines: &mut [Machine]) {
        let file = self.valkeys[HOME].folder.join("key");
        self.secret = ClusterSecret::rekey(&file, None, step).expect("in turn");
        machines.iter_mut().for_each(|machine| machine.0.set_secret(&self.secret));
    }

    /// Changes the ring as an operator does.
    async fn rotate(&self) -> KeyId {
        let mut keys = self.keys().only_followed();
        keys.rotate(&mut link(&self.valkeys[HOME]).await, NOW_S).await.expect("a key")
    }

    pub(crate) async fn revoke(&self, id: &KeyId) {
        let mut keys = self.keys().only_followed();
        let mut home = link(&self.valkeys[HOME]).await;
        assert!(keys.revoke(&mut home, id, NOW_S).await.expect("revoked"));
    }

    pub(crate) async fn held(&self, site: usize) -> Held {
        held_by(&self.valkeys[site]).await
    }

    pub(crate) async fn put(&self, site: usize, (version, page): &Held) {
        let mut put = redis::cmd("HSET");
        put.arg(RING).arg("version").arg(*version).arg("page").arg(page);
        put.exec_async(&mut link(&self.valkeys[site]).await).await.expect("put");
    }

    fn version(&self, site: usize) -> u64 {
        self.valkeys[site].say(&format!("HGET {RING} version")).parse().unwrap_or(0)
    }

    /// A ring whose first key leaked and was revoked, known in all sites. Returns the ring from before.
    async fn revoked(&self) -> (Held, KeyId, Vec<KeyId>) {
        let mut home = self.machine(HOME).await;
        let [leaked] = home.ids().await[..] else { panic!("one key") };
        let before = self.held(HOME).await;
        let newer = self.rotate().await;
        self.revoke(&leaked).await;
        for site in [TOKYO, 2] {
            assert_eq!(self.machine(site).await.ids().await, [newer]);
            assert_eq!(self.version(site), 3);
        }
        (before, leaked, vec![newer])
    }
}

impl Machine {
    async fn follow(&mut self, now_s: u64) -> Followed {
        self.0.follow(now_s).await
    }

    /// Follows the ring. Returns the ids of its keys.
    async fn ids(&mut self) -> Vec<KeyId> {
        self.follow(NOW_S).await;
        self.known()
    }

    fn known(&self) -> Vec<KeyId> {
        self.0.ring().map_or_else(Vec::new, ids)
    }
}

async fn held_by(valkey: &Valkey) -> Held {
    let read = redis::cmd("HMGET").arg(RING).arg("version").arg("page").to_owned();
    read.query_async(&mut link(valkey).await).await.expect("a ring")
}

fn ids(ring: &KeyRing) -> Vec<KeyId> {
    ring.list(NOW_S).map(|key| key.id).collect()
}

#[tokio::test]
async fn a_machine_that_starts_without_the_home_has_its_own_sites_copy_and_makes_no_key() {
    let mut world = World::new();
    let expected = world.machine(HOME).await.ids().await;
    assert_eq!(world.machine(TOKYO).await.ids().await, expected);
    assert_eq!([0, 1, 2].map(|site| world.version(site)), [1, 1, 0]);
    world.valkeys[HOME].stop();
    let mut machine = world.machine(TOKYO).await;
    let Followed { newer, own, home } = machine.follow(NOW_S + TURN_S).await;
    assert_eq!(newer.as_ref().map(ids), Some(expected.clone()));
    assert!(own.outcome.is_ok(), "{own:?}");
    assert!(matches!(home.expect("elsewhere").outcome, Err(Error::Valkey(_))));
    assert_eq!(world.version(TOKYO), 1, "a key is due, and not made from a copy");
    let untouched = machine.follow(NOW_S + TURN_S).await;
    assert!(untouched.newer.is_none());
    // The home comes back empty.
    world.valkeys[HOME].start_again();
    until(async || machine.ids().await == expected && world.version(HOME) == 2).await;
    assert_eq!(world.machine(2).await.ids().await, expected);
}

#[tokio::test]
async fn keys_that_are_made_and_revoked_at_home_are_so_in_all_sites() {
    let world = World::new();
    let mut machines = [world.machine(HOME).await, world.machine(TOKYO).await];
    // Of two who find none, one makes the first key.
    let (by_home, by_tokyo) = {
        let [home, tokyo] = &mut machines;
        tokio::join!(home.follow(NOW_S), tokyo.follow(NOW_S))
    };
    assert!(by_home.newer.is_some() || by_tokyo.newer.is_some());
    let added = world.rotate().await;
    for machine in &mut machines {
        assert!(machine.ids().await.contains(&added));
    }
    // The site that is not the home makes the key that is due, in the home.
    assert!(machines[1].follow(NOW_S + 2 * TURN_S).await.newer.is_some());
    let made = machines[1].known();
    assert_eq!((made.len(), machines[0].ids().await), (3, made));
    world.revoke(&added).await;
    for machine in &mut machines {
        assert!(!machine.ids().await.contains(&added));
    }
    assert_eq!(world.version(TOKYO), world.version(HOME));
}

#[tokio::test]
async fn a_home_that_was_restored_gets_the_newer_ring_back_whoever_comes_first() {
    for first in [HOME, TOKYO] {
        let world = World::new();
        let (before, leaked, now) = world.revoked().await;
        world.put(HOME, &before).await;
        // Nobody remembers.
        let mut machine = world.machine(first).await;
        let ids = machine.ids().await;
        assert_eq!((ids.contains(&leaked), ids), (false, now.clone()), "{first}");
        assert_eq!(world.version(HOME), 4, "{first}");
        for site in [HOME, TOKYO, 2] {
            assert_eq!(world.machine(site).await.ids().await, now);
        }
        assert_eq!([1, 2].map(|site| world.version(site)), [4, 4]);
    }
}

#[tokio::test]
async fn a_home_that_is_empty_gets_the_ring_back_and_no_new_one_begins_before_all_were_asked() {
    let world = World::new();
    let (_, _, now) = world.revoked().await;
    world.valkeys[HOME].say("FLUSHALL");
    let away = &world.valkeys[1..];
    away.iter().for_each(|valkey| valkey.process().signal(Signal::STOP));
    let mut machine = world.machine(HOME).await;
    let Followed { newer, own, .. } = machine.follow(NOW_S).await;
    assert!(newer.is_none() && own.outcome.is_ok(), "{own:?}");
    assert_eq!(world.version(HOME), 0, "somebody may have the ring");
    away.iter().for_each(|valkey| valkey.process().signal(Signal::CONT));
    until(async || machine.ids().await == now).await;
    assert_eq!(world.version(HOME), 4);
}

#[tokio::test]
async fn a_site_that_lost_its_copy_gets_another_while_the_home_is_away_too() {
    let mut world = World::new();
    let (_, _, now) = world.revoked().await;
    let mut machine = world.machine(TOKYO).await;
    for is_home_there in [true, false] {
        if !is_home_there {
            world.valkeys[HOME].stop();
        }
        world.valkeys[TOKYO].say("FLUSHALL");
        assert_eq!((machine.ids().await, world.version(TOKYO)), (now.clone(), 3));
    }
    assert_eq!(world.machine(TOKYO).await.ids().await, now);
}

/// Its page in shared memory, for example.
#[tokio::test]
async fn a_machine_with_a_newer_ring_than_all_sites_gives_it_to_them() {
    let world = World::new();
    let (before, _, now) = world.revoked().await;
    let mut newest = world.machine(TOKYO).await;
    newest.follow(NOW_S).await;
    let ring = newest.0.ring().expect("a ring").clone();
    for site in [HOME, TOKYO, 2] {
        world.put(site, &before).await;
    }
    let mut machine = world.machine_of(TOKYO, world.keys().after(Some((3, ring)))).await;
    let refused = machine.follow(NOW_S).await.home.expect("elsewhere").outcome;
    assert!(matches!(refused, Err(Error::RolledBack { found: 1, seen: 3, .. })), "{refused:?}");
    assert_eq!(machine.ids().await, now);
    assert_eq!([HOME, TOKYO].map(|site| world.version(site)), [4, 4]);
    assert_eq!(world.machine(2).await.ids().await, now);
    assert_eq!(world.version(2), 4);
}

#[tokio::test]
async fn of_two_rings_with_the_same_version_the_homes_counts() {
    let world = World::new();
    let expected = world.machine(HOME).await.ids().await;
    // Another first ring, made where nobody knew of that one.
    let elsewhere = Valkey::start(&[]);
    world.keys().follow(&mut link(&elsewhere).await, NOW_S).await.expect("a ring");
    world.put(TOKYO, &held_by(&elsewhere).await).await;
    let home = world.valkeys[HOME].process();
    home.signal(Signal::STOP);
    let mut machine = world.machine(TOKYO).await;
    let other = machine.ids().await;
    assert!(other.len() == 1 && other != expected);
    home.signal(Signal::CONT);
    until(async || machine.ids().await == expected).await;
    assert_eq!([HOME, TOKYO].map(|site| world.version(site)), [1, 1]);
    home.signal(Signal::STOP);
    assert_eq!(world.machine(TOKYO).await.ids().await, expected, "so is the copy");
    home.signal(Signal::CONT);
}

#[tokio::test]
async fn an_older_ring_that_is_accepted_replaces_newer_copies() {
    let world = World::new();
    let (before, leaked, _) = world.revoked().await;
    world.put(HOME, &before).await;
    for site in [TOKYO, 2, HOME] {
        let mut machine = world.machine_of(site, world.keys().accepting_older(true)).await;
        assert_eq!((machine.ids().await, world.version(site)), (vec![leaked], 1));
    }
    for site in [HOME, TOKYO, 2] {
        assert_eq!((world.machine(site).await.ids().await, world.version(HOME)), (vec![leaked], 1));
    }
}

#[tokio::test]
async fn a_copy_of_another_key_is_neither_taken_nor_replaced() {
    let world = World::new();
    world.machine(HOME).await.ids().await;
    let garbage = (9, vec![7; 4_124]);
    world.put(TOKYO, &garbage).await;
    let mut machine = world.machine(TOKYO).await;
    let Followed { newer, own, home } = machine.follow(NOW_S).await;
    assert!(newer.is_some() && home.expect("elsewhere").outcome.is_ok());
    assert!(matches!(own.outcome, Err(Error::Unopened { .. })), "{own:?}");
    assert_eq!(world.held(TOKYO).await, garbage);
}

/// A copy goes over without the home, which is away for a while.
#[tokio::test]
async fn the_ring_and_its_copies_go_over_to_the_clusters_next_key() {
    let mut world = World::new();
    let mut machines = [world.machine(HOME).await, world.machine(TOKYO).await];
    let expected = machines[HOME].ids().await;
    assert_eq!(machines[TOKYO].ids().await, expected);
    let before = world.held(TOKYO).await;
    world.rekey(RekeyStep::Add, &mut machines);
    for machine in &mut machines {
        assert_eq!(machine.ids().await, expected);
    }
    assert_eq!(world.held(TOKYO).await, before, "the next key is not used yet");
    world.valkeys[HOME].process().signal(Signal::STOP);
    world.rekey(RekeyStep::Use, &mut machines);
    assert_eq!(machines[TOKYO].ids().await, expected);
    let after = world.held(TOKYO).await;
    assert_eq!((after.0, after.1 == before.1), (before.0, false));
    machines[TOKYO].ids().await;
    assert_eq!(world.held(TOKYO).await, after, "once");
    world.valkeys[HOME].process().signal(Signal::CONT);
    until(async || machines[HOME].ids().await == expected && world.version(HOME) == 2).await;
    until(async || machines[TOKYO].ids().await == expected && world.version(TOKYO) == 2).await;
    world.rekey(RekeyStep::Drop, &mut machines);
    world.valkeys[HOME].process().signal(Signal::STOP);
    assert_eq!(world.machine(TOKYO).await.ids().await, expected);
    world.valkeys[HOME].process().signal(Signal::CONT);
    until(async || world.machine(HOME).await.ids().await == expected).await;
    assert_eq!([HOME, TOKYO].map(|site| world.version(site)), [2, 2]);
}

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !is_so().await {
            tokio::time::sleep(rejoin_testkit::process::STEP).await;
        }
    };
    tokio::time::timeout(rejoin_testkit::process::DEADLINE, waited).await.expect("in time");
}
