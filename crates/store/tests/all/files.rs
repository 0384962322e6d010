//! The files of shared caches: which are opened, which are refused and why, and how they go.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rejoin_cache::{Capacity, Policy, Settings};
use rejoin_store::{Error, Objection, Reset, Store, Trouble, now_ms};

use crate::name;
use crate::processes::plays_in_a_folder_of;
use crate::session::{find, insert};
use rejoin_testkit::folder::Folder;

fn settings() -> Settings {
    Settings::new(Capacity::Sessions(1_000))
}

fn open(folder: &Path) -> Result<Store, Error> {
    Store::open(folder, &name(), Some(&settings()))
}

/// A folder with a cache that holds a session, the cache's file, and the cache.
fn made() -> (Folder, PathBuf, Store) {
    let folder = crate::folder();
    let store = open(folder.path()).expect("made");
    assert!(insert(&store, 1));
    let path = folder.path().join(name().file_name());
    (folder, path, store)
}

fn refused(folder: &Folder) -> Error {
    open(folder.path()).expect_err("refused")
}

fn is_objected_to(error: &Error, expected: Objection) -> bool {
    matches!(error, Error::NotOurs { objection, .. } if *objection == expected)
}

#[test]
fn what_one_stores_another_finds() {
    let (folder, path, store) = made();
    let other = Store::open(folder.path(), &name(), None).expect("there");
    assert!(find(&other, 1));
    assert_eq!((other.id_key(), other.key_id()), (store.id_key(), store.key_id()));
    assert_eq!(other.settings(), &settings());
    other.cache().record_forged();
    other.cache().record_rejected();
    assert_eq!(store.cache().counters(), other.cache().counters());
    let counters = store.cache().counters();
    assert_eq!((counters.forged, counters.rejected), (1, 1));
    drop((store, other));
    let again = open(folder.path()).expect("there");
    assert!(find(&again, 1), "it outlives those who used it");
    assert!(again.check().iter().all(Result::is_ok));
    let facts = again.facts();
    assert!(facts.is_named && facts.bytes == fs::metadata(&path).expect("there").len());
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_there_is_not_is_not_made_without_settings() {
    let folder = crate::folder();
    let missing = Store::open(folder.path(), &name(), None).expect_err("there is none");
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    assert_eq!(missing.cache(), Some(&name()));
    assert!(matches!(open(&folder.path().join("none")), Err(Error::Refused { .. })));
    assert!(matches!(open(Path::new("/proc/self")), Err(Error::Refused { .. })));
    let none = Store::open(folder.path(), &name(), Some(&Settings::new(Capacity::Sessions(0))));
    assert!(matches!(none, Err(Error::Settings(_))));
    assert_eq!(folder.file_names(), [] as [&str; 0], "nothing is left behind");
}

#[test]
fn other_settings_are_told() {
    let (folder, ..) = made();
    let other = Settings { policy: Policy::Lru, ..settings() };
    let error = Store::open(folder.path(), &name(), Some(&other)).expect_err("refused");
    assert!(matches!(error, Error::OtherSettings { setting: "policy", .. }), "{error}");
    assert!(error.to_string().contains("rejoin store remove test"), "{error}");
    let other = Settings::new(Capacity::Bytes(1 << 22));
    let error = Store::open(folder.path(), &name(), Some(&other)).expect_err("refused");
    let told = "another capacity: it has 1000 sessions, and 4194304 bytes is asked for";
    assert!(error.to_string().contains(told), "{error}");
}

#[test]
fn other_versions_and_damage_are_told() {
    let (folder, path, _) = made();
    let write = |byte: u64, value: u8| {
        let file = OpenOptions::new().write(true).open(&path).expect("there");
        file.write_all_at(&[value], byte).expect("written");
    };
    let version = fs::read(&path).expect("there")[8];
    write(8, 99);
    assert!(matches!(refused(&folder), Error::OtherVersion { .. }));
    write(8, version);
    assert!(open(folder.path()).is_ok());
    write(30, 99);
    assert!(matches!(refused(&folder), Error::Damaged { .. }));
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    assert!(!find(&open(folder.path()).expect("made anew"), 1));
}

#[test]
fn a_file_of_another_size_is_told() {
    let (folder, path, store) = made();
    let bytes = store.facts().bytes;
    drop(store);
    let set_length = |bytes| {
        let file = OpenOptions::new().write(true).open(&path).expect("there");
        file.set_len(bytes).expect("cut");
    };
    for wrong in [bytes - 4096, bytes + 1, 4096] {
        set_length(wrong);
        let error = refused(&folder);
        assert!(matches!(error, Error::BadSize { bytes, .. } if bytes == wrong), "{error}");
    }
    set_length(10);
    assert!(matches!(refused(&folder), Error::Damaged { .. }));
}

#[test]
fn a_file_cut_short_is_noticed_and_its_sessions_are_gone() {
    for left in [0, 4096, 4096 * 3 + 1] {
        let (_folder, path, store) = made();
        let told = listen(&store);
        let whole = store.facts().bytes;
        let file = OpenOptions::new().write(true).open(&path).expect("there");
        file.set_len(left).expect("cut");
        store.cache().record_forged();
        assert!(!find(&store, 1) && !insert(&store, 2) && !find(&store, 2), "{left}");
        assert!(store.ring().is_err() && store.facts().locks_broken > 0);
        store.reset(Reset::Both);
        assert!(store.check().iter().all(Result::is_err));
        file.set_len(whole).expect("made longer");
        assert!(!insert(&store, 1));
        assert_eq!(*told.lock().expect("no panic"), [Trouble::CutShort], "{left}");
    }
}

#[test]
fn what_was_written_over_is_told_once() {
    let (_folder, path, store) = made();
    let told = listen(&store);
    let file = OpenOptions::new().write(true).open(&path).expect("there");
    for round in 0..3 {
        file.write_all_at(&[0xa5 ^ round; 20_000], 8192).expect("written");
        for number in 0..50 {
            let _ = (find(&store, number), insert(&store, number));
        }
    }
    assert_eq!(*told.lock().expect("no panic"), [Trouble::Damaged]);
}

fn listen(store: &Store) -> Arc<Mutex<Vec<Trouble>>> {
    let told = Arc::new(Mutex::default());
    let heard = Arc::clone(&told);
    store.on_trouble(move |trouble| Vec::push(&mut heard.lock().expect("no panic"), trouble));
    told
}

#[test]
fn what_others_may_have_written_is_refused() {
    let (folder, path, _) = made();
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        assert!(is_objected_to(&refused(&folder), Objection::Readable { mode }));
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    assert!(open(folder.path()).is_ok());
    if std::os::unix::fs::chown(&path, Some(1234), None).is_err() {
        return eprintln!("skipped: a file of another user (needs root)");
    }
    assert!(is_objected_to(&refused(&folder), Objection::Owner { uid: 1234 }));
}

#[test]
fn what_is_not_ours_is_removed_by_root_and_not_touched() {
    let (folder, path, store) = made();
    if std::os::unix::fs::chown(&path, Some(1234), None).is_err() {
        return eprintln!("skipped: a file of another user (needs root)");
    }
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    assert!(find(&store, 1), "it was wiped");
    assert!(!store.facts().is_named);
    drop(open(folder.path()).expect("made anew"));
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&path, &elsewhere).expect("moved");
    symlink(&elsewhere, &path).expect("linked");
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    assert_eq!(folder.file_names(), ["elsewhere"]);
    fs::rename(&elsewhere, &path).expect("moved back");
    assert!(open(folder.path()).is_ok(), "what the link led to was wiped");
}

