//! Ticket keys in a real Valkey, and their behaviour when something fails.

use rejoin_cluster::{ClusterKeys, ClusterSecret, Error, Link, RingRecord};
use rejoin_testkit::cluster::{ValkeyCluster, link};
use rejoin_testkit::process::{DEADLINE, STEP, Signal};
use rejoin_testkit::sentinels::replica;
use rejoin_testkit::valkey::Valkey;
use rejoin_tickets::{CLOCKS_APART_S, KeyId, KeyRing, Schedule};

const NOW_S: u64 = 1_800_000_000;
const HOUR_S: u64 = 3_600;
const RING: &str = "rejoin:{shop}:ring";

/// A Valkey and the key of a cluster.
struct Cluster {
    valkey: Valkey,
    key: ClusterSecret,
}

struct Server {
    keys: ClusterKeys,
    link: Link,
}

impl Cluster {
    async fn new() -> Self {
        let valkey = Valkey::start(&[]);
        let key = ClusterSecret::create(&valkey.folder.join("key")).expect("a key");
        Self { valkey, key }
    }

    async fn server(&self) -> Server {
        self.server_of("shop", &self.key, None).await
    }

    async fn server_of(&self, name: &str, key: &ClusterSecret, by: Option<Schedule>) -> Server {
        let keys = ClusterKeys::new(name.parse().expect("a name"), key, by)
            .expect("a lead")
            .trusting_clock();
        Server { keys, link: link(&self.valkey).await }
    }
}

impl Server {
    async fn follow(&mut self, now_s: u64) -> Result<Option<KeyRing>, Error> {
        self.keys.follow(&mut self.link, now_s).await
    }

    async fn rotate(&mut self, now_s: u64) -> Result<KeyId, Error> {
        self.keys.rotate(&mut self.link, now_s).await
    }

    async fn revoke(&mut self, id: KeyId) -> bool {
        self.keys.revoke(&mut self.link, &id, NOW_S).await.expect("Valkey is there")
    }

    /// Follows the ring. Returns the ids of its keys.
    async fn ids(&mut self) -> Vec<KeyId> {
        self.follow(NOW_S).await.expect("Valkey is there");
        self.known()
    }

    fn known(&self) -> Vec<KeyId> {
        self.keys.ring().expect("a ring").list(NOW_S).map(|key| key.id).collect()
    }
}

/// Reads the ring's version and page from Valkey.
async fn get(link: &mut Link) -> (u64, Vec<u8>) {
    redis::cmd("HMGET")
        .arg(RING)
        .arg("version")
        .arg("page")
        .query_async(link)
        .await
        .expect("a ring")
}

async fn put(link: &mut Link, ring: &str, (version, page): &(u64, Vec<u8>)) {
    let mut put = redis::cmd("HSET");
    put.arg(ring).arg("version").arg(*version).arg("page").arg(page);
    put.exec_async(link).await.expect("put");
}

#[tokio::test]
async fn of_two_at_once_one_makes_the_key() {
    let cluster = Cluster::new().await;
    let (mut a, mut b) = (cluster.server().await, cluster.server().await);
    let mut now_s = NOW_S;
    for round in 1..=20 {
        let (by_a, by_b) = tokio::join!(a.follow(now_s), b.follow(now_s));
        let made = [by_a, by_b].map(|ring| ring.expect("no error").is_some());
        // Both, where one looked when the other had made it.
        assert!(made.contains(&true), "round {round}");
        let told = (a.follow(now_s).await, b.follow(now_s).await);
        let told = [told.0, told.1].map(|ring| ring.expect("no error").is_some());
        assert_eq!(told, made.map(|made| !made), "each is told once");
        assert_eq!(get(&mut a.link).await.0, round);
        assert_eq!(a.known(), b.known());
        now_s += 12 * HOUR_S;
    }
}

