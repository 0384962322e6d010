//! Sessions in a real Valkey or Redis, alone and clustered.

use rejoin_cache::{ContextTag, History, Refusal, SecretBytes, SessionId};
use rejoin_cluster::sessions::{
    Bounds, ENTRY_OVERHEAD_BYTES, Entry, Found, Misses, NEVER_MS, Past, Put, Sessions, Taken,
};
use rejoin_cluster::{Error, Link};
use rejoin_testkit::cluster::replay::{self, ring};
use rejoin_testkit::cluster::{ValkeyCluster, link};
use rejoin_testkit::valkey::Valkey;
use rejoin_tickets::{KeyRing, Schedule};

const NOW_MS: u64 = replay::BEGAN_MS;
const HOUR_MS: u64 = 3_600_000;

fn past(history: [u8; History::BYTES]) -> Past {
    Past { history: History::from_bytes(history), seen_ms: NOW_MS - 5 }
}

/// The length of a value of 150 bytes in Valkey: with version and past visits, seal, context and expiry.
const HELD_BYTES: u64 = 150 + 13 + 44 + 12;

const ROOMY: Bounds = Bounds { shards: 16, sessions: 16_000, bytes: 16_000_000, grace_ms: 2_000 };

fn sessions(link: Link, bounds: Bounds) -> Sessions {
    Sessions::new(link, "shop", &[3; 32], bounds, &ring(1)).expect("in range")
}

fn one_shard(link: Link, sessions: u64) -> Sessions {
    self::sessions(link, Bounds { shards: 1, sessions, ..ROOMY })
}

fn id(number: u64) -> SessionId {
    let mut bytes = *b"the session id of client ........";
    bytes[24..32].copy_from_slice(&number.to_le_bytes());
    SessionId::new(&bytes[..32]).expect("32 bytes")
}

fn value(number: u64) -> SecretBytes {
    let mut bytes = b"the master secret of a session, ".repeat(5);
    bytes.truncate(142);
    bytes.extend(number.to_le_bytes());
    SecretBytes::from(bytes)
}

async fn put(sessions: &Sessions, number: u64, returns_ms: u64) -> Result<Put, Error> {
    put_until(sessions, number, returns_ms, NOW_MS + HOUR_MS).await
}

async fn put_until(
    sessions: &Sessions,
    number: u64,
    returns_ms: u64,
    expires_ms: u64,
) -> Result<Put, Error> {
    let (id, value) = (id(number), value(number));
    let (context, past) = (ContextTag(5), past([1, 2, 3, 4]));
    let entry = Entry { id: &id, context, value: &value, expires_ms, past, returns_ms };
    sessions.put(NOW_MS, &entry).await
}

async fn put_back(sessions: &Sessions, number: u64, taken: &Taken) -> Put {
    let (id, value, returns_ms) = (id(number), value(number), NOW_MS + 60_000);
    let (context, past, expires_ms) = (ContextTag(5), past([1, 2, 3, 4]), NOW_MS + HOUR_MS);
    let entry = Entry { id: &id, context, value: &value, expires_ms, past, returns_ms };
    sessions.put_back(NOW_MS, &entry, taken).await.expect("an answer")
}

async fn take(sessions: &Sessions, number: u64) -> Option<Taken> {
    sessions.take(NOW_MS, &id(number)).await.expect("an answer")?.taken
}

async fn is_there(sessions: &Sessions, number: u64) -> bool {
    let found = sessions.get(NOW_MS, &id(number)).await.expect("an answer");
    found.inspect(|found| assert_eq!(*found.value, *value(number))).is_some()
}

fn stored(evicted: u32) -> Put {
    Put::Stored { evicted }
}

/// The hashed ids of the sessions in the only shard.
async fn members(link: &mut Link) -> Vec<Vec<u8>> {
    redis::cmd("HKEYS").arg("rejoin:{shop.0}:values").query_async(link).await.expect("members")
}

