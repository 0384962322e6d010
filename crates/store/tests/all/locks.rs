//! Locks that another process holds, or writes over.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rejoin_cache::{Capacity, Settings};
use rejoin_store::{CacheName, Store};
use rejoin_testkit::folder::Folder;

use crate::processes::{Killed, soon, start};
use crate::session::{find, insert};

/// The place of the page's lock in the file. Those of the shards follow.
const LOCKS: u64 = 8_192;
const LOCK_BYTES: u64 = 128;
const SHARDS: u32 = 4;

fn name() -> CacheName {
    "test".parse().expect("a name")
}

fn made() -> (Folder, Store) {
    let folder = crate::folder();
    let settings = Settings { shards: Some(SHARDS), ..Settings::new(Capacity::Sessions(1_000)) };
    let store = Store::open(folder.path(), &name(), Some(&settings)).expect("made");
    (folder, store)
}

/// Writes over the lock of a shard, or of the page.
fn write(folder: &Path, shard: Option<u32>, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(folder.join(name().file_name()));
    let lock = LOCKS + LOCK_BYTES * shard.map_or(0, |shard| u64::from(shard) + 1);
    file.expect("there").write_all_at(bytes, lock + at).expect("written");
}

/// The part of a process that holds every lock of the shards for 60 ms, and lets go of it for 2 ms, in turns.
pub(crate) fn hold_in_turns(folder: &Path) {
    let me = std::process::id().to_ne_bytes();
    loop {
        for (word, ms) in [(me, 60), ([0; 4], 2)] {
            (0..SHARDS).for_each(|shard| write(folder, Some(shard), 0, &word));
            std::thread::sleep(Duration::from_millis(ms));
        }
    }
}

#[test]
fn a_lock_that_is_held_in_turns_costs_no_more_than_its_share() {
    let (folder, store) = made();
    assert!((0..20).all(|number| insert(&store, number)));
    let holder = Killed(start("hold in turns", folder.path(), 0));
    assert!(soon(|| !find(&store, 1)), "it holds the locks");
    let (begun, before) = (Instant::now(), store.facts());
    while begun.elapsed() < Duration::from_secs(4) {
        let _found = (0..20).filter(|number| find(&store, *number)).count();
        std::thread::sleep(Duration::from_millis(1));
    }
    let (elapsed, facts) = (begun.elapsed(), store.facts());
    let waited = Duration::from_micros(facts.lock_waited_us - before.lock_waited_us);
    assert!(waited * 4 < elapsed, "{waited:?} of {elapsed:?}: {facts:?}");
    assert!(facts.lock_skips > before.lock_skips, "{facts:?}");
    let skips = facts.lock_skips;
    drop(holder);
    (0..SHARDS).for_each(|shard| write(folder.path(), Some(shard), 0, &[0; 4]));
    assert!(soon(|| (0..20).all(|number| find(&store, number))), "nothing was lost");
    let facts = store.facts();
    assert!((0..20).all(|number| find(&store, number)));
    assert_eq!(facts.lock_skips, store.facts().lock_skips, "it is as before: {skips}");
}

fn listen(store: &Store) -> Arc<Mutex<Vec<String>>> {
    let told = Arc::new(Mutex::default());
    let heard = Arc::clone(&told);
    store.on_trouble(move |trouble| {
        Vec::push(&mut heard.lock().expect("no panic"), trouble.to_string());
    });
    told
}

#[test]
fn a_lock_that_was_zeroed_is_mended_and_its_shard_alone_is_emptied() {
    let (folder, store) = made();
    let told = listen(&store);
    assert!((0..40).all(|number| insert(&store, number)));
    write(folder.path(), Some(2), 0, &[0; LOCK_BYTES as usize]);
    let lost = (0..40).filter(|number| !find(&store, *number)).count();
    assert!((1..40).contains(&lost), "{lost}");
    assert!(soon(|| (0..40).all(|number| insert(&store, number))), "never again");
    assert!((0..40).all(|number| find(&store, number)));
    assert!(store.check().iter().all(Result::is_ok));
    assert_eq!(store.facts().emptied, 1);
    let told = told.lock().expect("no panic");
    assert!(told.len() == 1 && told[0].contains("some sessions are forgotten"), "{told:?}");
}

#[test]
fn the_ticket_keys_survive_their_zeroed_lock() {
    let (folder, store) = made();
    let key = store.rotate_keys(1_800_000_000).expect("a key");
    write(folder.path(), None, 0, &[0; LOCK_BYTES as usize]);
    assert!(store.ring().is_err());
    assert!(soon(|| store.ring().is_ok()), "never again");
    let ring = store.ring().expect("mended").expect("a ring");
    assert!(ring.list(1_800_000_000).any(|of| of.id == key));
}

/// A word that is left may be that of a stopped process, in the middle of an operation.
#[test]
fn a_lock_that_cannot_be_mended_is_told_as_it_is() {
    let (folder, store) = made();
    let told = listen(&store);
    assert!((0..40).all(|number| insert(&store, number)));
    let mut word = [0; LOCK_BYTES as usize];
    word[..4].copy_from_slice(&std::process::id().to_ne_bytes());
    write(folder.path(), Some(2), 0, &word);
    let is_told =
        || (0..40).all(|number| find(&store, number)) || !told.lock().expect("no panic").is_empty();
    assert!(soon(is_told));
    let heard = told.lock().expect("no panic").clone();
    assert!(heard.len() == 1, "{heard:?}");
    for part in ["neither found nor stored", "`rejoin store remove", "restart"] {
        assert!(heard[0].contains(part), "{heard:?}");
    }
    assert!((0..40).any(|number| find(&store, number)), "the other shards go on");
    write(folder.path(), Some(2), 0, &[0; 4]);
    assert!(soon(|| (0..40).all(|number| insert(&store, number))), "its holder is gone");
}