/// A key of another day makes the other servers wipe theirs.
#[tokio::test]
async fn a_server_with_a_wrong_clock_makes_no_key() {
    let cluster = Cluster::new().await;
    let server = async || {
        let name = "shop".parse().expect("a name");
        let keys = ClusterKeys::new(name, &cluster.key, None).expect("a lead");
        Server { keys, link: link(&cluster.valkey).await }
    };
    let (mut right, mut wrong) = (server().await, server().await);
    let now_s = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    for apart_s in [30 * HOUR_S as i64, -30 * HOUR_S as i64, 150, -150] {
        let theirs_s = now_s.saturating_add_signed(apart_s);
        assert!(wrong.follow(theirs_s).await.expect("an answer").is_none(), "it begins none");
        let told = wrong.keys.clock_apart_s().expect("apart");
        assert!((apart_s - 5..=apart_s + 5).contains(&told), "{told}");
    }
    right.follow(now_s).await.expect("an answer").expect("a ring");
    let made = get(&mut right.link).await;
    for apart_s in [30 * HOUR_S as i64, -30 * HOUR_S as i64] {
        let theirs_s = now_s.saturating_add_signed(apart_s);
        wrong.follow(theirs_s).await.expect("an answer");
        wrong.follow(theirs_s).await.expect("an answer");
        let refused = wrong.rotate(theirs_s).await;
        assert!(matches!(refused, Err(Error::ClocksApart { .. })), "{refused:?}");
    }
    assert_eq!(get(&mut right.link).await, made);
    assert_eq!(wrong.known(), right.known());
    wrong.rotate(now_s + 100).await.expect("its clock is right again");
    assert_eq!(wrong.keys.clock_apart_s(), None);
}

/// Turns may be much longer than tickets live: nothing waits for the next one.
#[tokio::test]
async fn a_key_is_wiped_when_its_last_ticket_expires() {
    let cluster = Cluster::new().await;
    let month = Schedule::new(30 * 24 * HOUR_S, HOUR_S, HOUR_S).expect("a schedule");
    let mut server = cluster.server_of("shop", &cluster.key, Some(month)).await;
    let mut other = cluster.server().await;
    let turn_s = NOW_S + 30 * 24 * HOUR_S;
    for now_s in [NOW_S, turn_s - HOUR_S] {
        server.follow(now_s).await.expect("an answer").expect("another key");
    }
    let end_s = turn_s + HOUR_S + CLOCKS_APART_S;
    assert!(server.follow(end_s - 1).await.expect("an answer").is_none());
    assert_eq!(server.known().len(), 2);
    assert!(server.follow(end_s).await.expect("an answer").is_some());
    assert_eq!((server.known().len(), get(&mut server.link).await.0), (1, 3));
    other.follow(end_s).await.expect("an answer").expect("a ring");
    assert_eq!(other.known(), server.known());
    assert!(server.follow(end_s + 1).await.expect("an answer").is_none(), "it is told once");
}

#[tokio::test]
async fn who_only_follows_makes_no_key() {
    let cluster = Cluster::new().await;
    let mut looker = cluster.server().await;
    looker.keys = looker.keys.only_followed();
    assert!(looker.follow(NOW_S).await.expect("an answer").is_none());
    assert!(looker.keys.ring().is_none());
    let mut server = cluster.server().await;
    assert!(server.follow(NOW_S).await.expect("an answer").is_some());
    assert_eq!(looker.follow(NOW_S).await.expect("an answer").map(|_| ()), Some(()));
    assert_eq!(get(&mut looker.link).await.0, 1);
    looker.follow(NOW_S + 24 * HOUR_S).await.expect("an answer");
    assert_eq!(get(&mut looker.link).await.0, 1, "it is due, and not for a looker to make");
}

