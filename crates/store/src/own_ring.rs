//! The ticket keys that a machine's servers make themselves, while those of their cluster have not come.
//!
//! They are not on the page for ticket keys: what is there is the cluster's, and its agent would give it to the other
//! machines. Nobody but this machine's servers has them. Once the cluster's ring is there, they seal nothing, open the
//! tickets that they have sealed until these expire, and are wiped.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use rejoin_tickets::{CLOCKS_APART_S, KeyRing, Schedule};
use zeroize::Zeroizing;

use crate::Store;

/// A ring without a page of its own, in the memory of a cache. All zeros: there is none. It is read and changed under the
/// lock of the page.
///
/// Its words are the begin and the end of the page that it would have. All between is zeros if it has
/// [`OwnRing::MOST_KEYS`] or less.
#[repr(C)]
pub(crate) struct OwnRing {
    /// The Unix time when a server last took it to seal with.
    sealed_at_s: AtomicU64,
    begin: [AtomicU64; BEGIN_BYTES / WORD_BYTES],
    end: [AtomicU64; END_BYTES / WORD_BYTES],
}

const WORD_BYTES: usize = size_of::<u64>();
/// The schedule, and the keys that the usual one has at once.
const BEGIN_BYTES: usize = 40 + OwnRing::MOST_KEYS * 48;
/// The checksum.
const END_BYTES: usize = 32;

impl OwnRing {
    const MOST_KEYS: usize = 5;

    /// Returns the ring, and the time when a server last sealed with it. `None`: there is none, or a process was killed while
    /// it wrote.
    pub(crate) fn read(&self, now_s: u64) -> Option<(KeyRing, u64)> {
        let mut page = Zeroizing::new([0; Store::PAGE_BYTES]);
        let (begin, rest) = page.split_at_mut(BEGIN_BYTES);
        copy(&self.begin, begin);
        let end_at = rest.len() - END_BYTES;
        copy(&self.end, &mut rest[end_at..]);
        let ring = KeyRing::from_page(&page).ok()?;
        // The clock may have been set back.
        Some((ring, self.sealed_at_s.load(Ordering::Relaxed).min(now_s)))
    }

    /// Writes a ring that a server seals with at this time. One with more keys than there is room for loses the oldest: only a clock
    /// that jumps makes so many.
    pub(crate) fn write(&self, ring: &mut KeyRing, now_s: u64) {
        let mut page = Zeroizing::new([0; Store::PAGE_BYTES]);
        let end_at = page.len() - END_BYTES;
        ring.to_page(&mut page);
        while page[BEGIN_BYTES..end_at].iter().any(|byte| *byte != 0) {
            let Some(oldest) = ring.list(now_s).next() else { break };
            ring.retire(&oldest.id);
            ring.to_page(&mut page);
        }
        put(&page[..BEGIN_BYTES], &self.begin);
        put(&page[end_at..], &self.end);
        self.note_use(now_s);
    }

    /// Notes that a server seals with the ring now.
    pub(crate) fn note_use(&self, now_s: u64) {
        self.sealed_at_s.store(now_s, Ordering::Relaxed);
    }

    /// Returns the ring as [`Self::read`] does, without its expired keys, which are wiped. Wipes all of it instead if its last
    /// ticket has expired, by its schedule or by that of its cluster.
    pub(crate) fn read_or_wipe(&self, of_cluster: &Schedule, now_s: u64) -> Option<(KeyRing, u64)> {
        let (mut ring, sealed_at_s) = self.read(now_s)?;
        if self.sealed_at_s.load(Ordering::Relaxed) > now_s {
            // Else each look would find that it was sealed with just now, until the time comes that the clock had shown.
            self.note_use(now_s);
        }
        let lifetimes_s = [ring.schedule(), of_cluster].map(Schedule::ticket_lifetime_s);
        let lasts_s = lifetimes_s[0].min(lifetimes_s[1]) + CLOCKS_APART_S;
        if sealed_at_s.saturating_add(lasts_s) <= now_s {
            self.wipe();
            return None;
        }
        if ring.remove_expired(now_s) > 0 {
            self.write(&mut ring, sealed_at_s);
        }
        Some((ring, sealed_at_s))
    }

