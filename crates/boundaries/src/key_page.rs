//! Pages of ticket keys: one that is accepted is exactly what would be written of its ring, and a server goes on with
//! it or without it.
//!
//! ```text
//! flags, 1 byte: 1 corrects the checksum, 2 also puts the page into a key file | time, 8 | page
//! ```

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest;
use rejoin_cache::{Capacity, Settings};
use rejoin_store::{SharedKeys, Store};
use rejoin_testkit::folder::Folder;
use rejoin_tickets::{Error, KeyRing, Label, NONCE_BYTES, PAGE_BYTES, SECRET_BYTES};

const CHECKSUM_BYTES: usize = 32;

pub(crate) fn check(bytes: &[u8]) {
    let Some(([flags], rest)) = bytes.split_first_chunk() else { return };
    let Some((now_s, rest)) = rest.split_first_chunk() else { return };
    let now_s = u64::from_le_bytes(*now_s);
    let mut page = [0; PAGE_BYTES];
    let length = rest.len().min(PAGE_BYTES);
    page[..length].copy_from_slice(&rest[..length]);
    if flags & 1 == 1 {
        let (checked, checksum) = page.split_at_mut(PAGE_BYTES - CHECKSUM_BYTES);
        checksum.copy_from_slice(digest::digest(&digest::SHA256, checked).as_ref());
    }
    let ring = KeyRing::from_page(&page).ok();
    if let Some(ring) = &ring {
        assert_eq!(written(ring), page);
        use_ring(ring.clone(), now_s);
    }
    if flags & 2 == 2 {
        // A file that is cut short, too.
        let part = if flags & 1 == 1 { &page[..] } else { rest };
        open_file(part, ring, now_s);
    }
}

fn written(ring: &KeyRing) -> [u8; PAGE_BYTES] {
    let mut page = [7; PAGE_BYTES];
    ring.to_page(&mut page);
    page
}

/// Uses a ring as servers do, at any time.
fn use_ring(mut ring: KeyRing, now_s: u64) {
    assert!(ring.list(now_s).count() <= KeyRing::MOST_KEYS);
    let label = Label::new(b"any").expect("short");
    let sealer = ring.sealer(&label);
    if let Some(sealed) = sealer.seal_for(now_s, b"id", b"session", [3; NONCE_BYTES]) {
        let opened = sealer.open_for(now_s, b"id", &sealed);
        assert_eq!(*opened.expect("the same key").0, *b"session");
        assert!(sealer.open_for(now_s, b"other", &sealed).is_err());
    }
    let _ = ring.for_context(&label);
    let (due, before) = (ring.due(now_s), ring.list(now_s).count());
    let rotated = ring.rotate(now_s, &mut [9; SECRET_BYTES]);
    match rotated {
        Ok(_) | Err(Error::KnownSecret) => {}
        Err(why) => assert!(!due || before == KeyRing::MOST_KEYS, "{why}"),
    }
    ring.remove_expired(now_s);
    assert!(ring.list(now_s).count() <= KeyRing::MOST_KEYS);
    assert!(KeyRing::from_page(&written(&ring)).is_ok());
}

/// Opens the keys of a new cache with a key file.
fn open_file(bytes: &[u8], ring: Option<KeyRing>, now_s: u64) {
    let folder = Folder::below(Path::new(Store::FOLDER));
    let file = folder.write("keys", bytes);
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
    let name = "test".parse().expect("a name");
    let settings = Settings::new(Capacity::Sessions(1));
    let store = Arc::new(Store::open(folder.path(), &name, Some(&settings)).expect("a cache"));
    let opened = SharedKeys::open(Arc::clone(&store), None, Some(&file), now_s, |_| {});
    let held = store.ring().expect("nobody else has the lock");
    match ring {
        None => assert!(opened.is_err() && held.is_none(), "no ring"),
        Some(ring) => {
            let held = held.filter(|_| opened.is_ok());
            let unchanged = held.as_ref().is_some_and(|held| written(held) == written(&ring));
            assert!(unchanged || ring.due(now_s), "it was not due");
        }
    }
    assert!(Store::remove(folder.path(), &name).expect("ours"));
}