#[test]
fn those_who_have_it_go_on_when_it_is_removed() {
    let (folder, path, store) = made();
    let file = File::open(&path).expect("there");
    store.rotate_keys(1_800_000_000).expect("a key");
    assert!(insert_marked(&store));
    assert!(bytes_of(&file).windows(16).any(|bytes| bytes == [0xa7; 16]), "the window is clear");
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    assert!(!Store::remove(folder.path(), &name()).expect("nothing to remove"));
    assert_eq!(folder.file_names(), [] as [&str; 0]);
    let left = bytes_of(&file);
    assert!(!left.windows(16).any(|bytes| bytes == [0xa7; 16]), "a secret is left");
    assert!(!left.windows(16).any(|bytes| bytes == store.id_key()), "a key is left");
    assert!(left[4_096..8_192].iter().all(|byte| *byte == 0), "a ticket key is left");
    assert!(!store.facts().is_named);
    assert!(!find(&store, 1) && insert(&store, 2) && find(&store, 2), "it goes on");
    let new = open(folder.path()).expect("made anew");
    assert_ne!(new.id_key(), store.id_key());
    assert!(!find(&new, 2) && new.facts().is_named);
    assert!(store.check().iter().all(Result::is_ok));
}

fn insert_marked(store: &Store) -> bool {
    let new = rejoin_cache::NewSession { value: &[0xa7; 100], ..crate::session::new(7) };
    store.cache().insert(now_ms(), &new).is_ok()
}

