//! The files of a cluster's machine: settings are refused in one line, a key file holds a key or is refused, and a
//! record that the cluster's key did not authenticate counts as none and is left as it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rejoin_cluster::{Error, RingRecord, Settings, WrappingKey};
use rejoin_store::Store;
use rejoin_testkit::folder::Folder;

const DIGITS: usize = 64;

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
    let digits = contents.strip_suffix(b"\n").unwrap_or(contents);
    let is_key = digits.len() == DIGITS
        && digits.iter().all(u8::is_ascii_hexdigit)
        && digits.iter().any(|digit| *digit != b'0');
    match WrappingKey::read(&path) {
        Ok(_) => assert!(is_key),
        Err(error) => assert!(!is_key && matches!(error, Error::BadKeyFile { .. }), "{error}"),
    }
}

fn record(folder: &Folder, contents: &[u8]) {
    let path = folder.path().join("cluster.key");
    let key = WrappingKey::create(&path).expect("a new file");
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
