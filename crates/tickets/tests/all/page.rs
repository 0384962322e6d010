//! A ring survives being written down, and no other bytes become one.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rejoin_tickets::{Error, KeyRing, KeyStatus, Label, PAGE_BYTES, Schedule};

const NOW_S: u64 = 1_800_000_000;

fn ring(keys: u8) -> KeyRing {
    let schedule = Schedule::new(7_200, 86_400, 600).expect("a schedule");
    let mut ring = KeyRing::new(schedule);
    for key in 1..=keys {
        ring.rotate(NOW_S + u64::from(key), &mut [key; 32]).expect("a key");
    }
    ring
}

fn written(ring: &KeyRing) -> [u8; PAGE_BYTES] {
    let mut page = [0xff; PAGE_BYTES];
    ring.to_page(&mut page);
    page
}

/// With a checksum that fits: what is read after it is checked.
fn signed(mut page: [u8; PAGE_BYTES]) -> [u8; PAGE_BYTES] {
    let (checked, checksum) = page.split_at_mut(PAGE_BYTES - 32);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, checked);
    checksum.copy_from_slice(digest.as_ref());
    page
}

#[test]
fn a_ring_is_the_same_after_it_was_written() {
    for keys in 0..=KeyRing::MOST_KEYS as u8 {
        let before = ring(keys);
        let after = KeyRing::from_page(&written(&before)).expect("a page");
        let list = |ring: &KeyRing| ring.list(NOW_S).collect::<Vec<KeyStatus>>();
        assert_eq!(list(&after), list(&before));
        assert_eq!(after.schedule(), before.schedule());
        let label = Label::new(b"one").expect("a label");
        let keys = |ring: &KeyRing| {
            let all = ring.for_context(&label);
            all.iter().map(|key| (*key.name(), *key.mac_key())).collect::<Vec<_>>()
        };
        assert_eq!(keys(&after), keys(&before));
        assert_eq!(written(&after), written(&before));
    }
}

#[test]
fn a_page_with_any_byte_changed_is_none() {
    let page = written(&ring(3));
    for at in 0..PAGE_BYTES {
        let mut changed = page;
        changed[at] ^= 0x10;
        assert!(KeyRing::from_page(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn what_no_ring_would_write_is_told_apart() {
    let refused = |change: fn(&mut [u8; PAGE_BYTES])| {
        let mut page = written(&ring(3));
        change(&mut page);
        KeyRing::from_page(&signed(page)).expect_err("not a ring")
    };
    let bad = |reason| Error::BadPage { reason };
    assert_eq!(refused(|page| page.fill(0)), bad("it does not begin as one"));
    assert_eq!(refused(|page| page[8] = 2), Error::UnknownVersion { version: 2, known: 1 });
    assert_eq!(refused(|page| page[12] = 17), bad("it has too many keys"));
    assert_eq!(refused(|page| page[12] = 4), bad("one of its keys is all zeros"));
    assert_eq!(refused(|page| page[12] = 2), bad("something follows its keys"));
    assert_eq!(refused(|page| page[40 + 3 * 48] = 1), bad("something follows its keys"));
    assert_eq!(refused(|page| page[4_063] = 1), bad("something follows its keys"));
    assert_eq!(refused(|page| page[40 + 15] = 1), bad("its keys are out of order"));
    assert_eq!(refused(|page| page.copy_within(40..88, 88)), bad("it has a key twice"));
    let schedule = refused(|page| page[16..24].fill(0));
    assert!(matches!(schedule, Error::OutOfRange { name: "rotate_every_s", .. }), "{schedule}");
}

#[test]
fn garbage_is_an_error() {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let page = written(&ring(5));
    for _ in 0..3_000 {
        let mut garbage = page;
        let start = random.random_range(0..PAGE_BYTES - 32);
        let end = random.random_range(start + 1..=PAGE_BYTES - 32);
        random.fill_bytes(&mut garbage[start..end]);
        assert!(KeyRing::from_page(&garbage).is_err());
        // Whatever it is taken for, it is not a panic, and can be used.
        if let Ok(mut ring) = KeyRing::from_page(&signed(garbage)) {
            let now_s = random.random();
            ring.list(now_s).for_each(drop);
            let _ = (ring.due(now_s), ring.rotate(now_s, &mut random.random()));
            let again = KeyRing::from_page(&written(&ring)).expect("a page");
            assert!(again.list(now_s).eq(ring.list(now_s)));
        }
    }
}
