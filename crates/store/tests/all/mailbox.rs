//! A cluster's agent and the servers of its machine, each with the cache opened for itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_cache::{Capacity, SecretBytes, SessionStore, Settings};
use rejoin_store::{Asked, CacheName, Error, Letter, Mailbox, MailboxFacts, Reset, Says};
use rejoin_store::{SharedKeys, Store, Tiered, now_ms};
use rejoin_tickets::{CLOCKS_APART_S, KeyId, KeyRing, KeySource, Label, Opened};
use rejoin_tickets::{Reschedule, Schedule};

use crate::name;
use crate::session::{CONTEXT, find, id, insert};
use rejoin_testkit::folder::Folder;
use rejoin_testkit::random::Random;

const ID_KEY: [u8; 16] = [7; 16];
const SOON: Duration = Duration::from_millis(20);

fn settings() -> Settings {
    Settings { block_bytes: 200, ..Settings::new(Capacity::Sessions(1_000)) }
}

fn agents(folder: &Folder) -> Store {
    Store::open_for_cluster(folder.path(), &name(), Some(&settings()), &ID_KEY).expect("made")
}

fn servers(folder: &Folder) -> Arc<Store> {
    Arc::new(Store::open(folder.path(), &name(), None).expect("the agent made it"))
}

fn mailbox(store: &Store) -> &Mailbox {
    store.mailbox().expect("a cluster's")
}

fn received(agent: &Store) -> Vec<Letter> {
    let mut letters = Vec::new();
    mailbox(agent).receive(&mut letters, Duration::ZERO, true);
    letters
}

fn found(tiered: &Tiered, number: u64) -> bool {
    tiered.get(now_ms(), &id(number), CONTEXT, &mut SecretBytes::default()).found
}

/// An agent that has every session with an even number, and answers after so long.
fn with_agent<T>(folder: &Folder, after: Duration, run: impl FnOnce() -> T) -> T {
    let (agent, is_over) = (agents(folder), AtomicBool::new(false));
    received(&agent);
    thread::scope(|scope| {
        // Also if it panics.
        let _is_over = Over(&is_over);
        scope.spawn(|| {
            let mut letters = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                mailbox(&agent).receive(&mut letters, SOON, true);
                for Letter { id, says, .. } in letters.drain(..) {
                    let (Says::Wanted(asker) | Says::Taken(asker)) = says else { continue };
                    thread::sleep(after);
                    let number =
                        (0..100).step_by(2).find(|number| crate::session::id(*number) == id);
                    let there = number.is_some_and(|number| insert(&agent, number));
                    let asked = if there { Asked::Certain } else { Asked::Missing };
                    mailbox(&agent).answer(asker, asked);
                }
            }
        });
        run()
    })
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_cache_belongs_to_one_cluster_or_none() {
    let folder = crate::folder();
    drop(agents(&folder));
    assert_eq!((servers(&folder).id_key(), folder.file_names().len()), (&ID_KEY, 1));
    let other = Store::open_for_cluster(folder.path(), &name(), None, &[8; 16]);
    assert!(matches!(other, Err(Error::OtherCluster { .. })), "{other:?}");
    let alone: CacheName = "alone".parse().expect("a name");
    let made = Store::open(folder.path(), &alone, Some(&settings())).expect("made");
    assert!(made.mailbox().is_none());
    let agent = Store::open_for_cluster(folder.path(), &alone, None, &ID_KEY);
    assert!(matches!(agent, Err(Error::OtherCluster { .. })), "{agent:?}");
}

#[test]
fn the_agent_is_told_what_becomes_of_sessions() {
    let folder = crate::folder();
    let agent = agents(&folder);
    let tiered = Tiered::new(servers(&folder));
    assert!(insert(&tiered, 1));
    assert_eq!(received(&agent), [], "nobody was there to listen");
    assert!(insert(&tiered, 2) && found(&tiered, 2));
    tiered.retire(&id(2));
    assert!(tiered.remove(&id(2)));
    let said: Vec<Says> = received(&agent).iter().map(|letter| letter.says).collect();
    assert_eq!(said, [Says::Stored, Says::Seen, Says::Retired, Says::Removed]);
    assert!(insert(&tiered, 3) && find(&agent, 3));
    assert!(received(&agent).iter().all(|of| (of.id, of.context) == (id(3), CONTEXT)));
}

