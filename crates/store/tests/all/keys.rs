//! Ticket keys that several servers follow, in memory and in a file.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rejoin_cache::{Capacity, Settings};
use rejoin_store::{Error, Objection, RingFile, SharedKeys, Store};
use rejoin_testkit::folder::Folder;
use rejoin_tickets::{
    CLOCKS_APART_S, KeyId, KeyRing, KeySource, Reschedule, Schedule, TicketEvent,
};

use crate::name;

const NOW_S: u64 = 1_800_000_000;
const HOUR_S: u64 = 3_600;

fn store(folder: &Path) -> Arc<Store> {
    let settings = Settings::new(Capacity::Sessions(10));
    Arc::new(Store::open(folder, &name(), Some(&settings)).expect("a store"))
}

fn follow(folder: &Path, file: Option<&Path>) -> Result<SharedKeys, Error> {
    let ignore = |_: &Error| {};
    SharedKeys::open(store(folder), None, file, NOW_S, ignore)
}

/// A folder in it that nobody else writes to.
fn inner(folder: &Folder) -> PathBuf {
    let inner = folder.path().join("inner");
    fs::DirBuilder::new().mode(0o700).create(&inner).expect("a folder");
    inner
}

/// The newer ring, as a server takes it: used first, and then kept in the file.
fn newer(keys: &SharedKeys, now_s: u64) -> Option<KeyRing> {
    let ring = keys.newer(now_s)?;
    keys.keep();
    Some(ring)
}

fn ids(ring: &KeyRing) -> Vec<KeyId> {
    ring.list(NOW_S).map(|key| key.id).collect()
}

fn ids_in(folder: &Path) -> Vec<KeyId> {
    ids(&store(folder).ring().expect("not busy").expect("a ring"))
}

#[test]
fn two_servers_follow_one_ring_and_one_of_them_rotates_it() {
    let folder = crate::folder();
    let [a, b] = [(); 2].map(|()| follow(folder.path(), None).expect("keys"));
    let first = [&a, &b].map(|keys| ids(&keys.newer(NOW_S).expect("the first is news")));
    assert_eq!((first[0].len(), &first[0]), (1, &first[1]));
    assert!(a.newer(NOW_S + 1).is_none() && b.newer(NOW_S + 1).is_none(), "nothing new");
    let due_s = NOW_S + 11 * HOUR_S;
    assert!(a.newer(due_s - 1).is_none());
    let rotated = ids(&a.newer(due_s).expect("rotated"));
    assert_eq!((rotated.len(), rotated[0]), (2, first[0][0]));
    assert_eq!(ids(&b.newer(due_s).expect("told")), rotated);
    assert!(a.newer(due_s).is_none() && b.newer(due_s).is_none(), "once");
    let retired = store(folder.path()).retire_key(&rotated[0]);
    assert!(retired.expect("not busy"));
    assert_eq!(ids(&b.newer(due_s).expect("told")), rotated[1..]);
}

#[test]
fn the_last_schedule_that_is_given_holds() {
    let folder = crate::folder();
    let schedule = Schedule::new(2 * HOUR_S, HOUR_S, 60).expect("a schedule");
    let open = |schedule| {
        SharedKeys::open(store(folder.path()), schedule, None, NOW_S, |_| {}).expect("keys");
        *store(folder.path()).ring().expect("free").expect("a ring").schedule()
    };
    assert_eq!([None, Some(schedule), None].map(open), [Schedule::default(), schedule, schedule]);
}

#[test]
fn a_page_that_is_no_ring_costs_the_ring() {
    let folder = crate::folder();
    let keys = follow(folder.path(), None).expect("keys");
    let before = ids(&keys.newer(NOW_S).expect("a ring"));
    let file = File::options().write(true).open(folder.path().join("rejoin-test"));
    file.and_then(|file| file.write_all_at(&[7; 100], 4_096 + 50)).expect("scribbled");
    let after = ids(&keys.newer(NOW_S).expect("another"));
    assert!(after.len() == 1 && after != before, "{before:?} {after:?}");
    assert_eq!(ids_in(folder.path()), after);
}

/// As while the cache is wiped, before it loses its name, or where a process was killed while it wrote.
#[test]
fn a_page_that_is_no_ring_is_not_kept() {
    let folder = crate::folder();
    let path = folder.path().join("keys");
    let keys = follow(folder.path(), Some(&path)).expect("keys");
    let before = ids(&newer(&keys, NOW_S).expect("a ring"));
    let cache = File::options().write(true).open(folder.path().join("rejoin-test"));
    cache.and_then(|cache| cache.write_all_at(&[0; 4_096], 4_096)).expect("wiped");
    keys.keep();
    let kept = RingFile::new(&path, None).read().map(|ring| ids(&ring.expect("there")));
    assert_eq!(kept.expect("a ring"), before);
}