async fn each_operation_does_what_it_says(link: Link) {
    let sessions = sessions(link, ROOMY);
    for number in 0..100 {
        assert_eq!(put(&sessions, number, NOW_MS + 60_000).await.expect("room"), stored(0));
    }
    let total = sessions.total().await.expect("counts");
    assert_eq!((total.sessions, total.stored), (100, 100));
    assert_eq!(total.bytes, 100 * (HELD_BYTES + ENTRY_OVERHEAD_BYTES));

    let Found { context, value: found, expires_ms, past: was, .. } =
        sessions.get(NOW_MS, &id(7)).await.expect("an answer").expect("it is there");
    assert_eq!((context, expires_ms), (ContextTag(5), NOW_MS + HOUR_MS));
    assert_eq!((&*found, was), (&*value(7), past([1, 2, 3, 4])));

    let newer = past([9, 8, 7, 6]);
    assert!(sessions.expect(&id(7), newer, NOW_MS + 9, expires_ms).await.expect("an answer"));
    assert!(!sessions.expect(&id(100), newer, NOW_MS + 9, expires_ms).await.expect("an answer"));
    let seen = sessions.take(NOW_MS, &id(7)).await.expect("an answer").expect("it is there");
    assert_eq!((&*seen.value, seen.past), (&*value(7), newer));
    assert!(sessions.take(NOW_MS, &id(7)).await.expect("an answer").is_none());

    assert!(sessions.remove(&id(8)).await.expect("an answer"));
    assert!(!sessions.remove(&id(8)).await.expect("an answer"));
    assert!(!is_there(&sessions, 8).await && is_there(&sessions, 9).await);
    assert!(sessions.get(NOW_MS + HOUR_MS, &id(9)).await.expect("an answer").is_none());
    let total = sessions.total().await.expect("counts");
    assert_eq!((total.sessions, total.bytes), (98, 98 * (HELD_BYTES + ENTRY_OVERHEAD_BYTES)));
    assert_eq!(sessions.misses(), Misses { absent: 2, expired: 1, ..Misses::default() });

    let mut gone = 0;
    for shard in 0..ROOMY.shards {
        gone += sessions.evict(NOW_MS + 62_001, 0, shard, 1_000).await.expect("an answer");
    }
    assert_eq!(gone, 98);
    let beyond = sessions.evict(NOW_MS, 0, Sessions::MOST_SHARDS, 1).await;
    assert!(matches!(beyond, Err(Error::OutOfRange { .. })));
}

async fn scripts_flushed_are_mended(link: Link, nodes: &[Valkey]) {
    let sessions = sessions(link, ROOMY);
    for number in 2_000..2_020 {
        for node in nodes {
            node.say("SCRIPT FLUSH");
        }
        assert_eq!(put(&sessions, number, NOW_MS + 60_000).await.expect("mended"), stored(0));
    }
    for node in nodes {
        node.say("SCRIPT FLUSH");
    }
    assert!(sessions.take(NOW_MS, &id(2_003)).await.expect("mended").is_some());
}

async fn a_session_is_taken_once(one: Link, other: Link) {
    let (one, other) = (sessions(one, ROOMY), sessions(other, ROOMY));
    for number in 1_000..1_300 {
        put(&one, number, NOW_MS + 60_000).await.expect("room");
        let id = id(number);
        let (here, there) = tokio::join!(one.take(NOW_MS, &id), other.take(NOW_MS, &id));
        let given = [here, there].map(|taken| u32::from(taken.expect("an answer").is_some()));
        assert_eq!(given.iter().sum::<u32>(), 1, "{number}");
    }
}