#[test]
fn what_is_missed_is_fetched_and_what_is_nowhere_is_asked_for_once() {
    let folder = crate::folder();
    with_agent(&folder, Duration::ZERO, || {
        let store = servers(&folder);
        mailbox(&store).set_deadline(Mailbox::MOST_WAIT, false);
        let tiered = Tiered::new(Arc::clone(&store));
        assert!((0..20).all(|number| found(&tiered, number) == (number % 2 == 0)));
        let before = mailbox(&store).facts();
        assert_eq!((before.asked, before.fetched, before.late), (20, 10, 0));
        assert!((0..20).all(|number| found(&tiered, number) == (number % 2 == 0)));
        assert_eq!(mailbox(&store).facts().asked, 20, "it was here, or known not to be there");
        let mut value = SecretBytes::default();
        let take = |number| tiered.take(now_ms(), &id(number), CONTEXT, &mut value).found;
        assert_eq!([40, 41].map(take), [true, false]);
        assert!(!store.cache().peek(now_ms(), &id(40), CONTEXT, &mut SecretBytes::default()));
        assert!(insert(&tiered, 43));
        let mut value = SecretBytes::default();
        assert!(!tiered.take(now_ms(), &id(43), CONTEXT, &mut value).found, "it was had elsewhere");
    });
}

#[test]
fn who_is_not_answered_in_time_goes_on_and_soon_nobody_asks() {
    let folder = crate::folder();
    drop(agents(&folder));
    with_agent(&folder, 30 * SOON, || {
        let store = servers(&folder);
        let tiered = Tiered::new(Arc::clone(&store));
        let start = Instant::now();
        assert!((0..100).step_by(2).all(|number| !found(&tiered, number)));
        let facts = mailbox(&store).facts();
        assert_eq!((facts.late, facts.skipped, facts.asked), (3, 47, 3));
        assert!(start.elapsed() >= 3 * Mailbox::DEADLINE);
        store.reset(Reset::Counters);
        let MailboxFacts { is_linked, asked, fetched, late, skipped, dropped } =
            mailbox(&store).facts();
        assert!(is_linked && [asked, fetched, late, skipped, dropped] == [0; 5]);
    });
}

/// Asks twenty times and is answered, and then ten times in vain. Returns how many of the ten were asked at all.
fn asked_in_vain(follows_answers: bool) -> u64 {
    let folder = crate::folder();
    let store = servers_of(&folder);
    mailbox(&store).set_deadline(Mailbox::MOST_WAIT, follows_answers);
    let tiered = Tiered::new(Arc::clone(&store));
    let ask = |from: u64, times| {
        let numbers = (from..).step_by(2).take(times);
        // A thread waits for a part of its time only: each has its own.
        numbers
            .for_each(|number| thread::scope(|scope| _ = scope.spawn(|| found(&tiered, number))));
        mailbox(&store).facts().asked
    };
    let answered = with_agent(&folder, Duration::ZERO, || ask(1, 20));
    ask(101, 10) - answered
}

/// Opens the cache as a server does, after an agent has made it.
fn servers_of(folder: &Folder) -> Arc<Store> {
    drop(agents(folder));
    servers(folder)
}

#[test]
fn where_answers_are_quick_an_asker_waits_for_less_than_the_deadline() {
    // Three that wait until the deadline close the desk; shorter waits only lengthen the next.
    assert!(asked_in_vain(false) <= 3);
    // On a busy machine answers take longer, and so do waits.
    assert!((0..5).any(|_| asked_in_vain(true) > 5));
}

