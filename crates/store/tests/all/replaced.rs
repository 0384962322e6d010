//! Caches that were made with other settings, or by another version, and are replaced.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use rejoin_cache::{Capacity, Settings};
use rejoin_store::{CacheName, Error, SharedKeys, Store};

use crate::folder;
use crate::processes::plays_in_a_folder_of;
use crate::session::{find, insert};

fn name() -> CacheName {
    "test".parse().expect("a name")
}

fn settings(sessions: u64) -> Settings {
    Settings::new(Capacity::Sessions(sessions))
}

#[test]
fn the_new_one_has_the_keys_and_sessions_and_the_old_one_goes_on() {
    let folder = folder();
    let old = Arc::new(Store::open(folder.path(), &name(), Some(&settings(1_000))).expect("made"));
    let keys = SharedKeys::open(Arc::clone(&old), None, None, 1_000_000, |_| ()).expect("keys");
    assert!((0..500).all(|number| insert(&*old, number)));
    let (new, why) =
        Store::open_or_replace(folder.path(), &name(), &settings(2_000), true).expect("replaced");
    assert!(matches!(why, Some(Error::OtherSettings { setting: "capacity", .. })), "{why:?}");
    assert!((0..500).all(|number| find(&new, number) && find(&old, number)));
    assert_eq!((new.cache().counters().stored, new.cache().counters().sessions), (0, 500));
    assert_eq!(new.id_key(), old.id_key());
    let ids = |store: &Store| -> Vec<_> {
        let ring = store.ring().expect("free").expect("a ring");
        ring.list(1_000_000).map(|key| key.id).collect()
    };
    assert!(!ids(&old).is_empty() && ids(&new) == ids(&old));
    assert!(!old.facts().is_named && new.facts().is_named);
    assert!(old.capacity_sessions() < new.capacity_sessions());
    drop(keys);
    let again =
        Store::open_or_replace(folder.path(), &name(), &settings(2_000), true).expect("there");
    assert!(again.1.is_none());
    assert!(Store::open(folder.path(), &name(), None).is_ok());
}

#[test]
fn no_session_is_in_two_caches_where_each_is_used_once() {
    let folder = folder();
    let old = Store::open(folder.path(), &name(), Some(&settings(1_000))).expect("made");
    assert!((0..500).all(|number| insert(&old, number)));
    let new = Store::open_or_replace(folder.path(), &name(), &settings(2_000), false);
    let (new, _) = new.expect("replaced");
    assert!((0..500).all(|number| !find(&new, number) && find(&old, number)));
    assert_eq!(new.id_key(), old.id_key());
}

#[test]
fn the_cache_of_a_cluster_stays() {
    let folder = folder();
    let (given, key) = (settings(1_000), [7; 16]);
    let agents = Store::open_for_cluster(folder.path(), &name(), Some(&given), &key);
    let agents = agents.expect("made");
    let refused = Store::open_or_replace(folder.path(), &name(), &settings(2_000), true);
    assert!(matches!(refused, Err(Error::OtherSettings { .. })), "{refused:?}");
    assert!(agents.facts().is_named);
}

#[test]
fn the_old_one_stays_if_the_folder_has_no_room_for_the_new_one_at_all() {
    plays_in_a_folder_of("4m", "keep the old one");
}

/// The part in that folder.
pub(crate) fn keep_the_old_one(folder: &Path) {
    let of_mib = |mib: u64| Settings::new(Capacity::Bytes(mib << 20));
    let replace = |mib| Store::open_or_replace(folder, &name(), &of_mib(mib), true);
    let old = Store::open(folder, &name(), Some(&of_mib(2))).expect("made");
    assert!(insert(&old, 1));
    let key = *old.id_key();
    drop(old);
    let refused = replace(500);
    assert!(matches!(refused, Err(Error::NoRoom { .. })), "{refused:?}");
    let kept = Store::open(folder, &name(), None).expect("it stays");
    assert!(find(&kept, 1) && *kept.id_key() == key);
    drop(kept);
    // Three and two are too many, and three are not.
    let (new, why) = replace(3).expect("there is room without the old one");
    assert!(why.is_some() && *new.id_key() == key);
}

#[test]
fn of_many_at_the_same_time_all_get_the_same() {
    let folder = folder();
    for (from, to) in [(1_000, 2_000), (2_000, 500)] {
        let old =
            Store::open_or_replace(folder.path(), &name(), &settings(from), true).expect("made").0;
        let opened: Vec<_> = thread::scope(|scope| {
            let open = || Store::open_or_replace(folder.path(), &name(), &settings(to), true);
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for store in opened {
            let (store, _) = store.expect("opened");
            assert!(store.facts().is_named, "one was replaced by another of the same settings");
            assert_eq!(store.id_key(), old.id_key());
        }
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "something is left");
}