#[tokio::test]
async fn two_rotate_by_hand_at_once() {
    let cluster = Cluster::new().await;
    let (mut a, mut b) = (cluster.server().await, cluster.server().await);
    a.follow(NOW_S).await.expect("the first");
    let (by_a, by_b) = tokio::join!(a.rotate(NOW_S), b.rotate(NOW_S));
    let made = [by_a.expect("a key"), by_b.expect("another")];
    let ids = a.ids().await;
    assert_eq!(ids.len(), 3);
    assert!(made.iter().all(|id| ids.contains(id)));
    assert_eq!(b.ids().await, ids);
}

#[tokio::test]
async fn nobody_adds_a_key_who_has_not_the_lease() {
    let cluster = Cluster::new().await;
    let mut server = cluster.server().await;
    server.follow(NOW_S).await.expect("the first");
    let mut lease = redis::cmd("SET");
    lease
        .arg("rejoin:{shop}:lease")
        .arg("somebody")
        .exec_async(&mut server.link)
        .await
        .expect("set");
    let due_s = NOW_S + 12 * HOUR_S;
    assert!(server.follow(due_s).await.expect("no error").is_none());
    let refused = server.rotate(NOW_S).await.expect_err("somebody has it");
    let remedy = "delete rejoin:{shop}:lease in Valkey";
    assert!(matches!(refused, Error::Busy { .. }) && refused.to_string().ends_with(remedy));
    let [first] = server.ids().await[..] else { panic!("one key") };
    assert!(server.revoke(first).await, "to take one away needs none");
    redis::cmd("DEL").arg("rejoin:{shop}:lease").exec_async(&mut server.link).await.expect("gone");
    assert!(server.follow(due_s).await.expect("no error").is_some());
}

/// Valkey's clock was nine hours ahead when a ring was put back, as of a machine that starts, and was then set right.
#[tokio::test]
async fn a_clock_of_valkeys_that_was_ahead_does_not_stop_rotation() {
    const LEASE: &str = "rejoin:{shop}:lease";
    let cluster = Cluster::new().await;
    let mut server = cluster.server().await;
    server.follow(NOW_S).await.expect("the first");
    redis::cmd("DEL").arg(RING).exec_async(&mut server.link).await.expect("lost");
    server.follow(NOW_S).await.expect("put back");
    let rests: String =
        redis::cmd("GET").arg(LEASE).query_async(&mut server.link).await.expect("it rests");
    let since_s: u64 = rests.strip_prefix("rest ").and_then(|s| s.parse().ok()).expect("a time");
    let mut ahead = redis::cmd("SET");
    ahead.arg(LEASE).arg(format!("rest {}", since_s + 9 * HOUR_S));
    ahead.arg("PX").arg(9 * HOUR_S * 1_000);
    ahead.exec_async(&mut server.link).await.expect("set");
    let mut rest = async || -> u64 {
        server.follow(NOW_S).await.expect("an answer");
        redis::cmd("PTTL").arg(LEASE).query_async(&mut server.link).await.expect("a time")
    };
    let left_ms = [rest().await, rest().await];
    assert!(left_ms[0] <= 30_000 && left_ms[1] <= left_ms[0], "{left_ms:?}");
}

#[tokio::test]
async fn a_revoked_key_is_gone_when_others_follow() {
    let cluster = Cluster::new().await;
    let mut servers = [cluster.server().await, cluster.server().await, cluster.server().await];
    servers[0].follow(NOW_S).await.expect("the first");
    let leaked = servers[1].rotate(NOW_S).await.expect("a key");
    for server in &mut servers {
        assert!(server.ids().await.contains(&leaked));
    }
    assert!(servers[2].revoke(leaked).await);
    for server in &mut servers {
        assert!(!server.ids().await.contains(&leaked));
        assert!(!server.revoke(leaked).await, "no longer there");
    }
}

#[tokio::test]
async fn rotations_by_hand_leave_room_for_the_schedule() {
    let cluster = Cluster::new().await;
    let mut server = cluster.server().await;
    server.follow(NOW_S).await.expect("the first");
    for _ in 1..ClusterKeys::MOST_KEYS_BY_HAND {
        server.rotate(NOW_S).await.expect("room");
    }
    let full = server.rotate(NOW_S).await;
    assert!(matches!(full, Err(Error::Ring(rejoin_tickets::Error::RingFull { most: 15 }))));
}