fn bytes_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().expect("open").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

#[test]
fn what_was_left_unfinished_is_swept() {
    let (folder, ..) = made();
    let left = folder.path().join(".rejoin-test~0123456789abcdef");
    File::create(&left).expect("made");
    assert_eq!(Store::list(folder.path()).expect("read"), [name()]);
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    assert_eq!(folder.file_names(), [] as [&str; 0]);
}

#[test]
fn what_is_reset_is_forgotten_and_nothing_else() {
    let (_folder, _, store) = made();
    assert!(find(&store, 1));
    let count = || (store.cache().counters().sessions, store.cache().counters().hits);
    assert_eq!(count(), (1, 1));
    store.reset(Reset::Counters);
    assert_eq!(count(), (1, 0));
    assert!(find(&store, 1));
    store.reset(Reset::Sessions);
    assert_eq!(count(), (0, 1));
    assert!(insert(&store, 1));
    store.reset(Reset::Both);
    assert_eq!(count(), (0, 0));
}

#[test]
fn nothing_prints_a_key() {
    let (.., store) = made();
    let printed = format!("{store:?} {store:#?}");
    let bytes = store.id_key();
    let (decimal, hex) = (format!("{bytes:?}"), format!("{bytes:x?}"));
    assert!(!printed.contains(&decimal[1..20]) && !printed.contains(&hex[1..20]), "{printed}");
    assert!(printed.contains("Keys(…)"));
}

/// The question for its last page gives the file that page, which is the last one that the folder has.
#[test]
fn a_file_cut_short_and_made_long_again_is_noticed_where_the_folder_is_full() {
    plays_in_a_folder_of("4m", "go on without");
}

/// The part in that folder.
pub(crate) fn go_on_without_a_cut_file(folder: &Path) {
    for left in [0, 4096 * 3 + 1] {
        let store = Store::open(folder, &name(), Some(&settings())).expect("made");
        let (told, whole) = (listen(&store), store.facts().bytes);
        assert!((0..500).all(|number| insert(&store, number)));
        let path = folder.join(name().file_name());
        let file = OpenOptions::new().write(true).open(&path).expect("there");
        file.set_len(left).expect("cut");
        file.set_len(whole).expect("made longer");
        let filler = fill(folder);
        assert!((0..500).all(|number| !find(&store, number) && !insert(&store, number)));
        assert!(store.ring().is_err() && store.check().iter().all(Result::is_err));
        assert_eq!(*told.lock().expect("no panic"), [Trouble::CutShort], "{left}");
        // Who comes later would be stopped by the missing pages, too.
        let late = Store::open(folder, &name(), None).expect_err("it has no room");
        assert!(matches!(late, Error::NoRoom { .. } | Error::NotOurs { .. }), "{late}");
        assert!(Store::remove(folder, &name()).expect("removed"), "the remedy works");
        fs::remove_file(filler).expect("there");
    }
}

/// Leaves one page of a folder free.
fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let file = File::create(&path).expect("a new file");
    let pages = (0..).take_while(|page| file.write_all_at(&[1; 4096], 4096 * page).is_ok());
    let pages = pages.count() as u64;
    file.set_len(4096 * (pages - 1)).expect("shorter");
    path
}