/// A put whose answer is lost may be sent again, and come late.
#[tokio::test]
async fn a_session_that_was_taken_is_only_put_back_by_its_taker_and_once() {
    let valkey = Valkey::start(&[]);
    let sessions = one_shard(link(&valkey).await, 100);
    put(&sessions, 1, NOW_MS + 60_000).await.expect("room");
    let first = take(&sessions, 1).await.expect("it is there");
    assert_eq!(put(&sessions, 1, NOW_MS + 60_000).await.expect("an answer"), Put::Taken);
    assert!(!is_there(&sessions, 1).await);
    assert_eq!(put_back(&sessions, 1, &first).await, stored(0));
    let second = take(&sessions, 1).await.expect("it is there");
    for late in [&first, &first] {
        assert_eq!(put_back(&sessions, 1, late).await, Put::Taken);
    }
    assert_eq!(put_back(&sessions, 1, &second).await, stored(0));
    assert_eq!(put_back(&sessions, 1, &second).await, Put::Taken);
    assert!(is_there(&sessions, 1).await);
}

#[tokio::test]
async fn with_one_server() {
    let valkey = Valkey::start(&[]);
    each_operation_does_what_it_says(link(&valkey).await).await;
    valkey.say("FLUSHALL");
    a_session_is_taken_once(link(&valkey).await, link(&valkey).await).await;
    scripts_flushed_are_mended(link(&valkey).await, std::slice::from_ref(&valkey)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_cluster() {
    let cluster = ValkeyCluster::of(3);
    each_operation_does_what_it_says(cluster.link().await).await;
    a_session_is_taken_once(cluster.link().await, cluster.link().await).await;
    scripts_flushed_are_mended(cluster.link().await, &cluster.nodes).await;
    for node in &cluster.nodes {
        assert!(node.say("DBSIZE") != "0", "every node has some of the shards");
    }
}

#[tokio::test]
async fn the_one_overdue_goes_and_else_the_one_that_returns_last() {
    let valkey = Valkey::start(&[]);
    let sessions = one_shard(link(&valkey).await, 3);
    for (number, returns_s) in [(1, 10), (2, 20), (3, 30)] {
        put(&sessions, number, NOW_MS + 1_000 * returns_s).await.expect("room");
    }
    let later = put(&sessions, 4, NOW_MS + 31_000).await.expect("an answer");
    assert_eq!(later, Put::Refused(Refusal::ReturnsLater));
    let sibling = put(&sessions, 4, NEVER_MS).await.expect("an answer");
    assert_eq!(sibling, Put::Refused(Refusal::ReturnsLater));
    assert_eq!(put(&sessions, 5, NOW_MS + 15_000).await.expect("an answer"), stored(1));
    assert!(!is_there(&sessions, 3).await && is_there(&sessions, 1).await);

    // Expected two seconds ago is on its way; a moment more is overdue.
    let expect = |number, returns_ms| {
        let (id, sessions) = (id(number), &sessions);
        async move { sessions.expect(&id, Past::default(), returns_ms, NOW_MS + HOUR_MS).await }
    };
    assert!(expect(1, NOW_MS - 2_000).await.expect("an answer"));
    let later = put(&sessions, 6, NOW_MS + 40_000).await.expect("an answer");
    assert_eq!(later, Put::Refused(Refusal::ReturnsLater));
    assert!(expect(1, NOW_MS - 2_001).await.expect("an answer"));
    assert_eq!(put(&sessions, 6, NOW_MS + 40_000).await.expect("an answer"), stored(1));
    assert!(!is_there(&sessions, 1).await && is_there(&sessions, 2).await);

    // Who returns when the session is over does not return.
    assert!(expect(2, NOW_MS + HOUR_MS + 1).await.expect("an answer"));
    assert_eq!(put(&sessions, 7, NOW_MS + 50_000).await.expect("an answer"), stored(1));
    assert!(!is_there(&sessions, 2).await && is_there(&sessions, 6).await);
    let counts = sessions.counts(0).await.expect("counts");
    assert_eq!((counts.overdue, counts.latest, counts.refused), (1, 2, 3));
}

#[tokio::test]
async fn those_overdue_or_over_are_removed_a_few_at_a_time() {
    let valkey = Valkey::start(&[]);
    let sessions = one_shard(link(&valkey).await, 100);
    for number in 0..10 {
        put(&sessions, number, NOW_MS + number).await.expect("room");
        put_until(&sessions, 10 + number, NEVER_MS, NOW_MS + 10 + number).await.expect("room");
    }
    let at = NOW_MS + 2_003;
    assert_eq!(sessions.evict(at, 0, 0, 2).await.expect("an answer"), 2);
    assert!(!is_there(&sessions, 1).await && is_there(&sessions, 2).await);
    assert_eq!(sessions.evict(at, 0, 0, 6).await.expect("an answer"), 6);
    assert!(!is_there(&sessions, 2).await && is_there(&sessions, 3).await);
    assert!(!is_there(&sessions, 14).await && is_there(&sessions, 15).await);
    assert_eq!(sessions.evict(at, 0, 0, 100).await.expect("an answer"), 5);
    let counts = sessions.counts(0).await.expect("counts");
    assert_eq!((counts.sessions, counts.overdue, counts.expired), (7, 3, 10));
    assert_eq!(counts.bytes, 7 * (HELD_BYTES + ENTRY_OVERHEAD_BYTES));
}

#[tokio::test]
async fn shards_that_are_no_longer_used_are_emptied_too() {
    let valkey = Valkey::start(&[]);
    let many = sessions(link(&valkey).await, ROOMY);
    for number in 0..50 {
        put(&many, number, NOW_MS + number).await.expect("room");
    }
    let few = one_shard(link(&valkey).await, 100);
    let mut gone = 0;
    for shard in 0..ROOMY.shards {
        gone += few.evict(NOW_MS + 60_000, 0, shard, 100).await.expect("an answer");
    }
    assert_eq!((gone, many.total().await.expect("counts").sessions), (50, 0));
}

#[tokio::test]
async fn counts_that_are_none_count_as_zero() {
    let valkey = Valkey::start(&[]);
    let sessions = one_shard(link(&valkey).await, 100);
    put(&sessions, 1, NOW_MS).await.expect("room");
    for (text, bytes) in [("-295", 0), ("many", 0), ("18446744073709551615", u64::MAX), ("7", 7)] {
        assert_ne!(valkey.say(&format!("HSET rejoin:{{shop.0}}:counts bytes {text}")), "");
        let mut total = sessions.total().await.expect("counts");
        total += total;
        assert_eq!((total.sessions, total.bytes), (2, bytes.saturating_mul(2)), "{text}");
    }
}

#[tokio::test]
async fn what_is_not_as_it_was_stored_is_a_miss() {
    let valkey = Valkey::start(&[]);
    let sessions = one_shard(link(&valkey).await, 100);
    put(&sessions, 1, NOW_MS + 1).await.expect("room");
    let mut link = link(&valkey).await;
    let [one]: [Vec<u8>; 1] = members(&mut link).await.try_into().expect("one member");
    put(&sessions, 2, NOW_MS + 1).await.expect("room");
    let both = members(&mut link).await;
    let two = both.iter().find(|member| **member != one).expect("another");
    let mut hget = redis::cmd("HGET");
    let held: Vec<u8> =
        hget.arg("rejoin:{shop.0}:values").arg(&one).query_async(&mut link).await.expect("held");
    assert_eq!(held.len() as u64, HELD_BYTES);

    let flipped = |at: usize| {
        let mut value = held.clone();
        value[at] ^= 1;
        value
    };
    let (version, name, nonce) = (0, 13, 29);
    let mut expected = Misses::default();
    let altered = [version, name, nonce, 48, held.len() - 1].map(flipped);
    for value in
        altered.iter().chain([&held[..0].to_vec(), &held[..4].to_vec(), &held[..48].to_vec()])
    {
        let mut hset = redis::cmd("HSET");
        hset.arg("rejoin:{shop.0}:values").arg(&one).arg(value);
        let _: u32 = hset.query_async(&mut link).await.expect("set");
        assert!(!is_there(&sessions, 1).await);
    }
    (expected.malformed, expected.unknown_key, expected.altered) = (4, 1, 3);
    assert_eq!(sessions.misses(), expected);

    let mut moved = redis::cmd("HSET");
    moved.arg("rejoin:{shop.0}:values").arg(two).arg(&held).arg(&one).arg(&held);
    let _: u32 = moved.query_async(&mut link).await.expect("set");
    assert!(!is_there(&sessions, 2).await && is_there(&sessions, 1).await);
    expected.altered += 1;
    assert_eq!(sessions.misses(), expected);

    sessions.set_ring(&ring(2));
    let (one, history) = (id(1), past([1, 2, 3, 4]));
    let expires_ms = NOW_MS + HOUR_MS;
    let is_kept = || sessions.expect(&one, history, NOW_MS + 1, expires_ms);
    assert!(is_kept().await.expect("an answer"));
    assert!(!is_there(&sessions, 1).await);
    expected.unknown_key += 1;
    assert_eq!(sessions.misses(), expected);
    assert!(!is_kept().await.expect("an answer"), "nobody can open it");
    let total = sessions.total().await.expect("counts");
    assert_eq!((total.sessions, total.bytes), (0, 0));
    sessions.set_ring(&KeyRing::new(Schedule::default()));
    assert!(matches!(put(&sessions, 3, NOW_MS + 1).await, Err(Error::NoKey)));
}

/// A ring with the keys of these seeds, each of which starts to encrypt an hour after the one before.
fn ring_of(seeds: &[u8]) -> KeyRing {
    let mut ring = KeyRing::new(Schedule::default());
    for (hour, seed) in seeds.iter().enumerate() {
        ring.rotate(NOW_MS / 1_000 + 3_600 * hour as u64, &mut [*seed; 32]).expect("a key");
    }
    ring
}

#[tokio::test]
async fn what_only_others_can_open_yet_is_left_to_them() {
    const LATER_MS: u64 = NOW_MS + 3 * HOUR_MS;
    let valkey = Valkey::start(&[]);
    let [ahead, behind] = [&[1, 2][..], &[1]].map(ring_of);
    let bounds = Bounds { shards: 1, ..ROOMY };
    let with = async |ring| {
        Sessions::new(link(&valkey).await, "shop", &[3; 32], bounds, ring).expect("in range")
    };
    let (ahead, behind) = (with(&ahead).await, with(&behind).await);
    let store = async |number| {
        let (id, value, past) = (id(number), value(number), Past::default());
        let expires_ms = LATER_MS + 100 * HOUR_MS;
        let (context, returns_ms) = (ContextTag(5), LATER_MS + 1);
        let entry = Entry { id: &id, context, value: &value, expires_ms, past, returns_ms };
        assert_eq!(ahead.put(LATER_MS, &entry).await.expect("room"), stored(0));
    };
    let found = async |by: &Sessions, now_ms, number| {
        by.get(now_ms, &id(number)).await.expect("an answer").is_some()
    };
    store(1).await;
    assert!(!found(&behind, LATER_MS, 1).await);
    assert!(behind.take(LATER_MS, &id(1)).await.expect("an answer").is_none());
    assert_eq!(behind.misses().unknown_key, 2);
    assert!(found(&ahead, LATER_MS, 1).await, "who did not know its key has removed it");

    behind.set_ring(&ring_of(&[1, 2]));
    assert!(behind.take(LATER_MS, &id(1)).await.expect("an answer").is_some());
    assert!(!found(&ahead, LATER_MS, 1).await, "it was taken");

    // Retired: whoever has seen it knows that nobody opens it.
    store(2).await;
    store(3).await;
    behind.set_ring(&ring_of(&[1, 3]));
    assert!(!found(&behind, LATER_MS, 2).await && !found(&ahead, LATER_MS, 2).await);
    assert!(behind.take(LATER_MS, &id(3)).await.expect("an answer").is_none());
    assert!(!found(&ahead, LATER_MS, 3).await);

    // In the ring, and over.
    store(4).await;
    ahead.set_ring(&ring_of(&[1, 2, 4]));
    assert!(found(&ahead, LATER_MS, 4).await);
    assert!(!found(&ahead, LATER_MS + 48 * HOUR_MS, 4).await);
    assert!(!found(&ahead, LATER_MS, 4).await, "its key is over");
    let total = ahead.total().await.expect("counts");
    assert_eq!((total.sessions, total.bytes), (0, 0));
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused() {
    let valkey = Valkey::start(&[]);
    let least = ENTRY_OVERHEAD_BYTES + HELD_BYTES;
    let bounds = Bounds { shards: 1, sessions: 9, bytes: least, grace_ms: 0 };
    let sessions = sessions(link(&valkey).await, bounds);
    assert_eq!(put(&sessions, 1, NOW_MS + 2).await.expect("an answer"), stored(0));
    assert_eq!(put(&sessions, 1, NOW_MS + 2).await.expect("an answer"), stored(0));
    assert_eq!(put(&sessions, 2, NOW_MS + 1).await.expect("an answer"), stored(1));
    let over = put_until(&sessions, 3, NOW_MS, NOW_MS).await.expect("an answer");
    assert_eq!(over, Put::Refused(Refusal::Expired));
    let bounds = Bounds { bytes: least - 1, ..bounds };
    let tighter = self::sessions(link(&valkey).await, bounds);
    let too_large = put(&tighter, 3, NOW_MS).await.expect("an answer");
    assert_eq!(too_large, Put::Refused(Refusal::TooLarge));
    assert!(is_there(&sessions, 2).await);
}

#[tokio::test]
async fn a_full_valkey_is_an_error_of_put_only() {
    let valkey = Valkey::start(&[]);
    let sessions = one_shard(link(&valkey).await, 2);
    for number in 1..=2 {
        put(&sessions, number, NOW_MS + 10 * number).await.expect("room");
    }
    valkey.say("CONFIG SET maxmemory 1");
    let refused = put(&sessions, 3, NOW_MS).await.expect_err("no memory");
    assert!(matches!(&refused, Error::Valkey(cause) if cause.code() == Some("OOM")), "{refused}");
    // Nobody went for it.
    assert!(is_there(&sessions, 1).await && is_there(&sessions, 2).await);
    let past = Past::default();
    assert!(sessions.expect(&id(1), past, NOW_MS, NOW_MS + 1).await.expect("an answer"));
    assert!(sessions.take(NOW_MS, &id(1)).await.expect("an answer").is_some());
    assert!(sessions.remove(&id(2)).await.expect("an answer"));
    assert_eq!(sessions.evict(NOW_MS, 0, 0, 9).await.expect("an answer"), 0);
    valkey.say("CONFIG SET maxmemory 0");
    assert_eq!(put(&sessions, 3, NOW_MS).await.expect("room"), stored(0));
}

#[tokio::test]
async fn a_dump_holds_no_id_and_no_value_in_clear() {
    let valkey = Valkey::start(&["--rdbcompression", "no"]);
    let sessions = one_shard(link(&valkey).await, 100);
    for number in 0..50 {
        put(&sessions, number, NOW_MS + 1).await.expect("room");
    }
    valkey.say("SAVE");
    let dump = std::fs::read(valkey.folder.join("dump.rdb")).expect("a dump");
    let holds = |bytes: &[u8]| dump.windows(bytes.len()).any(|window| window == bytes);
    let members = members(&mut link(&valkey).await).await;
    assert!(members.iter().all(|member| member.len() == 16 && holds(member)));
    assert!(holds(b"rejoin:{shop.0}:values"));
    for number in 0..50 {
        assert!(!holds(&id(number).as_bytes()[16..]) && !holds(&value(number)[134..]));
    }
    assert!(!holds(&id(0).as_bytes()[..16]) && !holds(&value(0)[..16]));
}

#[tokio::test]
async fn a_trace_hits_as_often_as_in_a_machine_and_each_put_is_one_round_trip() {
    let valkey = Valkey::start(&[]);
    let (events, capacity) = replay::devices(3_000, 1_200);
    let sessions = replay::one_shard(link(&valkey).await, "shop", capacity);
    let (hits, puts) = replay::in_valkey(&sessions, &events).await;
    let there = replay::in_process(&events, capacity);
    assert!((hits - there).abs() <= 0.5, "{hits:.2} % in Valkey, {there:.2} % in a machine");
    let counts = sessions.counts(0).await.expect("counts");
    assert_eq!(counts.sessions, capacity);
    assert!(counts.overdue > 100 && counts.latest > 100 && counts.refused > 100, "{counts:?}");
    assert_eq!(counts.stored + counts.refused, puts);
    let renewed = events.len() as u64 - puts;
    // Either script was loaded once.
    assert_eq!(valkey.calls("evalsha"), puts + renewed + 2);
    assert_eq!(valkey.calls("script|load"), 2);
}

/// Takes a session that was moved, and what is certain of it after the agent has waited for long enough.
#[tokio::test]
#[ignore = "waits for 20 s"]
async fn a_session_of_another_site_is_never_certain() {
    let valkey = Valkey::start(&[]);
    let now_ms = || std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(now_ms() / 1_000, &mut [1; 32]).expect("a key");
    let bounds = Bounds { shards: 1, ..ROOMY };
    let link = link(&valkey).await;
    let sessions = Sessions::new(link, "shop", &[3; 32], bounds, &ring).expect("in range");
    sessions.evict(now_ms(), 0, 0, 1).await.expect("an answer");
    tokio::time::sleep(std::time::Duration::from_secs(19)).await;
    let now_ms = now_ms();
    let (value, context, past) = (value(7), ContextTag(5), Past::default());
    let (own, moved) = (id(1), id(2));
    let entry = |id| Entry {
        id,
        context,
        value: &value,
        expires_ms: now_ms + HOUR_MS,
        past,
        returns_ms: now_ms + HOUR_MS,
    };
    sessions.put(now_ms, &entry(&own)).await.expect("an answer");
    sessions.put_moved(now_ms, &entry(&moved)).await.expect("an answer");
    let taken = async |id| {
        sessions.take(now_ms, id).await.expect("an answer").and_then(|found| found.taken)
    };
    assert!(taken(&own).await.expect("it is there").is_certain);
    let first = taken(&moved).await.expect("it is there");
    assert!(!first.is_certain);
    // Nor is one that was put back.
    sessions.put_back(now_ms, &entry(&moved), &first).await.expect("an answer");
    assert!(!taken(&moved).await.expect("it is there").is_certain);
}

#[tokio::test]
async fn nobody_makes_a_session_that_was_moved_one_that_was_not() {
    const UNMARK: &str = "\
        for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do \
          local value = redis.call('HGET', KEYS[1], id) \
          redis.call('HSET', KEYS[1], id, string.char(3 - value:byte(1)) .. value:sub(2)) \
        end";
    let valkey = Valkey::start(&[]);
    let sessions = one_shard(link(&valkey).await, 10);
    let (id, value) = (id(1), value(1));
    let (context, past, expires_ms) = (ContextTag(5), past([1, 2, 3, 4]), NOW_MS + HOUR_MS);
    let entry =
        Entry { id: &id, context, value: &value, expires_ms, past, returns_ms: NOW_MS + HOUR_MS };
    for is_moved in [false, true] {
        let put = match is_moved {
            true => sessions.put_moved(NOW_MS, &entry).await,
            false => sessions.put(NOW_MS, &entry).await,
        };
        assert_eq!(put.expect("an answer"), stored(0));
        let found = sessions.get(NOW_MS, &id).await.expect("an answer").expect("it is there");
        assert_eq!((found.is_moved, &*found.value), (is_moved, &*value));
        let mut unmark = redis::cmd("EVAL");
        unmark.arg(UNMARK).arg(1).arg("rejoin:{shop.0}:values");
        unmark.exec_async(&mut link(&valkey).await).await.expect("altered");
        assert!(sessions.get(NOW_MS, &id).await.expect("an answer").is_none());
    }
    assert_eq!(sessions.misses().altered, 2);
}
