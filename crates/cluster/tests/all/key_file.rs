//! The file of the cluster's secret, and the steps in which its key is replaced.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rejoin_cluster::{ClusterSecret, Error, KeyFile, KeyFileFault, RekeyStep, Turn};
use rejoin_testkit::folder::Folder;

fn fault(path: &Path) -> KeyFileFault {
    match ClusterSecret::read(path) {
        Err(Error::BadKeyFile { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_created_is_read() {
    let folder = Folder::new();
    let path = folder.join("key");
    let key = ClusterSecret::create(&path).expect("a key");
    let file = fs::metadata(&path).expect("a file");
    assert_eq!((file.mode() & 0o7777, file.len()), (0o600, 65));
    let read = ClusterSecret::read(&path).expect("the same");
    assert_eq!(read, key);
    let digits = fs::read_to_string(&path).expect("text");
    assert!(!format!("{read:?}").contains(&digits[..8]));
    assert!(matches!(ClusterSecret::create(&path), Err(Error::Unwritable { .. })), "it is there");
    assert_eq!(fs::read_to_string(&path).expect("text"), digits, "and stays");
    let other = ClusterSecret::create(&folder.join("other")).expect("another key");
    assert_ne!(other.key_name(), key.key_name());
    assert_ne!(other, key);
}

#[test]
fn what_others_may_read_or_write_is_refused() {
    let folder = Folder::new();
    let path = folder.join("key");
    ClusterSecret::create(&path).expect("a key");
    for mode in [0o640, 0o604, 0o620, 0o602, 0o666] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        assert_eq!(fault(&path), KeyFileFault::Mode { mode });
    }
    fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("ours");
    ClusterSecret::read(&path).expect("its owner alone may read it");
    for mode in [0o770, 0o707, 0o777] {
        fs::set_permissions(&*folder, Permissions::from_mode(mode)).expect("ours");
        assert_eq!(fault(&path), KeyFileFault::Folder { mode });
    }
    fs::set_permissions(&*folder, Permissions::from_mode(0o700)).expect("ours");
    symlink(&path, folder.join("link")).expect("a link");
    assert_eq!(fault(&folder.join("link")), KeyFileFault::NotRegular);
    fs::create_dir(folder.join("folder")).expect("a folder");
    assert_eq!(fault(&folder.join("folder")), KeyFileFault::NotRegular);
    let missing = ClusterSecret::read(&folder.join("missing"));
    assert!(matches!(missing, Err(Error::Unreadable { .. })));
    let owned = std::os::unix::fs::chown(&path, Some(12_345), None);
    if owned.is_ok() {
        assert_eq!(fault(&path), KeyFileFault::Owner { uid: 12_345 });
        KeyFile::open(&path, Some(12_345)).expect("its owner is the agent's user");
        assert!(KeyFile::open(&path, Some(12_346)).is_err(), "another user");
    }
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn a_key_is_replaced_in_three_steps() {
    let folder = Folder::new();
    let path = folder.join("key");
    let before = ClusterSecret::create(&path).expect("a key");
    let [first] = &lines(&path)[..] else { panic!("one line") };
    let first = first.clone();
    let step = |step| ClusterSecret::rekey(&path, None, step);
    let due = |refused| match refused {
        Err(Error::OutOfTurn { due, .. }) => due,
        other => panic!("{other:?}"),
    };
    for early in [RekeyStep::Use, RekeyStep::Drop] {
        assert_eq!(due(step(early)), RekeyStep::Add);
    }
    let added = step(RekeyStep::Add).expect("added");
    let (turn, next) = added.other_name().expect("another");
    assert_eq!((added.key_name(), turn), (before.key_name(), Turn::Next));
    assert_eq!(lines(&path)[0], first);
    for early in [RekeyStep::Add, RekeyStep::Drop] {
        assert_eq!(due(step(early)), RekeyStep::Use);
    }
    let used = step(RekeyStep::Use).expect("used");
    assert_eq!((used.key_name(), used.other_name()), (next, Some((Turn::Last, before.key_name()))));
    assert_eq!(lines(&path)[1], format!("last {first}"));
    for early in [RekeyStep::Add, RekeyStep::Use] {
        assert_eq!(due(step(early)), RekeyStep::Drop);
    }
    let dropped = step(RekeyStep::Drop).expect("dropped");
    assert_eq!((dropped.key_name(), dropped.other_name()), (next, None));
    assert_eq!(ClusterSecret::read(&path).expect("the same"), dropped);
    let [key, ids] = &lines(&path)[..] else { panic!("a key and the secret of ids") };
    assert!(*key != first && ids.starts_with("ids "));
    // The secret of ids is the first one for ever.
    let ids = ids.clone();
    for again in [RekeyStep::Add, RekeyStep::Use, RekeyStep::Drop] {
        step(again).expect("once more");
        assert_eq!(lines(&path).last(), Some(&ids));
    }
    let file = fs::metadata(&path).expect("a file");
    assert_eq!(file.mode() & 0o7777, 0o600);
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 1, "nothing is left");
}

/// The file belongs to the agent's user, and root takes the step.
#[test]
fn a_replaced_file_keeps_its_owner() {
    let folder = Folder::new();
    let path = folder.join("key");
    ClusterSecret::create(&path).expect("a key");
    if std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).is_err() {
        eprintln!("not root: no file can be given away, and nothing is tested");
        return;
    }
    ClusterSecret::rekey(&path, Some(12_345), RekeyStep::Add).expect("added");
    let file = fs::metadata(&path).expect("a file");
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (12_345, 54_321, 0o600));
}

#[test]
fn a_changed_file_is_read_again_and_a_bad_one_told_once() {
    let folder = Folder::new();
    let (path, whole) = (folder.join("key"), folder.join("whole"));
    let before = ClusterSecret::create(&path).expect("a key");
    let mut file = KeyFile::open(&path, None).expect("a key");
    assert!(!file.renew().expect("as it was"));
    let added = ClusterSecret::rekey(&path, None, RekeyStep::Add).expect("added");
    assert!(file.renew().expect("readable") && !file.renew().expect("readable"));
    assert_eq!(*file.secret(), added);
    fs::copy(&path, &whole).expect("a copy");
    let text = fs::read_to_string(&path).expect("text");
    let mut told = |text: &str| {
        fs::write(&path, text).expect("written");
        let [first, second] = [file.renew(), file.renew()];
        assert!(matches!(second, Ok(false)), "it is told once: {second:?}");
        assert_eq!(*file.secret(), added, "the last one stays");
        first.expect_err("bad").to_string()
    };
    assert!(told(&text[..text.len() - 2]).contains("line 3"));
    assert!(told(&text[..100]).contains("line 2"));
    assert!(told("").contains("64 hexadecimal digits"));
    // A secret that was not derived from this one's.
    let other = ClusterSecret::create(&folder.join("other")).expect("another");
    assert_ne!(other, before);
    let other = fs::read_to_string(folder.join("other")).expect("text");
    assert!(told(&other).contains("another cluster"));
    fs::remove_file(&path).expect("there");
    assert!(file.renew().expect_err("none").to_string().contains("cannot read"));
    fs::rename(&whole, &path).expect("back");
    assert!(!file.renew().expect("readable"), "it is the same secret");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("ours");
    let used = ClusterSecret::rekey(&path, None, RekeyStep::Use);
    assert!(matches!(
        used,
        Err(Error::BadKeyFile { fault: KeyFileFault::Mode { mode: 0o640 }, .. })
    ));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    let used = ClusterSecret::rekey(&path, None, RekeyStep::Use).expect("used");
    assert!(file.renew().expect("readable") && *file.secret() == used);
}

#[test]
fn what_is_no_key_is_refused() {
    let folder = Folder::new();
    let path = folder.join("key");
    ClusterSecret::create(&path).expect("a key");
    let good = "0123456789abcdef".repeat(4);
    let bad = [
        String::new(),
        "\n".into(),
        good[1..].into(),
        format!("{good}0"),
        format!("{}g\n", &good[1..]),
        format!("{}é\n", &good[2..]),
        format!("{}\n", "0".repeat(64)),
    ];
    for text in bad {
        fs::write(&path, &text).expect("written");
        assert_eq!(fault(&path), KeyFileFault::NoKey, "{text:?}");
    }
    let (other, ids) = ("fedcba9876543210".repeat(4), "ids 00112233445566778899aabbccddeeff");
    for (text, line) in [
        (format!("{good}\n\n"), 2),
        (format!("{good}\nmore"), 2),
        (format!("{good}\n{other}\n{ids}\n"), 2),
        (format!("{good}\nnext {other}\n"), 2),
        (format!("{good}\nnext {other}0\n{ids}\n"), 2),
        (format!("{good}\nlater {other}\n{ids}\n"), 2),
        (format!("{good}\nnext {}\n{ids}\n", "0".repeat(64)), 2),
        (format!("{good}\n{}\n", &ids[..35]), 2),
        (format!("{good}\nnext {other}\n{}\n", &ids[..35]), 3),
        (format!("{good}\nnext {other}\nlast {other}\n"), 3),
        (format!("{good}\nnext {other}\nlast {other}\n{ids}\n"), 3),
        (format!("{good}\nnext {other}\n{ids}\n\n"), 4),
    ] {
        fs::write(&path, &text).expect("written");
        assert_eq!(fault(&path), KeyFileFault::BadLine { line }, "{text:?}");
    }
    fs::write(&path, format!("{good}\nnext {}\n{ids}\n", good.to_uppercase())).expect("written");
    assert_eq!(fault(&path), KeyFileFault::SameKeys);
    for text in [
        good.clone(),
        format!("{good}\n"),
        good.to_uppercase(),
        format!("{good}\n{ids}"),
        format!("{good}\nnext {other}\n{ids}\n"),
        format!("{good}\nlast {other}\n{ids}\n"),
    ] {
        fs::write(&path, &text).expect("written");
        ClusterSecret::read(&path).expect("a key");
    }
}