    pub(crate) fn wipe(&self) {
        let words = self.begin.iter().chain(&self.end);
        words.chain([&self.sealed_at_s]).for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

fn copy(words: &[AtomicU64], to: &mut [u8]) {
    for (word, bytes) in words.iter().zip(to.chunks_exact_mut(WORD_BYTES)) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
}

fn put(bytes: &[u8], to: &[AtomicU64]) {
    for (bytes, word) in bytes.chunks_exact(WORD_BYTES).zip(to) {
        let bytes = bytes.try_into().expect("a word");
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

/// No key is shown.
impl fmt::Debug for OwnRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnRing(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::array;

    use super::*;

    const HOUR_S: u64 = 3_600;
    const NOW_S: u64 = 1_800_000_000;

    fn own() -> OwnRing {
        let words = || AtomicU64::new(0);
        OwnRing {
            sealed_at_s: words(),
            begin: array::from_fn(|_| words()),
            end: array::from_fn(|_| words()),
        }
    }

    fn ids(ring: &KeyRing) -> Vec<rejoin_tickets::KeyId> {
        ring.list(NOW_S).map(|key| key.id).collect()
    }

    #[test]
    fn a_ring_is_there_as_it_was_written_and_loses_its_oldest_keys_where_it_has_too_many() {
        let (own, mut ring) = (own(), KeyRing::new(Schedule::default()));
        assert!(own.read(NOW_S).is_none());
        for number in 1..=KeyRing::MOST_KEYS {
            ring.rotate(NOW_S, &mut [number as u8; 32]).expect("room");
            let mut written = ring.clone();
            own.write(&mut written, NOW_S);
            let (read, sealed_at_s) = own.read(NOW_S).expect("a ring");
            let newest = number.saturating_sub(OwnRing::MOST_KEYS);
            assert_eq!((ids(&read), sealed_at_s), (ids(&ring)[newest..].to_vec(), NOW_S));
            assert_eq!(ids(&written), ids(&read));
        }
        own.begin[7].fetch_xor(1, Ordering::Relaxed);
        assert!(own.read(NOW_S).is_none(), "written over");
    }

    #[test]
    fn the_usual_schedule_never_has_too_many() {
        let (own, mut ring) = (own(), KeyRing::new(Schedule::default()));
        for hour in 0..1_000 {
            let now_s = NOW_S + hour * HOUR_S;
            if ring.due(now_s) {
                ring.rotate_due(now_s, &mut [(hour % 255) as u8 + 1; 32]).expect("room");
            }
            let before = ids(&ring);
            own.write(&mut ring, now_s);
            assert_eq!(ids(&ring), before, "{hour}");
        }
    }

    #[test]
    fn it_is_wiped_once_its_last_ticket_has_expired() {
        let (own, mut ring) = (own(), KeyRing::new(Schedule::default()));
        ring.rotate(NOW_S, &mut [1; 32]).expect("room");
        own.write(&mut ring, NOW_S);
        own.note_use(NOW_S + HOUR_S);
        let end_s = NOW_S + 25 * HOUR_S + CLOCKS_APART_S;
        let week = Schedule::new(24 * HOUR_S, 7 * 24 * HOUR_S, HOUR_S).expect("a schedule");
        let (_, sealed_at_s) = own.read_or_wipe(&week, end_s - 1).expect("alive");
        assert_eq!(sealed_at_s, NOW_S + HOUR_S);
        assert!(own.read_or_wipe(&week, end_s).is_none() && own.read(NOW_S).is_none());
        assert_empty(&own);
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_it_for_one_lifetime() {
        let (own, mut ring) = (own(), KeyRing::new(Schedule::default()));
        ring.rotate(NOW_S, &mut [1; 32]).expect("room");
        own.write(&mut ring, NOW_S);
        own.note_use(NOW_S + 1_000 * HOUR_S);
        let lasts_s = 24 * HOUR_S + CLOCKS_APART_S;
        for now_s in [NOW_S, NOW_S + HOUR_S, NOW_S + lasts_s - 1] {
            let (_, sealed_at_s) = own.read_or_wipe(ring.schedule(), now_s).expect("alive");
            assert_eq!(sealed_at_s, NOW_S);
        }
        assert!(own.read_or_wipe(ring.schedule(), NOW_S + lasts_s).is_none());
        assert_empty(&own);
    }

    #[test]
    fn a_shorter_lifetime_of_the_clusters_tickets_ends_it_sooner() {
        let (own, mut ring) = (own(), KeyRing::new(Schedule::default()));
        ring.rotate(NOW_S, &mut [1; 32]).expect("room");
        own.write(&mut ring, NOW_S);
        let hour = Schedule::new(HOUR_S, HOUR_S, 600).expect("a schedule");
        let end_s = NOW_S + HOUR_S + CLOCKS_APART_S;
        assert!(own.read_or_wipe(&hour, end_s - 1).is_some());
        assert!(own.read_or_wipe(&hour, end_s).is_none());
        assert_empty(&own);
    }

    fn assert_empty(own: &OwnRing) {
        let mut words = own.begin.iter().chain(&own.end).chain([&own.sealed_at_s]);
        assert!(words.all(|word| word.load(Ordering::Relaxed) == 0));
    }
}
