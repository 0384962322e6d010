//! The head of a shared cache's file: the cache's settings and keys.
//!
//! It is written before the file has its name, read with `pread` and not through the mapping, and
//! wiped when the cache is removed. A checksum detects a head that was written over by accident, but does not protect
//! against intent.

use std::hash::Hasher;

use rejoin_cache::{Capacity, Fairness, Layout, Policy, Prediction, Settings, SourceBy};
use siphasher::sip::{SipHasher13, SipHasher24};
use zeroize::Zeroize;

use crate::division::{Division, Fit};

/// The version of everything in the file but regions and ledger: see [`Layout::VERSION`] for these.
const VERSION: u32 = 8;
const MAGIC: [u8; 8] = *b"rejoin\x00\x01";

/// The keys of a cache: wiped when dropped, never printed.
#[derive(Clone)]
pub(crate) struct Keys {
    /// The key of the index.
    pub(crate) hash: [u8; 16],
    /// The key of the tags in session ids.
    pub(crate) id: [u8; 16],
}

impl Keys {
    /// Returns a number that tells one id key from another, and reveals nothing about it.
    pub(crate) fn key_id(&self) -> u64 {
        SipHasher24::new_with_key(&self.id).hash(b"rejoin key id")
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.hash.zeroize();
        self.id.zeroize();
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(…)")
    }
}

/// The head of a file, decoded.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) settings: Settings,
    pub(crate) keys: Keys,
    /// True if the machine is one of a cluster.
    pub(crate) clustered: bool,
    /// The boot of the machine that the cache's times belong to.
    pub(crate) boot_id: [u8; 16],
    pub(crate) created_unix_s: u64,
}

/// The reason why a head cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It does not begin like a cache's file.
    NoCache,
    OtherVersion,
    Damaged,
}

/// The head's bytes in the file.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Written {
    magic: [u8; 8],
    version: u32,
    engine_version: u32,
    fingerprint: u64,
    capacity: u64,
    grace_ms: u64,
    prior_ms: u64,
    is_in_bytes: u32,
    policy: u32,
    prediction: u32,
    block_bytes: u32,
    longest_value_bytes: u32,
    ghosts_percent: u32,
    /// Zero stands for the default number.
    shards: u32,
    /// Zero stands for no bound.
    source_percent: u32,
    source_by: u32,
    clustered: u32,
    boot_id: [u8; 16],
    created_unix_s: u64,
    hash_key: [u8; 16],
    id_key: [u8; 16],
    /// The checksum of all fields before it.
    checksum: u64,
}

impl Head {
    pub(crate) const BYTES: usize = size_of::<Written>();

    /// Returns the bytes for the file. The caller wipes them.
    pub(crate) fn to_bytes(&self, layouts: &[Layout]) -> [u8; Self::BYTES] {
        let Settings { capacity, policy, prediction, grace_ms, prior_ms, .. } = self.settings;
        let Settings { block_bytes, longest_value_bytes, ghosts_percent, shards, fairness, .. } =
            self.settings;
        let (is_in_bytes, capacity) = match capacity {
            Capacity::Sessions(sessions) => (0, sessions),
            Capacity::Bytes(bytes) => (1, bytes),
        };
        let mut written = Written {
            magic: MAGIC,
            version: VERSION,
            engine_version: Layout::VERSION,
            fingerprint: Layout::fingerprint(layouts),
            capacity,
            grace_ms,
            prior_ms,
            is_in_bytes,
            policy: POLICIES.iter().position(|of| *of == policy).unwrap_or_default() as u32,
            prediction: PREDICTIONS.iter().position(|of| *of == prediction).unwrap_or_default()
                as u32,
            block_bytes,
            longest_value_bytes,
            ghosts_percent,
            shards: shards.unwrap_or(0),
            source_percent: fairness.map_or(0, |fair| fair.percent),
            source_by: fairness
                .and_then(|fair| SOURCES.iter().position(|of| *of == fair.by))
                .unwrap_or_default() as u32,
            clustered: self.clustered.into(),
            boot_id: self.boot_id,
            created_unix_s: self.created_unix_s,
            hash_key: self.keys.hash,
            id_key: self.keys.id,
            checksum: 0,
        };
        written.checksum = written.sum();
        bytemuck::cast(written)
    }

    /// Reads a head, and checks that this program divides the file in the same way.
    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, Unreadable> {
        let written: Written = bytemuck::pod_read_unaligned(bytes);
        if written.magic != MAGIC {
            return Err(Unreadable::NoCache);
        }
        if (written.version, written.engine_version) != (VERSION, Layout::VERSION) {
            return Err(Unreadable::OtherVersion);
        }
        if written.checksum != written.sum() {
            return Err(Unreadable::Damaged);
        }
        let head = written.head().ok_or(Unreadable::Damaged)?;
        let fit = Fit::of(&head.settings, head.clustered).map_err(|_| Unreadable::OtherVersion)?;
        if written.fingerprint != Layout::fingerprint(&fit.layouts) {
            return Err(Unreadable::OtherVersion);
        }
        Ok(head)
    }
}