#[test]
fn who_presents_many_that_are_gone_has_a_server_wait_for_a_part_of_its_time() {
    let folder = crate::folder();
    with_agent(&folder, Duration::from_millis(2), || {
        let store = servers(&folder);
        let tiered = Tiered::new(Arc::clone(&store));
        // Answered in time, each of them.
        assert!((1..200).step_by(2).all(|number| !found(&tiered, number)));
        let facts = mailbox(&store).facts();
        assert!(facts.asked < 50 && facts.skipped > 50, "{facts:?}");
    });
}

#[test]
fn without_an_agent_or_without_valkey_nobody_asks() {
    let folder = crate::folder();
    let agent = agents(&folder);
    let store = servers(&folder);
    let tiered = Tiered::new(Arc::clone(&store));
    assert!(!found(&tiered, 2));
    mailbox(&agent).receive(&mut Vec::new(), Duration::ZERO, false);
    assert!(!found(&tiered, 2) && !mailbox(&store).facts().is_linked);
    assert_eq!((mailbox(&store).facts().asked, mailbox(&store).facts().skipped), (0, 2));
}

/// Takes a session, on a thread with all its patience. Returns whether it is there, and whether that is certain.
fn taken(tiered: &Tiered, number: u64) -> (bool, bool) {
    let take = || tiered.take(now_ms(), &id(number), CONTEXT, &mut SecretBytes::default());
    let arrival = thread::scope(|scope| scope.spawn(take).join()).expect("no panic");
    (arrival.found, arrival.is_certain)
}

/// The cluster still has a session whose client was turned away, and would hand it out to whoever copied the first flight.
#[test]
fn a_session_that_was_turned_away_is_not_certain_afterwards() {
    let folder = crate::folder();
    // Whoever makes the cache is certain of it at once.
    let store = Arc::new(agents(&folder));
    mailbox(&store).set_deadline(Mailbox::MOST_WAIT, false);
    let tiered = Tiered::new(Arc::clone(&store));
    assert_eq!(taken(&tiered, 2), (false, false), "no agent");
    with_agent(&folder, Duration::ZERO, || {
        assert_eq!([2, 4].map(|number| taken(&tiered, number)), [(true, false), (true, true)]);
    });
    with_agent(&folder, 2 * Mailbox::MOST_WAIT, || {
        assert_eq!(taken(&tiered, 6), (false, false), "too late");
    });
    with_agent(&folder, Duration::ZERO, || {
        // Another process knows it, too.
        let other = Tiered::new(servers(&folder));
        assert!([&tiered, &other].iter().all(|tiered| taken(tiered, 6) == (true, false)));
        assert_eq!(taken(&tiered, 8), (true, true));
    });
}

#[test]
fn without_an_answer_a_session_is_taken_from_this_machine_only_if_that_is_wanted() {
    let folder = crate::folder();
    let store = Arc::new(agents(&folder));
    let strict = Tiered::new(Arc::clone(&store));
    let tiered = strict.clone().taking_unanswered();
    assert!(insert(&tiered, 2) && insert(&tiered, 43));
    assert_eq!(taken(&tiered, 2), (true, false), "never certain");
    assert_eq!(taken(&tiered, 2), (false, false), "once on this machine");
    assert!(insert(&tiered, 4));
    assert_eq!(taken(&strict, 4), (false, false));
    assert_eq!(taken(&tiered, 4), (false, false), "it is removed");
    with_agent(&folder, Duration::ZERO, || {
        assert_eq!(taken(&tiered, 43), (false, false), "the cluster says that it is used up");
        assert_eq!(taken(&tiered, 2), (true, false), "a copy may come");
    });
}

#[test]
fn no_session_is_certain_after_too_many_were_turned_away() {
    let folder = crate::folder();
    let store = Arc::new(agents(&folder));
    mailbox(&store).set_deadline(Mailbox::MOST_WAIT, false);
    let tiered = Tiered::new(Arc::clone(&store));
    let turn_away = |numbers: std::ops::Range<u64>| {
        assert!({ numbers }.all(|number| taken(&tiered, number) == (false, false)));
    };
    let is_certain = |number| with_agent(&folder, Duration::ZERO, || taken(&tiered, number).1);
    turn_away(1_000..1_100);
    assert!(is_certain(2));
    mailbox(&store).leave();
    turn_away(1_100..1_200);
    assert!(!is_certain(4));
}