#[test]
fn without_a_file_keys_go_with_the_cache_and_with_one_they_come_back() {
    for with_file in [false, true] {
        let folder = crate::folder();
        let path = folder.path().join("keys");
        let path = with_file.then_some(path.as_path());
        let keys = follow(folder.path(), path).expect("keys");
        store(folder.path()).rotate_keys(NOW_S).expect("another key");
        let before = ids(&newer(&keys, NOW_S).expect("two keys"));
        assert!(Store::remove(folder.path(), &name()).expect("removed"));
        // The server that still runs finds no ring any more.
        let found = ids(&newer(&keys, NOW_S + 1).expect("a ring"));
        assert_eq!(found == before, with_file);
        follow(folder.path(), path).expect("keys");
        assert_eq!(ids_in(folder.path()) == before, with_file);
    }
}

/// Servers whose cache was removed have a ring of their own, and the file is that of the servers that came after them.
#[test]
fn a_server_whose_cache_was_removed_leaves_the_file_alone() {
    let folder = crate::folder();
    let path = folder.path().join("keys");
    let keys = follow(folder.path(), Some(&path)).expect("keys");
    newer(&keys, NOW_S).expect("the first is news");
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    newer(&keys, NOW_S + 1).expect("what the file has");
    let new = follow(folder.path(), Some(&path)).expect("keys");
    newer(&new, NOW_S + 1).expect("the first is news");
    let before = fs::read(&path).expect("there");
    // Both rotate, each a ring of its own.
    let due_s = NOW_S + 11 * HOUR_S;
    let alone = ids(&newer(&keys, due_s).expect("rotated"));
    assert_eq!(fs::read(&path).expect("there"), before);
    let rotated = ids(&newer(&new, due_s).expect("rotated"));
    assert!(rotated.len() == 2 && rotated != alone, "{rotated:?}, {alone:?}");
    assert_ne!(fs::read(&path).expect("there"), before);
}

/// Its ring is another one from then on, with keys that were retired in the new cache.
#[test]
fn a_server_whose_cache_was_replaced_leaves_the_file_alone() {
    let folder = crate::folder();
    let path = folder.path().join("keys");
    let old = follow(folder.path(), Some(&path)).expect("keys");
    store(folder.path()).rotate_keys(NOW_S).expect("another key");
    let both = ids(&newer(&old, NOW_S).expect("two keys"));
    let larger = Settings::new(Capacity::Sessions(20));
    let replaced = Store::open_or_replace(folder.path(), &name(), &larger, true).expect("made");
    let replaced = Arc::new(replaced.0);
    let new = SharedKeys::open(Arc::clone(&replaced), None, Some(&path), NOW_S, |_| {});
    let new = new.expect("keys");
    assert!(replaced.retire_key(&both[0]).expect("not busy"));
    assert_eq!(ids(&newer(&new, NOW_S).expect("one key")), both[1..]);
    let rotated = ids(&newer(&old, NOW_S + 12 * HOUR_S).expect("rotated"));
    assert!(rotated.starts_with(&both), "{rotated:?}, {both:?}");
    let kept = RingFile::new(&path, None).read().expect("ours").expect("there");
    assert_eq!(ids(&kept), both[1..]);
}

#[test]
fn the_schedule_outlives_the_page() {
    let folder = crate::folder();
    let schedule = Schedule::new(2 * HOUR_S, HOUR_S, 60).expect("a schedule");
    let keys = SharedKeys::open(store(folder.path()), Some(schedule), None, NOW_S, |_| {});
    let keys = keys.expect("keys");
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    assert_eq!(*newer(&keys, NOW_S + 1).expect("another ring").schedule(), schedule);
}

/// More keys than a ring holds are alive after the lifetime of tickets became longer.
#[test]
fn a_full_ring_stops_no_server() {
    let folder = crate::folder();
    let open = |rotate_every_s, ticket_lifetime_s, now_s| {
        let schedule = Schedule::new(rotate_every_s, ticket_lifetime_s, 60).expect("a schedule");
        SharedKeys::open(store(folder.path()), Some(schedule), None, now_s, |_| {}).expect("keys")
    };
    for hour in 0..40 {
        open(HOUR_S, 13 * HOUR_S, NOW_S + hour * HOUR_S);
    }
    for hour in 40..400 {
        let now_s = NOW_S + hour * HOUR_S;
        open(13 * HOUR_S, 7 * 24 * HOUR_S, now_s);
        let ring = store(folder.path()).ring().expect("not busy").expect("a ring");
        assert!(!ring.due(now_s), "{hour}: {} keys", ring.list(now_s).count());
    }
}

