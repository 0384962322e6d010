//! The ACL of docs/cluster.md with a real Valkey or Redis: it allows what a cluster needs, and nothing else.

use std::collections::BTreeSet;

use rejoin_cache::{ContextTag, SecretBytes, SessionId};
use rejoin_cluster::sessions::{Bounds, Entry, Past, Sessions};
use rejoin_cluster::{
    ClusterKeys, ClusterSecret, Error, Link, Login, Machines, Report, Servers, Settings,
};
use rejoin_testkit::cluster::{ValkeyCluster, replay, servers};
use rejoin_testkit::folder::Folder;
use rejoin_testkit::sentinels::replica;
use rejoin_testkit::valkey::Valkey;
use zeroize::Zeroizing;

const GUIDE: &str = include_str!("../../../../docs/cluster.md");
/// The name in the guide's settings.
const NAME: &str = "web";
const RING: &str = "rejoin:{web}:ring";
const NOW_MS: u64 = replay::BEGAN_MS;
const HOUR_MS: u64 = 3_600_000;

/// Returns the guide's rules for the agents' user, as they stand there.
fn rules() -> &'static str {
    let (_, section) = GUIDE.split_once("\n## Valkey\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("another section");
    let lines: Vec<_> = section.lines().filter(|line| line.starts_with("user ")).collect();
    let [rules] = lines[..] else { panic!("one user: {lines:?}") };
    rules
}

fn as_the_user(servers: Servers) -> Servers {
    let password = Some(Zeroizing::new("PASSWORD".to_owned()));
    Servers { login: Login::new(Some("rejoin".to_owned()), password), ..servers }
}

async fn link(nodes: &[&Valkey], clustered: bool) -> Link {
    Link::connect(&as_the_user(servers(nodes, clustered))).await.expect("let in")
}

/// Creates, rotates and revokes keys, and restores a ring that was replaced by an older one.
async fn use_ring(link: &mut Link, folder: &Folder) {
    let now_s = NOW_MS / 1_000;
    let key = ClusterSecret::create(&folder.join("key")).expect("a key");
    let mut keys = ClusterKeys::new(NAME.parse().expect("a name"), &key, None)
        .expect("a lead")
        .trusting_clock();
    keys.follow(link, now_s).await.expect("the first");
    let read = redis::cmd("HMGET").arg(RING).arg("version").arg("page").to_owned();
    let (version, page): (u64, Vec<u8>) = read.query_async(link).await.expect("a ring");
    let id = keys.rotate(link, now_s).await.expect("a key");
    assert!(keys.revoke(link, &id, now_s).await.expect("revoked"));
    keys.replicated(link, now_s).await.expect("an answer").expect("it may ask");
    let mut put = redis::cmd("HSET");
    put.arg(RING).arg("version").arg(version).arg("page").arg(page);
    put.exec_async(link).await.expect("put");
    let refused = keys.follow(link, now_s).await;
    assert!(matches!(refused, Err(Error::RolledBack { .. })), "{refused:?}");
    keys.follow(link, now_s).await.expect("its own again");
}

fn id(number: u8) -> SessionId {
    SessionId::new(&[number; 32]).expect("32 bytes")
}

/// Reports two machines, one of them twice.
async fn use_reports(link: &mut Link, folder: &Folder) {
    let secret = ClusterSecret::create(&folder.join("key-of-reports")).expect("a key");
    let machines = Machines::new(&NAME.parse().expect("a name"), &secret);
    for (name, is_there) in [("one", false), ("other", false), ("one", true)] {
        let report = Report::new(name.parse().expect("a name"), None, secret.key_name());
        let before = machines.put(link, &report).await.expect("room");
        assert_eq!(before.is_some(), is_there, "{name}");
    }
    let listed = machines.read(link).await.expect("an answer");
    assert_eq!((listed.reports.len(), listed.unopened), (2, 0));
}

