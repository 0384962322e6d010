//! The files of a cluster's machine: settings are refused in one line, a key file holds one key or two or is refused, and a
//! record that the cluster's key did not authenticate counts as none and is left as it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rejoin_cluster::{ClusterSecret, Error, RingRecord, Settings};
use rejoin_store::Store;
use rejoin_testkit::folder::Folder;

pub(crate) fn check(bytes: &[u8]) {
    let Some(([kind], contents)) = bytes.split_first_chunk() else { return };
    let folder = Folder::below(Path::new(Store::FOLDER));
    match kind % 3 {
        0 => settings(&folder, contents),
        1 => key(&folder, contents),
        _ => record(&folder, contents),
    }
}

fn settings(folder: &Folder, contents: &[u8]) {
    match Settings::read(&folder.write("cluster.toml", contents)) {
        Ok(settings) => {
            assert!(settings.schedule().is_ok() && settings.cache().is_ok());
            assert!(settings.deadline() <= rejoin_store::Mailbox::MOST_WAIT);
            assert!(settings.bounds().shards > 0);
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.contains('\n'), "{said:?}");
        }
    }
}

fn key(folder: &Folder, contents: &[u8]) {
    let path = secret(folder, "cluster.key", contents);
    let is_secret = is_secret(contents);
    match ClusterSecret::read(&path) {
        Ok(_) => assert!(is_secret),
        Err(error) => assert!(!is_secret && matches!(error, Error::BadKeyFile { .. }), "{error}"),
    }
}

/// Returns true if these are the lines of a key file.
fn is_secret(contents: &[u8]) -> bool {
    let text = contents.strip_suffix(b"\n").unwrap_or(contents);
    let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
    let is_hex =
        |text: &[u8], digits| text.len() == digits && text.iter().all(u8::is_ascii_hexdigit);
    let is_key = |text: &[u8]| is_hex(text, 64) && text.iter().any(|digit| *digit != b'0');
    let is_ids = |line: &[u8]| line.strip_prefix(b"ids ").is_some_and(|text| is_hex(text, 32));
    let second = |line: &[u8]| {
        let text = line.strip_prefix(b"next ").or_else(|| line.strip_prefix(b"last "))?;
        is_key(text).then(|| text.to_ascii_lowercase())
    };
    match lines[..] {
        [key] => is_key(key),
        [key, ids] => is_key(key) && is_ids(ids),
        [key, other, ids] => {
            let other = second(other);
            is_key(key)
                && is_ids(ids)
                && other.is_some_and(|other| other != key.to_ascii_lowercase())
        }
        _ => false,
    }
}

fn record(folder: &Folder, contents: &[u8]) {
    let path = folder.path().join("cluster.key");
    let key = ClusterSecret::create(&path).expect("a new file");
    let file = secret(folder, "cluster.key.seen", contents);
    let name = "shop".parse().expect("a name");
    let mut record = RingRecord::open(&path, &key, &name).expect("ours");
    assert_eq!(record.seen(), 0, "the key is new");
    assert!(record.take_trouble().is_none());
    assert_eq!(fs::read(file).expect("there"), contents);
}

/// Writes a file that only its owner may read.
fn secret(folder: &Folder, name: &str, contents: &[u8]) -> PathBuf {
    let path = folder.write(name, contents);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    path
}