#[test]
fn a_key_that_was_retired_does_not_come_back_from_the_file() {
    let folder = crate::folder();
    let path = folder.path().join("keys");
    let keys = follow(folder.path(), Some(&path)).expect("keys");
    store(folder.path()).rotate_keys(NOW_S).expect("another key");
    let both = ids(&newer(&keys, NOW_S).expect("two keys"));
    assert!(store(folder.path()).retire_key(&both[0]).expect("not busy"));
    newer(&keys, NOW_S).expect("one key");
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    follow(folder.path(), Some(&path)).expect("keys");
    assert_eq!(ids_in(folder.path()), both[1..]);
    let names = folder.file_names();
    assert_eq!(names.iter().filter(|name| name.starts_with("keys")).count(), 1, "{names:?}");
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_file_that_others_can_read_or_that_holds_no_ring_is_refused() {
    let folder = crate::folder();
    let path = folder.path().join("keys");
    follow(folder.path(), Some(&path)).expect("keys");
    let open_to = |mode| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        follow(folder.path(), Some(&path)).map(|_| ())
    };
    for mode in [0o640, 0o604, 0o620] {
        let refused = open_to(mode);
        let Err(Error::NotOurs { objection, .. }) = refused else {
            panic!("{mode:o}: {refused:?}")
        };
        assert_eq!(objection, Objection::Readable { mode });
    }
    assert!(open_to(0o600).is_ok());
    for text in [&b""[..], b"keys", &[0; 4_096]] {
        fs::write(&path, text).expect("ours");
        let refused = follow(folder.path(), Some(&path)).map(|_| ());
        assert!(matches!(refused, Err(Error::BadKeyFile { .. })), "{refused:?}");
    }
}

#[test]
fn a_folder_that_others_can_write_to_is_refused_before_there_is_a_file() {
    let folder = crate::folder();
    let inner = inner(&folder);
    for mode in [0o720, 0o702, 0o1777] {
        fs::set_permissions(&inner, fs::Permissions::from_mode(mode)).expect("ours");
        let refused = follow(folder.path(), Some(&inner.join("keys"))).map(|_| ());
        let Err(error @ Error::NotOurs { objection, .. }) = &refused else {
            panic!("{mode:o}: {refused:?}")
        };
        assert_eq!(*objection, Objection::Folder { mode: mode & 0o777 });
        assert!(error.to_string().contains("mode 700"), "{error}");
    }
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o755)).expect("ours");
    assert!(follow(folder.path(), Some(&inner.join("keys"))).is_ok());
}

#[test]
fn a_file_of_another_user_is_believed_in_that_users_folder_alone() {
    let folder = crate::folder();
    let inner = inner(&folder);
    let path = inner.join("keys");
    follow(folder.path(), Some(&path)).expect("keys");
    if chown(&path, Some(1234), None).is_err() {
        return eprintln!("skipped: a file of another user (needs root)");
    }
    let refused = follow(folder.path(), Some(&path)).expect_err("planted");
    let expected = Objection::Owner { uid: 1234 };
    assert!(
        matches!(refused, Error::NotOurs { objection, .. } if objection == expected),
        "{refused}"
    );
    chown(&inner, Some(1234), None).expect("root");
    assert!(follow(folder.path(), Some(&path)).is_ok());
    chown(&inner, Some(4321), None).expect("root");
    assert!(follow(folder.path(), Some(&path)).is_err());
}

/// Root changes the keys of a program that has a user of its own.
#[test]
fn what_root_writes_stays_the_users() {
    let folder = crate::folder();
    let inner = inner(&folder);
    let path = inner.join("ring");
    if chown(&inner, Some(1234), None).is_err() {
        return eprintln!("skipped: a folder of another user (needs root)");
    }
    let owner = |name: &str| fs::metadata(inner.join(name)).expect("there").uid();
    let ring = RingFile::new(&path, None);
    ring.look(NOW_S).expect("made");
    for rotated in 0..2 {
        assert_eq!([owner("ring"), owner(".ring.lock")], [1234; 2], "rotated {rotated} times");
        ring.rotate(NOW_S).expect("another key");
    }
    // What is root's stays root's.
    chown(&path, Some(0), None).expect("root");
    ring.rotate(NOW_S).expect("another key");
    assert_eq!(owner("ring"), 0);
}