#[tokio::test]
async fn a_schedule_is_applied_once() {
    let cluster = Cluster::new().await;
    let by = |turn_s| Some(Schedule::new(turn_s, HOUR_S, 150).expect("a schedule"));
    let mut first = cluster.server_of("shop", &cluster.key, by(HOUR_S)).await;
    let mut second = cluster.server_of("shop", &cluster.key, by(2 * HOUR_S)).await;
    for turn_s in [HOUR_S, 2 * HOUR_S, 2 * HOUR_S, 2 * HOUR_S] {
        let server = if turn_s == HOUR_S { &mut first } else { &mut second };
        server.follow(NOW_S).await.expect("no error");
        let ring = server.keys.ring().expect("a ring");
        assert_eq!(ring.schedule().rotate_every_s(), turn_s);
        first.follow(NOW_S).await.expect("no error");
        let ring = first.keys.ring().expect("a ring");
        assert_eq!(ring.schedule().rotate_every_s(), turn_s, "it does not change it back");
    }
    let version = get(&mut first.link).await.0;
    assert_eq!(version, 2, "a ring and a change");
    let short = Schedule::new(HOUR_S, HOUR_S, 149).expect("a schedule");
    let short = ClusterKeys::new("shop".parse().expect("a name"), &cluster.key, Some(short));
    assert!(matches!(short, Err(Error::ShortLead { lead_s: 149, least_s: 150 })));
}

#[tokio::test]
async fn an_older_ring_is_refused_and_replaced() {
    let cluster = Cluster::new().await;
    let (mut a, mut b) = (cluster.server().await, cluster.server().await);
    a.follow(NOW_S).await.expect("the first");
    let leaked = a.rotate(NOW_S).await.expect("a key");
    let old = get(&mut a.link).await;
    assert!(a.revoke(leaked).await);
    let ids = b.ids().await;
    put(&mut a.link, RING, &old).await;
    let refused = b.follow(NOW_S).await;
    assert!(matches!(refused, Err(Error::RolledBack { found: 2, seen: 3, .. })), "{refused:?}");
    assert_eq!((b.keys.refused(), b.ids().await), (1, ids.clone()));
    assert_eq!((a.ids().await, a.keys.refused()), (ids.clone(), 0));
    assert_eq!(cluster.server().await.ids().await, ids, "nor has a new server the revoked key");
    // The old page under a new version.
    put(&mut a.link, RING, &(99, old.1)).await;
    assert!(matches!(a.follow(NOW_S).await, Err(Error::Unopened { .. })));
    assert_eq!((a.keys.refused(), a.known()), (1, ids));
}

#[tokio::test]
async fn clusters_of_one_key_file_have_each_a_record() {
    let cluster = Cluster::new().await;
    let path = cluster.valkey.folder.join("key");
    let record = |name: &str| {
        RingRecord::open(&path, &cluster.key, &name.parse().expect("a name")).expect("ours")
    };
    for (name, keys) in [("shop", 3), ("other", 1), ("third", 2), ("shop", 1)] {
        let mut server = cluster.server_of(name, &cluster.key, None).await;
        server.keys = server.keys.recorded_in(record(name));
        server.follow(NOW_S).await.expect("a ring");
        for _ in 0..keys {
            server.rotate(NOW_S).await.expect("a key");
        }
    }
    assert_eq!(["shop", "other", "third", "none"].map(|name| record(name).seen()), [5, 2, 3, 0]);
}