const _: () = assert!(Head::BYTES <= Division::FIGURES);

const POLICIES: [Policy; 2] = [Policy::Predictive, Policy::Lru];
const SOURCES: [SourceBy; 3] = [SourceBy::Address, SourceBy::Certificate, SourceBy::Name];
const PREDICTIONS: [Prediction; 3] = [Prediction::Hint, Prediction::Learned, Prediction::Both];

impl Written {
    fn sum(&self) -> u64 {
        let bytes = bytemuck::bytes_of(self);
        let mut hasher = SipHasher13::new();
        hasher.write(&bytes[..bytes.len() - size_of::<u64>()]);
        hasher.finish()
    }

    fn head(&self) -> Option<Head> {
        let settings = Settings {
            capacity: match self.is_in_bytes {
                0 => Capacity::Sessions(self.capacity),
                1 => Capacity::Bytes(self.capacity),
                _ => return None,
            },
            policy: *POLICIES.get(self.policy as usize)?,
            prediction: *PREDICTIONS.get(self.prediction as usize)?,
            grace_ms: self.grace_ms,
            prior_ms: self.prior_ms,
            block_bytes: self.block_bytes,
            longest_value_bytes: self.longest_value_bytes,
            ghosts_percent: self.ghosts_percent,
            shards: (self.shards != 0).then_some(self.shards),
            fairness: match self.source_percent {
                0 => None,
                percent => {
                    let by = *SOURCES.get(self.source_by as usize)?;
                    Some(Fairness { by, percent })
                }
            },
        };
        let keys = Keys { hash: self.hash_key, id: self.id_key };
        let clustered = match self.clustered {
            0 => false,
            1 => true,
            _ => return None,
        };
        let Self { boot_id, created_unix_s, .. } = *self;
        Some(Head { settings, keys, clustered, boot_id, created_unix_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(settings: &Settings) -> [u8; Head::BYTES] {
        let keys = Keys { hash: [1; 16], id: [2; 16] };
        let (settings, clustered) = (settings.clone(), true);
        let head = Head { settings, keys, clustered, boot_id: [3; 16], created_unix_s: 4 };
        head.to_bytes(&Fit::of(&head.settings, clustered).expect("settings make a cache").layouts)
    }

    #[test]
    fn what_is_written_is_read() {
        let settings = Settings::new(Capacity::Sessions(100));
        for settings in [
            Settings { policy: Policy::Lru, shards: Some(3), ..settings.clone() },
            Settings { prediction: Prediction::Hint, grace_ms: 1, ..settings.clone() },
            Settings { prediction: Prediction::Learned, prior_ms: 7, ..settings.clone() },
            Settings { fairness: Some(Fairness { by: SourceBy::Name, percent: 7 }), ..settings },
            Settings { block_bytes: 99, ..Settings::new(Capacity::Bytes(1_000_000)) },
        ] {
            let head = Head::from_bytes(&written(&settings)).expect("readable");
            assert_eq!(head.settings, settings);
            assert_eq!((head.keys.hash, head.keys.id), ([1; 16], [2; 16]));
            assert_eq!((head.boot_id, head.created_unix_s, head.clustered), ([3; 16], 4, true));
        }
    }

    #[test]
    fn no_bit_can_be_changed() {
        let bytes = written(&Settings::new(Capacity::Sessions(100)));
        for bit in 0..8 * Head::BYTES {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            let refused = Head::from_bytes(&changed).err();
            let expected = match bit / 8 {
                0..8 => Unreadable::NoCache,
                8..16 => Unreadable::OtherVersion,
                _ => Unreadable::Damaged,
            };
            assert_eq!(refused, Some(expected), "bit {bit}");
        }
    }

    #[test]
    fn another_layout_is_another_version() {
        let mut written: Written = bytemuck::cast(written(&Settings::new(Capacity::Sessions(100))));
        written.fingerprint ^= 1;
        written.checksum = written.sum();
        let refused = Head::from_bytes(&bytemuck::cast(written)).err();
        assert_eq!(refused, Some(Unreadable::OtherVersion));
    }

    #[test]
    fn keys_are_not_printed() {
        let head = Head::from_bytes(&written(&Settings::new(Capacity::Sessions(1))));
        let printed = format!("{head:?}");
        assert!(printed.contains("Keys(…)"), "{printed}");
    }
}