/// Turns may be much longer than tickets live: nothing waits for the next one.
#[test]
fn a_key_is_wiped_when_its_last_ticket_expires() {
    let folder = crate::folder();
    let inner = inner(&folder);
    let month = Schedule::new(30 * 24 * HOUR_S, HOUR_S, HOUR_S).expect("a schedule");
    let turn_s = NOW_S + 30 * 24 * HOUR_S;
    let end_s = turn_s + HOUR_S + CLOCKS_APART_S;
    let [path, alone] = ["keys", "ring"].map(|name| inner.join(name));
    let keys = SharedKeys::open(store(folder.path()), Some(month), Some(&path), NOW_S, |_| {});
    let (keys, file) = (keys.expect("keys"), RingFile::new(&alone, Some(month)));
    for now_s in [NOW_S, turn_s - HOUR_S] {
        newer(&keys, now_s).expect("a key");
        file.look(now_s).expect("a key");
    }
    let kept = || {
        let read = |path| RingFile::new(path, None).read().expect("ours").expect("there");
        [ids_in(folder.path()), ids(&read(&path)), ids(&read(&alone))].map(|ids| ids.len())
    };
    assert!(newer(&keys, end_s - 1).is_none());
    file.look(end_s - 1).expect("a ring");
    assert_eq!(kept(), [2; 3]);
    assert_eq!(newer(&keys, end_s).map(|ring| ids(&ring).len()), Some(1));
    file.look(end_s).expect("a ring");
    assert_eq!(kept(), [1; 3]);
    assert!(newer(&keys, end_s + 1).is_none(), "it is told once");
}

/// The last one that begins decides. Two that follow would otherwise write the file for ever.
#[test]
fn a_schedule_is_given_to_a_ring_file_once() {
    let folder = crate::folder();
    let path = inner(&folder).join("ring");
    let schedules = [HOUR_S, 2 * HOUR_S];
    let schedules = schedules.map(|turn_s| Schedule::new(turn_s, HOUR_S, 60).expect("a schedule"));
    let [one, other] = schedules.map(|schedule| RingFile::new(&path, Some(schedule)));
    let look = |file: &RingFile| *file.look(NOW_S).expect("a ring").schedule();
    assert_eq!([look(&one), look(&other)], schedules);
    let written = || fs::metadata(&path).expect("there").ino();
    let before = written();
    for file in [&one, &other, &one] {
        assert_eq!(look(file), schedules[1]);
    }
    assert_eq!(written(), before, "nobody writes it again");
    // One figure leaves the other.
    let change = Reschedule::new(None, Some(2 * HOUR_S));
    let ring = RingFile::rescheduled(&path, change).look(NOW_S).expect("a ring");
    let expected = Schedule::new(2 * HOUR_S, 2 * HOUR_S, 60).expect("a schedule");
    assert_eq!(*ring.schedule(), expected);
    let too_short = Reschedule::new(None, Some(100 * HOUR_S));
    RingFile::rescheduled(&path, too_short).look(NOW_S).expect_err("too many keys");
    // A ring that is made anew follows the operator's word, too.
    fs::remove_file(&path).expect("there");
    assert_eq!(look(&one), schedules[0]);
}

#[test]
fn a_folder_that_somebody_locked_keeps_nobody() {
    let folder = crate::folder();
    let inner = inner(&folder);
    let locked = File::open(&inner).expect("there");
    locked.lock().expect("free");
    let complain = |error: &Error| panic!("{error}");
    let path = inner.join("keys");
    SharedKeys::open(store(folder.path()), None, Some(&path), NOW_S, complain).expect("keys");
    assert!(path.exists());
}

#[test]
fn rotating_by_hand_leaves_a_place_to_the_schedule() {
    let folder = crate::folder();
    let keys = follow(folder.path(), None).expect("keys");
    let store = store(folder.path());
    for _ in 1..Store::MOST_KEYS_BY_HAND {
        store.rotate_keys(NOW_S).expect("there is room");
    }
    let refused = store.rotate_keys(NOW_S).expect_err("the last one");
    assert!(matches!(refused, Error::TooManyKeys { keys: Store::MOST_KEYS_BY_HAND }), "{refused}");
    let ring = keys.newer(NOW_S + 12 * HOUR_S).expect("a rotation was due");
    assert_eq!(ids(&ring).len(), KeyRing::MOST_KEYS);
}