#[tokio::test]
async fn a_ring_of_another_cluster_or_key_is_refused() {
    let cluster = Cluster::new().await;
    let mut ours = cluster.server().await;
    let ids = ours.ids().await;
    let mut theirs = cluster.server_of("other", &cluster.key, None).await;
    for round in 1..=3 {
        theirs.rotate(NOW_S).await.expect("a key");
        let read =
            redis::cmd("HMGET").arg("rejoin:{other}:ring").arg("version").arg("page").to_owned();
        let page: (u64, Vec<u8>) = read.query_async(&mut ours.link).await.expect("a ring");
        put(&mut ours.link, RING, &page).await;
        assert!(matches!(ours.follow(NOW_S).await, Err(Error::Unopened { .. })));
        assert_eq!((ours.keys.refused(), ours.known()), (round, ids.clone()));
    }
    let other_key = ClusterSecret::create(&cluster.valkey.folder.join("other")).expect("a key");
    let mut stranger = cluster.server_of("other", &other_key, None).await;
    assert!(matches!(stranger.follow(NOW_S).await, Err(Error::Unopened { .. })));
    assert!(stranger.keys.ring().is_none());
    for page in [vec![], vec![0; 5], vec![7; 4_124]] {
        put(&mut ours.link, RING, &(100, page)).await;
        assert!(matches!(ours.follow(NOW_S).await, Err(Error::Unopened { .. })));
    }
    redis::cmd("DEL").arg(RING).exec_async(&mut ours.link).await.expect("gone");
    assert_eq!(ours.ids().await, ids);
    assert_eq!(cluster.server().await.ids().await, ids, "it put its own back");
}

#[tokio::test]
async fn an_empty_valkey_gets_the_newest_ring_back() {
    let mut cluster = Cluster::new().await;
    let (mut a, mut b) = (cluster.server().await, cluster.server().await);
    b.follow(NOW_S).await.expect("the first");
    let newest = a.rotate(NOW_S).await.expect("a key that b has not seen");
    cluster.valkey.restart_empty();
    // The connections were lost; whoever has the older ring comes first.
    until_connected(&mut b).await.expect("put back");
    assert_eq!(get(&mut b.link).await.0, 2, "b put its own back");
    let due_s = NOW_S + 12 * HOUR_S;
    assert!(b.follow(due_s).await.expect("no error").is_none(), "no key before all have looked");
    assert!(cluster.server().await.follow(due_s).await.expect("no error").is_some(), "as it is");
    assert_eq!(get(&mut b.link).await.0, 2);
    // Version 2 is another one to a, which puts its own in its place.
    let refused = until_connected(&mut a).await;
    assert!(matches!(refused, Err(Error::RolledBack { found: 2, seen: 2, .. })), "{refused:?}");
    assert!(a.ids().await.contains(&newest));
    assert_eq!(b.ids().await, a.ids().await);
    assert_eq!(get(&mut b.link).await.0, 3);
}

/// Follows the ring until the lost connection is back. Returns the first answer.
async fn until_connected(server: &mut Server) -> Result<Option<KeyRing>, Error> {
    let answered = async {
        loop {
            match server.follow(NOW_S).await {
                Err(Error::Valkey(_)) => tokio::time::sleep(STEP).await,
                answered => return answered,
            }
        }
    };
    tokio::time::timeout(DEADLINE, answered).await.expect("an answer in time")
}

#[tokio::test]
async fn what_is_away_changes_nothing() {
    let mut cluster = Cluster::new().await;
    let mut server = cluster.server().await;
    let before = server.ids().await;
    cluster.valkey.stop();
    for _ in 0..2 {
        let answer = server.follow(NOW_S + 12 * HOUR_S).await;
        assert!(matches!(answer, Err(Error::Valkey(_))), "{answer:?}");
        assert_eq!(server.known(), before);
    }
}

#[tokio::test]
async fn flushed_scripts_are_loaded_again() {
    let cluster = Cluster::new().await;
    let mut server = cluster.server().await;
    server.follow(NOW_S).await.expect("the first");
    for round in 2..5 {
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut server.link).await.expect("flushed");
        server.rotate(NOW_S).await.expect("a key");
        assert_eq!(server.ids().await.len(), round);
    }
}

