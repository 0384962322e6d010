//! The file of the cluster's key.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rejoin_cluster::{Error, KeyFileFault, WrappingKey};
use rejoin_testkit::folder::Folder;

fn fault(path: &Path) -> KeyFileFault {
    match WrappingKey::read(path) {
        Err(Error::BadKeyFile { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_created_is_read() {
    let folder = Folder::new();
    let path = folder.join("key");
    let key = WrappingKey::create(&path).expect("a key");
    let file = fs::metadata(&path).expect("a file");
    assert_eq!((file.mode() & 0o7777, file.len()), (0o600, 65));
    let read = WrappingKey::read(&path).expect("the same");
    assert_eq!(read.derive(b"one"), key.derive(b"one"));
    assert_ne!(read.derive(b"one"), read.derive(b"two"));
    let digits = fs::read_to_string(&path).expect("text");
    assert!(!format!("{read:?}").contains(&digits[..8]));
    assert!(matches!(WrappingKey::create(&path), Err(Error::Unwritable { .. })), "it is there");
    assert_eq!(fs::read_to_string(&path).expect("text"), digits, "and stays");
    let other = WrappingKey::create(&folder.join("other")).expect("another key");
    assert_ne!(other.derive(b"one"), key.derive(b"one"));
}

#[test]
fn what_others_may_read_or_write_is_refused() {
    let folder = Folder::new();
    let path = folder.join("key");
    WrappingKey::create(&path).expect("a key");
    for mode in [0o640, 0o604, 0o620, 0o602, 0o666] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        assert_eq!(fault(&path), KeyFileFault::Mode { mode });
    }
    fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("ours");
    WrappingKey::read(&path).expect("its owner alone may read it");
    for mode in [0o770, 0o707, 0o777] {
        fs::set_permissions(&*folder, Permissions::from_mode(mode)).expect("ours");
        assert_eq!(fault(&path), KeyFileFault::Folder { mode });
    }
    fs::set_permissions(&*folder, Permissions::from_mode(0o700)).expect("ours");
    symlink(&path, folder.join("link")).expect("a link");
    assert_eq!(fault(&folder.join("link")), KeyFileFault::NotRegular);
    fs::create_dir(folder.join("folder")).expect("a folder");
    assert_eq!(fault(&folder.join("folder")), KeyFileFault::NotRegular);
    let missing = WrappingKey::read(&folder.join("missing"));
    assert!(matches!(missing, Err(Error::Unreadable { .. })));
    let owned = std::os::unix::fs::chown(&path, Some(12_345), None);
    if owned.is_ok() {
        assert_eq!(fault(&path), KeyFileFault::Owner { uid: 12_345 });
    }
}

#[test]
fn what_is_no_key_is_refused() {
    let folder = Folder::new();
    let path = folder.join("key");
    WrappingKey::create(&path).expect("a key");
    let good = "0123456789abcdef".repeat(4);
    let bad = [
        String::new(),
        "\n".into(),
        good[1..].into(),
        format!("{good}0"),
        format!("{good}\n\n"),
        format!("{good}\nmore"),
        format!("{}g\n", &good[1..]),
        format!("{}é\n", &good[2..]),
        format!("{}\n", "0".repeat(64)),
    ];
    for text in bad {
        fs::write(&path, &text).expect("written");
        assert_eq!(fault(&path), KeyFileFault::NoKey, "{text:?}");
    }
    for text in [good.clone(), format!("{good}\n"), good.to_uppercase()] {
        fs::write(&path, &text).expect("written");
        WrappingKey::read(&path).expect("a key");
    }
}