#[test]
fn one_process_is_the_agent_and_one_that_stood_still_learns_of_another() {
    let folder = crate::folder();
    let [one, other] = [(); 2].map(|()| agents(&folder));
    received(&one);
    mailbox(&one).leave();
    assert!(mailbox(&one).become_agent() && mailbox(&one).has_agent());
    assert!(!mailbox(&other).become_agent() && mailbox(&other).has_other_agent());
    received(&one);
    assert!(!mailbox(&one).has_other_agent());
    thread::sleep(Duration::from_millis(1_010));
    assert!(!mailbox(&one).has_agent() && !mailbox(&one).has_other_agent());
    assert!(mailbox(&other).become_agent());
    assert!(!mailbox(&other).facts().is_linked, "the other one left it set");
    assert!(mailbox(&one).has_other_agent() && !mailbox(&other).has_other_agent());
}

#[test]
fn letters_that_find_no_room_are_counted_and_harm_nobody() {
    let folder = crate::folder();
    let agent = agents(&folder);
    received(&agent);
    let store = servers(&folder);
    (0..5_000).for_each(|number| mailbox(&store).tell(&id(number), CONTEXT, Says::Stored));
    let facts = mailbox(&store).facts();
    let letters = received(&agent);
    assert_eq!(letters.len() as u64 + facts.dropped, 5_000);
    assert!(letters.len() > 4_000 && letters[0].id == id(0));
    mailbox(&store).tell(&id(9), CONTEXT, Says::Stored);
    assert_eq!(received(&agent).len(), 1);
}

/// Both sleep on memory that is gone when they wake up.
#[test]
fn a_file_that_is_cut_short_meanwhile_ends_an_agents_and_an_askers_wait() {
    let folder = crate::folder();
    let agent = agents(&folder);
    received(&agent);
    let (waiting, asking) = (agents(&folder), servers(&folder));
    mailbox(&agent).set_deadline(Mailbox::MOST_WAIT, false);
    let file = std::fs::File::options().write(true).open(folder.path().join("rejoin-test"));
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut letters = Vec::new();
            while !waiting.is_cut_short() {
                mailbox(&waiting).receive(&mut letters, SOON * 5, true);
                letters.clear();
            }
        });
        scope.spawn(move || {
            assert_eq!(mailbox(&asking).ask(&id(1), CONTEXT, true), Asked::Unanswered);
            assert!(asking.is_cut_short());
        });
        thread::sleep(SOON);
        file.expect("there").set_len(4096).expect("cut");
    });
}

/// On a machine with other work some answers are late. Then nothing is found, and the desk counts it.
#[test]
fn many_ask_at_once_and_each_has_its_own_answer() {
    let folder = crate::folder();
    let (missed, facts) = with_agent(&folder, Duration::ZERO, || {
        let store = servers(&folder);
        mailbox(&store).set_deadline(Mailbox::MOST_WAIT, false);
        let missed = AtomicU64::new(0);
        thread::scope(|scope| {
            for of in 0..4 {
                let (tiered, missed) = (Tiered::new(servers(&folder)), &missed);
                scope.spawn(move || {
                    for number in (of..100).step_by(4) {
                        match found(&tiered, number) {
                            true => assert_eq!(number % 2, 0, "{number}: another's answer"),
                            false => _ = missed.fetch_add(1 - number % 2, Ordering::Relaxed),
                        }
                    }
                });
            }
        });
        (missed.into_inner(), mailbox(&store).facts())
    });
    let MailboxFacts { asked, fetched, late, skipped, dropped, .. } = facts;
    assert!(missed <= late + skipped + dropped, "{missed} of {facts:?}");
    // Letters that tell of a session, and ask for nothing, may be dropped, too.
    let answered = asked + skipped;
    assert!(fetched > 0 && answered <= 100 && answered + dropped >= 100, "{facts:?}");
}