/// Does all that agents do with sessions, one of which `admin` alters.
async fn use_sessions(link: Link, mut admin: Link) {
    const ALTER: &str = "\
        for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do \
          redis.call('HSET', KEYS[1], id, redis.call('HGET', KEYS[1], id) .. 'x') \
        end";
    let bounds = Bounds { shards: 1, sessions: 3, bytes: 1 << 20, grace_ms: 2_000 };
    let sessions = Sessions::new(link, NAME, &[3; 32], bounds, &replay::ring(1)).expect("in range");
    for number in 1..=4 {
        let (id, value) = (id(number), SecretBytes::from(vec![number; 150]));
        let returns_ms = NOW_MS + 60_000 - u64::from(number);
        let (context, past, expires_ms) = (ContextTag(5), Past::default(), NOW_MS + HOUR_MS);
        let entry = Entry { id: &id, context, value: &value, expires_ms, past, returns_ms };
        sessions.put(NOW_MS, &entry).await.expect("stored");
    }
    assert!(sessions.get(NOW_MS, &id(4)).await.expect("an answer").is_some());
    let seen = Past { seen_ms: NOW_MS + 1, ..Past::default() };
    assert!(sessions.expect(&id(4), seen, NOW_MS + 9, NOW_MS + HOUR_MS).await.expect("there"));
    assert!(sessions.take(NOW_MS, &id(4)).await.expect("an answer").is_some());
    assert!(sessions.remove(&id(3)).await.expect("an answer"));
    let alter = redis::cmd("EVAL").arg(ALTER).arg(1).arg("rejoin:{web.0}:values").to_owned();
    alter.exec_async(&mut admin).await.expect("altered");
    assert!(sessions.get(NOW_MS, &id(2)).await.expect("an answer").is_none());
    sessions.report_rejected().await.expect("reported");
    let (id, value) = (id(5), SecretBytes::from(vec![5; 150]));
    let (context, past, expires_ms) = (ContextTag(5), Past::default(), NOW_MS + HOUR_MS);
    let entry = Entry { id: &id, context, value: &value, expires_ms, past, returns_ms: NOW_MS };
    sessions.put(NOW_MS, &entry).await.expect("stored");
    assert_eq!(sessions.evict(NOW_MS + 9 * HOUR_MS, 0, 0, 10).await.expect("an answer"), 1);
    assert_eq!(sessions.total().await.expect("counts").rejected, 1);
}

/// Returns the commands that the rules allow.
fn allowed() -> BTreeSet<&'static str> {
    rules().split(' ').filter_map(|rule| rule.strip_prefix('+')).collect()
}

/// Returns the allowed commands that no node was ever asked for.
fn unused(nodes: &[&Valkey]) -> BTreeSet<&'static str> {
    let stats: Vec<_> = nodes.iter().map(|node| node.say("INFO commandstats")).collect();
    let is_used = |name: &str| {
        let line = format!("cmdstat_{name}:calls=");
        stats.iter().any(|stats| stats.contains(&line))
    };
    allowed().into_iter().filter(|name| !is_used(name)).collect()
}

/// Runs a command. Returns the reason if Valkey does not permit it.
async fn refusal(link: &mut Link, command: &str) -> Option<String> {
    let mut words = command.split(' ');
    let mut asked = redis::cmd(words.next().expect("a command"));
    asked.arg(words.collect::<Vec<_>>());
    let refused = asked.query_async::<redis::Value>(link).await.err()?;
    (refused.code() == Some("NOPERM")).then(|| refused.to_string())
}

/// Commands that could harm other users of Valkey, reveal their data, or take the server over.
const FORBIDDEN: [&str; 39] = [
    "FLUSHALL",
    "FLUSHDB",
    "KEYS *",
    "SCAN 0",
    "RANDOMKEY",
    "DBSIZE",
    "SWAPDB 0 1",
    "CONFIG GET *",
    "CONFIG SET maxmemory 1",
    "CONFIG SET dir /tmp",
    "SCRIPT FLUSH",
    "SCRIPT KILL",
    "SCRIPT EXISTS x",
    "EVAL return(1) 0",
    "FUNCTION LOAD x",
    "FUNCTION FLUSH",
    "DEBUG SLEEP 0",
    "SHUTDOWN NOSAVE",
    "SAVE",
    "BGSAVE",
    "BGREWRITEAOF",
    "REPLICAOF 127.0.0.1 1",
    "MIGRATE 127.0.0.1 1 x 0 1",
    "MODULE LIST",
    "MONITOR",
    "ACL LIST",
    "ACL SETUSER rejoin +@all",
    "CLIENT LIST",
    "CLIENT KILL TYPE normal",
    "CLIENT PAUSE 1",
    "LATENCY RESET",
    "SLOWLOG GET",
    "MEMORY USAGE rejoin:{web}:ring",
    "PUBLISH rejoin x",
    "SUBSCRIBE rejoin",
    "DUMP rejoin:{web}:ring",
    "RENAME rejoin:{web}:ring rejoin:{web}:lease",
    "CLUSTER NODES",
    "SORT rejoin:{web}:ring",
];

