//! A deliberately naive cache, and the machinery that runs it beside the real one.
//!
//! Nothing here knows which [`rejoin_cache::Memory`] the engine works on, so that a crate with a
//! memory of its own can run the same operations on it.

mod candidates;
mod expectation;
pub mod fenced;
mod ghosts;
mod naive;
pub mod operation;
pub mod plan;
mod slots;
pub mod twins;

pub use naive::Weighed;

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use rejoin_cache::SessionId;

/// The hash that chooses shards and ghosts, the same as the engine's.
pub(crate) fn keyed_hash(key: &[u8; 16], id: &SessionId) -> u64 {
    static SHARED: SharedSeed = SharedSeed::from_u64(0);
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| key[at + byte]));
    let mut padded = [0; SessionId::LONGEST];
    padded[..id.as_bytes().len()].copy_from_slice(id.as_bytes());
    let mut hasher = FoldHasher::with_seed(half(0) ^ half(8).rotate_left(32), &SHARED);
    for half in padded.chunks(16) {
        hasher.write_u128(u128::from_ne_bytes(std::array::from_fn(|byte| half[byte])));
    }
    hasher.finish()
}

/// The mark that tells a client from others: bits of the same hash, never zero.
pub(crate) fn told_by(key: &[u8; 16], id: &SessionId) -> u16 {
    (keyed_hash(key, id) >> 32 & 0x3fff).max(1) as u16
}