#[test]
fn whatever_is_written_over_it_ends_in_time() {
    let folder = crate::folder();
    let agent = agents(&folder);
    received(&agent);
    let store = servers(&folder);
    let path = folder.path().join("rejoin-test");
    let file = std::fs::File::options().read(true).write(true).open(path).expect("there");
    let length = file.metadata().expect("there").len();
    let mut random = Random::new(9);
    for round in 0..200 {
        let mut garbage = vec![0xff; 40_000];
        if round % 3 != 0 {
            random.fill(&mut garbage);
        }
        // The mailbox is at the end of the file.
        let at = length - 290_000 + random.below(250_000);
        std::os::unix::fs::FileExt::write_all_at(&file, &garbage, at).expect("written");
        let start = Instant::now();
        mailbox(&store).tell(&id(1), CONTEXT, Says::Stored);
        mailbox(&store).ask(&id(2), CONTEXT, false);
        let mut letters = Vec::new();
        mailbox(&agent).receive(&mut letters, Duration::ZERO, true);
        for letter in letters {
            if let Says::Wanted(asker) | Says::Taken(asker) = letter.says {
                mailbox(&agent).answer(asker, Asked::Certain);
            }
        }
        assert!(start.elapsed() < Duration::from_secs(2), "round {round}");
    }
}

#[test]
fn the_ring_is_the_agents_and_servers_follow() {
    let folder = crate::folder();
    let agent = agents(&folder);
    let complain = |error: &Error| panic!("{error}");
    let file = Some(Path::new("/nonexistent/of no matter"));
    let schedule = Some(Schedule::new(3_600, 7_200, 600).expect("a schedule"));
    let keys = SharedKeys::open(servers(&folder), schedule, file, 1_000, complain).expect("there");
    let own = keys.newer(1_000).expect("one of this machine's own");
    assert!(own.list(1_000).count() == 1 && agent.ring().expect("free").is_none());
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(1_000, &mut [5; 32]).expect("a key");
    agent.adopt_ring(&ring, 1).expect("free");
    let listed = |ring: &KeyRing| ring.list(1_000).map(|key| key.id).collect::<Vec<_>>();
    assert_eq!(keys.newer(1_001).as_ref().map(listed), Some(listed(&ring)));
    let refused = [agent.rotate_keys(1_001).err(), agent.retire_key(&listed(&ring)[0]).err()];
    assert!(refused.iter().all(|why| matches!(why, Some(Error::OfCluster { .. }))), "{refused:?}");
    let years_later = 1_000_000_000;
    let without_own = keys.newer(years_later);
    assert_eq!(without_own.as_ref().map(listed), Some(listed(&ring)));
    assert!(keys.newer(years_later).is_none(), "it is due, and not for servers to change");
}