/// Permitted commands with other keys: those of other programs, and of other clusters.
const FOREIGN: [&str; 11] = [
    "GET foreign",
    "SET foreign 1 PX 1000",
    "DEL foreign",
    "HGET sessions x",
    "HMGET rejoin:{other}:ring page",
    "HSET rejoin:{other}:ring page x",
    "HSET rejoin:{web}:else page x",
    "HGET rejoin:{other}:machines x",
    "ZRANGE rejoin:{other}:reported 0 -1",
    "ZCARD rejoin:{other.0}:order",
    "ZCARD xrejoin:{web.0}:order",
];

/// Agents tell the rules to whoever has old ones.
#[test]
fn the_guides_rules_are_those_that_agents_tell() {
    let folder = Folder::new();
    let text =
        format!("name = \"{NAME}\"\nservers = [\"a:1\"]\nkey_file = \"/k\"\ncapacity = \"1MiB\"\n");
    let settings = Settings::read(&folder.write("cluster.toml", text)).expect("settings");
    assert_eq!(rules(), format!("user rejoin on >PASSWORD {}", settings.acl_rules()));
}

#[tokio::test]
async fn the_guides_acl_allows_what_agents_need_and_nothing_else() {
    let folder = Folder::new();
    let users = folder.write("users.acl", format!("{}\n", rules()));
    // Otherwise DEBUG is refused to all, before the ACL is asked.
    let debug = ["--enable-debug-command", "yes"];
    let valkey =
        Valkey::start(&[&["--aclfile", users.to_str().expect("UTF-8")], &debug[..]].concat());
    let mut link = link(&[&valkey], false).await;
    use_ring(&mut link, &folder).await;
    use_reports(&mut link, &folder).await;
    use_sessions(link.clone(), Link::connect(&servers(&[&valkey], false)).await.expect("all"))
        .await;
    assert_eq!(valkey.say("ACL LOG"), "", "something was refused");
    let mut permitted = Vec::new();
    for command in FORBIDDEN.iter().chain(&FOREIGN) {
        if refusal(&mut link, command).await.is_none() {
            permitted.push(*command);
        }
    }
    assert!(permitted.is_empty(), "the ACL of docs/cluster.md permits {permitted:#?}");
    let of_clusters = ["asking", "cluster|slots", "ping"];
    assert_eq!(unused(&[&valkey]), BTreeSet::from(of_clusters), "allowed, and not needed");
    let in_script = "return redis.call('GET', 'foreign')";
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(in_script).to_owned();
    let sha: String = load.query_async(&mut link).await.expect("loaded");
    let run = redis::cmd("EVALSHA").arg(sha).arg(0).to_owned();
    assert!(run.exec_async(&mut link).await.is_err(), "a script reads a foreign key");
}

#[tokio::test]
async fn the_guides_acl_is_enough_for_a_primary_and_its_replicas() {
    let one = Valkey::start(&[]);
    let nodes = [&one, &replica(one.port, &[])];
    let rules = rules().strip_prefix("user ").expect("a user");
    for node in nodes {
        assert_eq!(node.say(&format!("ACL SETUSER {rules}")), "OK");
    }
    let mut link = link(&nodes, false).await;
    let folder = Folder::new();
    use_ring(&mut link, &folder).await;
    use_reports(&mut link, &folder).await;
    use_sessions(link, Link::connect(&servers(&[&one], false)).await.expect("all")).await;
    for node in nodes {
        assert_eq!(node.say("ACL LOG"), "", "something was refused");
    }
}

#[tokio::test]
async fn the_guides_acl_is_enough_for_a_cluster_of_valkey() {
    let valkey = ValkeyCluster::of(3);
    let nodes: Vec<_> = valkey.nodes.iter().collect();
    let rules = rules().strip_prefix("user ").expect("a user");
    for node in &nodes {
        assert_eq!(node.say(&format!("ACL SETUSER {rules}")), "OK");
    }
    let folder = Folder::new();
    let mut link = link(&nodes, true).await;
    use_ring(&mut link, &folder).await;
    use_reports(&mut link, &folder).await;
    use_sessions(link, valkey.link().await).await;
    for node in &nodes {
        assert_eq!(node.say("ACL LOG"), "", "something was refused");
    }
    // Only moving slots between nodes needs it.
    assert_eq!(unused(&nodes), BTreeSet::from(["asking"]), "allowed, and not needed");
}
