//! Files that have a cache's name and are not one: told apart, told with their owner, and left as they are.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

use rejoin_cache::{Capacity, Settings};
use rejoin_store::{CacheName, Error, Store};
use rejoin_testkit::folder::Folder;

use crate::processes::role;
use crate::session::{find, insert};

fn name() -> CacheName {
    "test".parse().expect("a name")
}

fn open(folder: &Path) -> Result<Store, Error> {
    Store::open(folder, &name(), Some(&Settings::new(Capacity::Sessions(1_000))))
}

/// Returns the line that tells why the cache cannot be opened.
fn line(folder: &Folder) -> String {
    let error = open(folder.path()).expect_err("refused");
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
    assert_eq!(error.cache(), Some(&name()));
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

/// Puts something in the cache's place.
fn squat(what: &str, path: &Path) {
    let made = match what {
        "directory" => fs::create_dir(path),
        "link" => symlink("/etc/hostname", path),
        "fifo" => {
            let (mode, fifo) = (rustix::fs::Mode::RUSR, rustix::fs::FileType::Fifo);
            rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).map_err(Into::into)
        }
        "socket" => std::os::unix::net::UnixListener::bind(path).map(drop),
        _ => fs::write(path, [7; 9_000])
            .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o600))),
    };
    made.expect("made");
}

/// The command that removes the cache there.
fn removal(folder: &Path) -> String {
    format!("`rejoin store remove test --folder {}`", folder.display())
}

#[test]
fn what_has_the_name_is_told_with_its_owner_and_the_remedy() {
    let kinds = [
        ("directory", "is a directory"),
        ("link", "is a symbolic link"),
        ("fifo", "is a pipe"),
        ("socket", "is a socket"),
        ("file", "is no cache"),
    ];
    for (what, told) in kinds {
        let folder = crate::folder();
        let path = folder.path().join(name().file_name());
        squat(what, &path);
        let said = line(&folder);
        let remedy = &removal(folder.path());
        for part in [told, "belongs to user", remedy, &path.display().to_string()] {
            assert!(said.contains(part), "{what}: {part:?} is not in {said:?}");
        }
        if std::os::unix::fs::lchown(&path, Some(1), None).is_err() {
            eprintln!("skipped: a {what} of another user (needs root)");
            continue;
        }
        let said = line(&folder);
        assert!(said.contains("belongs to user daemon (1)"), "{what}: {said}");
        std::os::unix::fs::lchown(&path, Some(12_345), None).expect("root");
        let said = line(&folder);
        assert!(said.contains("belongs to user 12345"), "{what}: {said}");
        assert!(Store::remove(folder.path(), &name()).expect("removed"), "the remedy works");
        assert!(open(folder.path()).is_ok_and(|store| insert(&store, 1)), "{what}");
    }
}

/// A process without rights cannot even open what another user keeps there.
#[test]
fn a_squatted_name_is_told_to_a_server_that_is_not_root() {
    let folder = crate::folder();
    let path = folder.path().join(name().file_name());
    squat("file", &path);
    if chown(&path, Some(1), None).is_err() {
        return eprintln!("skipped: a file of another user (needs root)");
    }
    without_rights("find it squatted", &folder);
}

#[test]
fn roots_own_cache_is_told_to_a_server_that_is_not_root() {
    let folder = crate::folder();
    let _roots = open(folder.path()).expect("made");
    match rustix::process::geteuid().is_root() {
        true => without_rights("find root's", &folder),
        false => eprintln!("skipped: a cache of root's (needs root)"),
    }
}

/// The part of the process without rights.
pub(crate) fn find_roots(folder: &Path) {
    let said = open(folder).expect_err("refused").to_string();
    for part in ["belongs to user root (0)", "as root", &removal(folder)] {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
    // Who only looks is not told to remove what is another's, and in use.
    let said = Store::open(folder, &name(), None).expect_err("refused").to_string();
    assert!(said.ends_with("belongs to user root (0): run this as that user"), "{said}");
}

fn without_rights(what: &str, folder: &Folder) {
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).expect("ours");
    let mut command = role(what, folder.path(), 0);
    match command.uid(65_534).gid(65_534).current_dir("/").status() {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(_) => eprintln!("skipped: a squatted name (needs a program others may run)"),
    }
}

/// The part of the process without rights.
pub(crate) fn find_it_squatted(folder: &Path) {
    let said = open(folder).expect_err("refused").to_string();
    for part in ["belongs to user daemon (1)", "as root", &removal(folder)] {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
    let removed = Store::remove(folder, &name());
    assert!(removed.is_err_and(|error| error.to_string().contains("belongs to user daemon (1)")));
}

#[test]
fn a_cache_that_others_may_read_is_refused() {
    let folder = crate::folder();
    let store = open(folder.path()).expect("made");
    assert!(insert(&store, 1));
    let path = folder.path().join(name().file_name());
    for mode in [0o644, 0o640, 0o604, 0o620, 0o601, 0o666] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        let said = line(&folder);
        let told = format!("is open to others (mode {mode:o}, not 600)");
        assert!(said.contains(&told) && said.contains(&removal(folder.path())), "{said}");
        let kept = fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        assert_eq!(kept, mode, "it is left as it is");
    }
    let others = File::open(&path).expect("another who has it open");
    assert!(Store::remove(folder.path(), &name()).expect("removed"), "the remedy works");
    assert!(!find(&store, 1) && others.metadata().expect("open").nlink() == 0, "it is wiped");
    assert!(open(folder.path()).is_ok());
}

#[test]
fn nothing_is_written_over_a_file_with_a_second_name() {
    let folder = crate::folder();
    let path = folder.path().join(name().file_name());
    let precious = folder.path().join("precious");
    squat("file", &precious);
    fs::hard_link(&precious, &path).expect("linked");
    let said = line(&folder);
    assert!(said.contains("has another name, too,"), "{said}");
    assert!(Store::remove(folder.path(), &name()).expect("removed"));
    assert_eq!(fs::read(&precious).expect("there"), [7; 9_000], "it was written over");
    assert_eq!(folder.file_names(), ["precious"]);

    // Another cache, which opening and resetting by the second name would reset.
    let store = open(folder.path()).expect("made");
    assert!(insert(&store, 1));
    let other: CacheName = "other".parse().expect("a name");
    fs::hard_link(&path, folder.path().join(other.file_name())).expect("linked");
    assert!(Store::open(folder.path(), &other, None).is_err());
    assert!(Store::remove(folder.path(), &other).expect("removed"));
    assert!(find(&store, 1), "the other cache was wiped");
    assert!(open(folder.path()).is_ok_and(|again| find(&again, 1)), "it has one name again");
}

/// A process that dies between the two leaves a cache with two names.
#[test]
fn a_cache_that_was_named_and_not_finished_is_opened() {
    let folder = crate::folder();
    drop(open(folder.path()).expect("made"));
    let path = folder.path().join(name().file_name());
    let left = folder.path().join(".rejoin-test~0123456789abcdef");
    fs::hard_link(&path, &left).expect("linked");
    assert!(open(folder.path()).is_ok());
    assert!(!left.exists());
}