/// An agent that has not reached Valkey since the cache was made has no ring to give.
#[test]
fn until_a_clusters_ring_comes_all_servers_of_the_machine_have_one_of_their_own() {
    const HOUR_S: u64 = 3_600;
    let now_s = 1_800_000_000;
    let folder = crate::folder();
    let agent = agents(&folder);
    let follow = || {
        let complain = |error: &Error| panic!("{error}");
        SharedKeys::open(servers(&folder), None, None, now_s, complain).expect("there")
    };
    let label = Label::new(b"one").expect("a label");
    let sealed = |ring: &KeyRing, now_s| {
        ring.sealer(&label).seal(now_s, b"session", [3; 12]).expect("a key")
    };
    let opened = |ring: &KeyRing, now_s, ticket: &[u8]| {
        ring.sealer(&label).open(now_s, ticket).map(|(_, opened)| opened)
    };
    let (one, other) = (follow(), follow());
    let first = one.newer(now_s).expect("the first is news");
    let ticket = sealed(&first, now_s);
    let others = other.newer(now_s + 1).expect("the same");
    assert_eq!(opened(&others, now_s + 1, &ticket), Some(Opened::Fresh));
    assert!(one.newer(now_s + 2).is_none() && other.newer(now_s + 2).is_none(), "nothing new");
    // It rotates as others do.
    let later_s = now_s + 13 * HOUR_S;
    assert!(one.newer(now_s + 11 * HOUR_S).is_some_and(|ring| ring.list(now_s).count() == 2));
    let rotated = other.newer(later_s).expect("rotated");
    assert_eq!(opened(&rotated, later_s, &ticket), Some(Opened::Renew));
    let last = sealed(&rotated, later_s);
    assert!(agent.ring().expect("free").is_none() && agent.ring_version() == 0);

    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(now_s - 100 * HOUR_S, &mut [5; 32]).expect("a key");
    ring.rotate(later_s - 5 * HOUR_S, &mut [6; 32]).expect("a key");
    agent.adopt_ring(&ring, 1).expect("free");
    for keys in [&one, &other, &follow()] {
        let came = keys.newer(later_s + 1).expect("the cluster's");
        assert_eq!(came.list(later_s).map(|key| key.id).collect::<Vec<_>>(), ids(&ring, later_s));
        assert_eq!(opened(&ring, later_s, &sealed(&came, later_s)), Some(Opened::Fresh));
        for ticket in [&ticket, &last] {
            assert_eq!(opened(&came, later_s + 1, ticket), Some(Opened::Renew));
        }
        assert!(keys.newer(later_s + 2).is_none(), "once");
        assert_eq!(opened(&came, later_s + 25 * HOUR_S, &last), None);
    }
    let ticket_ends_s = later_s + 24 * HOUR_S + CLOCKS_APART_S;
    let at = |now_s| follow().newer(now_s).expect("the first is news");
    assert!(opened(&at(ticket_ends_s - 1), ticket_ends_s - 1, &last).is_some());
    assert!(opened(&at(ticket_ends_s), ticket_ends_s - 1, &last).is_none(), "it was wiped");
    for keys in [&one, &other] {
        let left = keys.newer(ticket_ends_s).expect("without it");
        assert!(opened(&left, ticket_ends_s - 1, &last).is_none(), "from its memory, too");
        assert_eq!(ids(&left, later_s), ids(&ring, later_s));
        assert!(keys.newer(ticket_ends_s + 1).is_none(), "once");
    }
}

/// Each of those keys is wiped when its own last ticket expires, before the cluster's come and after.
#[test]
fn a_key_of_the_machines_own_is_wiped_when_its_last_ticket_expires() {
    const HOUR_S: u64 = 3_600;
    let now_s = 1_800_000_000;
    let folder = crate::folder();
    let agent = agents(&folder);
    let complain = |error: &Error| panic!("{error}");
    let keys = SharedKeys::open(servers(&folder), None, None, now_s, complain).expect("there");
    let made_h = [0, 11, 23, 35];
    let rings = made_h.map(|hour| keys.newer(now_s + hour * HOUR_S).expect("another key"));
    let made = ids(&rings[3], now_s);
    let wiped_s = |turns: u64| now_s + (24 + 12 * turns) * HOUR_S + CLOCKS_APART_S;
    assert!(keys.newer(wiped_s(1) - 1).is_none());
    let left = keys.newer(wiped_s(1)).map(|ring| ids(&ring, now_s));
    assert_eq!(left.as_deref(), Some(&made[1..]));
    assert!(keys.newer(wiped_s(1) + 1).is_none(), "once");

    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(now_s, &mut [5; 32]).expect("a key");
    agent.adopt_ring(&ring, 1).expect("free");
    let label = Label::new(b"one").expect("a label");
    let ticket = rings[1].sealer(&label).seal(now_s + 13 * HOUR_S, b"session", [3; 12]);
    let ticket = ticket.expect("a key");
    // As soon as it is told of a ring, the one before is gone with its keys, whatever the time.
    let opens = |ring: &KeyRing| ring.sealer(&label).open(wiped_s(2) - 1, &ticket).is_some();
    assert!(keys.newer(wiped_s(1) + 2).is_some_and(|came| opens(&came)));
    assert!(keys.newer(wiped_s(2) - 1).is_none());
    assert!(keys.newer(wiped_s(2)).is_some_and(|left| !opens(&left)));
    assert!(keys.newer(wiped_s(2) + 1).is_none(), "once");
}