#[tokio::test]
async fn a_cluster_of_valkey_keeps_the_ring_too() {
    let valkey = ValkeyCluster::of(1);
    let key = ClusterSecret::create(&valkey.nodes[0].folder.join("key")).expect("a key");
    let server = async || {
        let keys = ClusterKeys::new("shop".parse().expect("a name"), &key, None)
            .expect("a lead")
            .trusting_clock();
        Server { keys, link: valkey.link().await }
    };
    let (mut a, mut b) = (server().await, server().await);
    until_connected(&mut a).await.expect("the first");
    let id = b.rotate(NOW_S).await.expect("a key");
    assert!(a.ids().await.contains(&id));
    assert!(a.revoke(id).await);
    assert!(!b.ids().await.contains(&id));
}

/// A change that no replica has is lost with the primary.
#[tokio::test]
async fn whoever_changes_the_ring_learns_how_many_replicas_have_it() {
    let cluster = Cluster::new().await;
    let mut server = cluster.server().await;
    let first = server.ids().await;
    let mut replicated = async || {
        server.rotate(NOW_S).await.expect("a key");
        let Server { keys, link } = &mut server;
        let replicas = keys.replicated(link, NOW_S).await.expect("an answer").expect("allowed");
        (replicas.connected, replicas.reached)
    };
    assert_eq!(replicated().await, (0, 0));
    let replicas = [(); 2].map(|()| replica(cluster.valkey.port, &[]));
    assert_eq!(replicated().await, (2, 2));
    let has_it = |of: &Valkey| of.say(&format!("HGET {RING} version"));
    assert_eq!([&replicas[0], &replicas[1]].map(has_it), ["3", "3"]);
    replicas[0].process().signal(Signal::STOP);
    assert_eq!(replicated().await, (2, 1));
    assert_eq!(has_it(&replicas[1]), "4");
    replicas[0].process().signal(Signal::CONT);
    assert_eq!(replicated().await, (2, 2));
    assert_eq!(server.ids().await.len(), first.len() + 4);
}

/// The replicas are those of the node that has the ring's slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_cluster_the_replicas_of_the_rings_node_count() {
    let valkey = ValkeyCluster::with_replicas();
    let owner = valkey.owner(valkey.slot(RING));
    let key = ClusterSecret::create(&owner.folder.join("key")).expect("a key");
    let keys = ClusterKeys::new("shop".parse().expect("a name"), &key, None)
        .expect("a lead")
        .trusting_clock();
    let mut server = Server { keys, link: valkey.link().await };
    until_connected(&mut server).await.expect("the first");
    let mut replicated = async || {
        server.rotate(NOW_S).await.expect("a key");
        let Server { keys, link } = &mut server;
        let replicas = keys.replicated(link, NOW_S).await.expect("an answer").expect("allowed");
        (replicas.connected, replicas.reached)
    };
    assert_eq!(replicated().await, (1, 1));
    let (others, own): (Vec<&Valkey>, Vec<&Valkey>) = valkey.nodes.iter().partition(|node| {
        let told = node.say("INFO replication");
        !told.contains(&format!("master_port:{}\r", owner.port))
    });
    let [own] = own[..] else { panic!("one replica") };
    own.process().signal(Signal::STOP);
    assert_eq!(replicated().await, (1, 0));
    own.process().signal(Signal::CONT);
    assert_eq!(others.len(), 5);
}

/// A user who may not ask for replicas is told so, and changes the ring all the same.
#[tokio::test]
async fn who_may_not_ask_for_replicas_is_told() {
    let cluster = Cluster::new().await;
    cluster.valkey.say("ACL SETUSER default -info");
    let mut server = cluster.server().await;
    server.ids().await;
    let id = server.rotate(NOW_S).await.expect("a key");
    let Server { keys, link } = &mut server;
    assert_eq!(keys.replicated(link, NOW_S).await.expect("an answer"), None);
    assert!(server.ids().await.contains(&id));
}