#[test]
fn a_file_that_cannot_be_written_at_first_is_complained_of_and_keys_are_there() {
    static COMPLAINTS: AtomicU32 = AtomicU32::new(0);
    let folder = crate::folder();
    let complain = |error: &Error| {
        let told = error.to_string();
        let parts = ["/nonexistent/keys", "brings back the keys in it, also those retired since"];
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        COMPLAINTS.fetch_add(1, Ordering::Relaxed);
    };
    let nowhere = PathBuf::from("/nonexistent/keys");
    let keys = SharedKeys::open(store(folder.path()), None, Some(&nowhere), NOW_S, complain);
    assert!(newer(&keys.expect("keys"), NOW_S).is_some());
    assert_eq!(COMPLAINTS.load(Ordering::Relaxed), 1);
}

/// The file has the ring, so that nothing is written when it is opened.
#[test]
fn a_file_that_cannot_be_replaced_is_found_before_it_is_due() {
    let folder = crate::folder();
    let inner = inner(&folder);
    let path = inner.join("keys");
    let missing = SharedKeys::check_file(&folder.path().join("none/keys")).expect_err("no folder");
    assert!(missing.to_string().starts_with("cannot find the folder of "), "{missing}");
    follow(folder.path(), Some(&path)).expect("keys");
    SharedKeys::check_file(&path).expect("ours");
    let left = fs::read_dir(&inner).expect("there").count();
    assert_eq!(left, 1, "something is left beside it");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
    let open = SharedKeys::check_file(&path).expect_err("open to others");
    assert!(matches!(open, Error::NotOurs { .. }), "{open}");
}

/// The folder goes while the server runs.
#[test]
fn a_file_that_cannot_be_written_is_complained_of_once_and_keys_change_all_the_same() {
    static COMPLAINTS: AtomicU32 = AtomicU32::new(0);
    let folder = crate::folder();
    let inner = inner(&folder);
    let complain = |_: &Error| {
        COMPLAINTS.fetch_add(1, Ordering::Relaxed);
    };
    let (store, path) = (store(folder.path()), inner.join("keys"));
    let keys = SharedKeys::open(store, None, Some(&path), NOW_S, complain);
    let keys = keys.expect("keys");
    fs::remove_dir_all(&inner).expect("ours");
    for turn in 1..4 {
        let ring = newer(&keys, NOW_S + turn * 12 * HOUR_S).expect("a ring");
        assert!(ring.list(NOW_S).count() > 1);
    }
    assert_eq!(COMPLAINTS.load(Ordering::Relaxed), 1);
}

/// Such as a disk that is full for a moment. A restart of the machine would bring back a ring without the newest key.
#[test]
fn a_file_that_could_not_be_written_is_tried_again() {
    let folder = crate::folder();
    let inner = inner(&folder);
    let (path, away) = (inner.join("keys"), folder.path().join("away"));
    let keys = SharedKeys::open(store(folder.path()), None, Some(&path), NOW_S, |_| {});
    let keys = keys.expect("keys");
    newer(&keys, NOW_S).expect("a ring");
    fs::rename(&inner, &away).expect("ours");
    let now_s = NOW_S + 12 * HOUR_S;
    let ring = newer(&keys, now_s).expect("a new key");
    assert!(newer(&keys, now_s + 29).is_none());
    assert!(newer(&keys, now_s + 30).is_some(), "it is gone still");
    fs::rename(&away, &inner).expect("ours");
    assert!(newer(&keys, now_s + 59).is_none());
    assert!(newer(&keys, now_s + 60).is_some());
    assert_eq!(ids(&RingFile::new(&path, None).read().expect("ours").expect("there")), ids(&ring));
    assert!(newer(&keys, now_s + 90).is_none(), "it is kept");
}

#[test]
fn what_becomes_of_tickets_is_counted_for_all() {
    let folder = crate::folder();
    let [a, b] = [(); 2].map(|()| follow(folder.path(), None).expect("keys"));
    a.record(TicketEvent::Issued);
    b.record(TicketEvent::Issued);
    b.record(TicketEvent::Overdue);
    let store = store(folder.path());
    let counted = store.ticket_counters().into_iter().filter(|(_, count)| *count > 0);
    assert_eq!(counted.collect::<Vec<_>>(), [("tickets_issued", 2), ("tickets_overdue", 1)]);
    store.reset(rejoin_store::Reset::Counters);
    assert!(store.ticket_counters().iter().all(|(_, count)| *count == 0));
}

#[test]
fn nothing_prints_a_key() {
    let folder = crate::folder();
    let keys = follow(folder.path(), Some(&folder.path().join("keys"))).expect("keys");
    assert_eq!(
        format!("{keys:?}"),
        format!(
            "SharedKeys {{ file: Some(KeyFile {{ path: {:?} }}), .. }}",
            folder.path().join("keys")
        )
    );
}