/// An agent whose process was killed while it wrote leaves a page that is none.
#[test]
fn a_server_with_the_clusters_ring_keeps_that_if_the_page_is_lost() {
    let folder = crate::folder();
    let agent = agents(&folder);
    let follow = || {
        let complain = |error: &Error| panic!("{error}");
        SharedKeys::open(servers(&folder), None, None, 1_000, complain).expect("there")
    };
    let (mut ring, keys) = (KeyRing::new(Schedule::default()), follow());
    ring.rotate(1_000, &mut [5; 32]).expect("a key");
    agent.adopt_ring(&ring, 1).expect("free");
    assert!(keys.newer(1_000).is_some());
    let file = std::fs::File::options().write(true).open(folder.path().join("rejoin-test"));
    let file = file.expect("there");
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 100], 4_096 + 50).expect("written");
    assert!(keys.newer(1_001).is_none());
    let came_later = follow();
    assert!(came_later.newer(1_001).is_some_and(|own| ids(&own, 1_001) != ids(&ring, 1_001)));
    agent.adopt_ring(&ring, 2).expect("free");
    for keys in [&keys, &came_later] {
        assert_eq!(keys.newer(1_002).map(|ring| ids(&ring, 1_002)), Some(ids(&ring, 1_002)));
    }
}

/// A program behind a share does not follow the machine's own keys when the cluster's come.
#[test]
fn those_that_hand_keys_on_get_none_of_the_machines_own() {
    let folder = crate::folder();
    let agent = agents(&folder);
    let complain = |error: &Error| panic!("{error}");
    let change = Reschedule::default();
    let others = SharedKeys::open_rescheduled(servers(&folder), change, None, 1_000, complain);
    let others = others.expect("there").for_others();
    assert!(others.newer(1_000).is_none());
    let file = std::fs::File::open(folder.path().join("rejoin-test")).expect("there");
    assert_eq!(own_rings(&file), 0, "none is made");

    let keys = SharedKeys::open(servers(&folder), None, None, 1_000, complain).expect("there");
    let label = Label::new(b"one").expect("a label");
    let own = keys.newer(1_000).expect("one of this machine's own");
    let ticket = own.sealer(&label).seal(1_000, b"session", [3; 12]).expect("a key");
    assert!(others.newer(1_001).is_none());
    let mut ring = KeyRing::new(Schedule::default());
    ring.rotate(1_000, &mut [5; 32]).expect("a key");
    agent.adopt_ring(&ring, 1).expect("free");
    let came = others.newer(1_002).expect("the cluster's");
    assert_eq!(ids(&came, 1_002), ids(&ring, 1_002));
    assert!(came.sealer(&label).open(1_002, &ticket).is_none());
    assert!(others.newer(1_003).is_none(), "once");
    assert_eq!(own_rings(&file), 1, "left to the servers");
}

#[test]
fn a_cache_that_is_removed_keeps_no_key_of_its_machine() {
    let folder = crate::folder();
    let agent = agents(&folder);
    let keys = SharedKeys::open(servers(&folder), None, None, 1_000, |_| {}).expect("there");
    assert!(keys.newer(1_000).is_some());
    let file = std::fs::File::open(folder.path().join("rejoin-test")).expect("there");
    assert_eq!(own_rings(&file), 1);
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    assert_eq!(own_rings(&file), 0);
    drop(agent);
}

/// Counts the rings before the page of a cache's file.
fn own_rings(file: &std::fs::File) -> usize {
    let mut words = [0; 4_096];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut words, 0).expect("read");
    words.chunks(8).filter(|word| *word == b"rejoinSK").count()
}

fn ids(ring: &KeyRing, now_s: u64) -> Vec<KeyId> {
    ring.list(now_s).map(|key| key.id).collect()
}
