//! Any settings: they are refused, or divided into shards that take exactly the given bytes.

use arbitrary::Arbitrary;
use rejoin_cache::{Capacity, Layout, Settings};

use crate::structured;

#[derive(Debug, Arbitrary)]
struct Asked {
    bytes: bool,
    capacity: u64,
    /// A shift, so that small values come up.
    shift: u8,
    block_bytes: u32,
    longest_value_bytes: u16,
    ghosts_percent: u16,
    grace_ms: u64,
    shards: Option<u16>,
}

pub(crate) fn check(bytes: &[u8]) {
    let Some(asked) = structured::<Asked>(bytes) else { return };
    let amount = asked.capacity >> (asked.shift % 64);
    let capacity = if asked.bytes { Capacity::Bytes(amount) } else { Capacity::Sessions(amount) };
    let settings = Settings {
        block_bytes: asked.block_bytes % 70_000,
        longest_value_bytes: asked.longest_value_bytes.into(),
        ghosts_percent: u32::from(asked.ghosts_percent) % 1_100,
        grace_ms: asked.grace_ms,
        shards: asked.shards.map(u32::from),
        ..Settings::new(capacity)
    };
    let Ok(layouts) = Layout::for_cache(&settings) else { return };
    let sessions: u64 = layouts.iter().map(Layout::sessions).sum();
    let bytes: u64 = layouts.iter().map(|layout| layout.region_bytes() as u64).sum();
    assert!(!layouts.is_empty() && layouts.iter().all(|layout| layout.sessions() > 0));
    assert!(settings.shards.is_none_or(|shards| layouts.len() as u64 <= u64::from(shards)));
    match capacity {
        Capacity::Sessions(asked) => assert_eq!(sessions, asked),
        Capacity::Bytes(asked) => assert!(bytes <= asked),
    }
}
