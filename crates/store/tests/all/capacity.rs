//! The capacity, which is all that a cache's file takes.

use std::fs;

use rejoin_cache::{Capacity, Settings};
use rejoin_store::{CacheName, Error, Store};

const MIB: u64 = 1 << 20;

/// Returns the sizes of the file, at once after it is made and as its store tells it.
fn taken(settings: &Settings, is_clustered: bool) -> Result<(u64, u64), Error> {
    let (folder, name): (_, CacheName) = (crate::folder(), "test".parse()?);
    let store = if is_clustered {
        Store::open_for_cluster(folder.path(), &name, Some(settings), &[7; 16])?
    } else {
        Store::open(folder.path(), &name, Some(settings))?
    };
    assert_eq!(store.settings(), settings);
    let file = folder.path().join(name.file_name());
    Ok((fs::metadata(file).expect("there").len(), store.facts().bytes))
}

#[test]
fn a_file_takes_no_more_than_the_capacity_and_most_of_it() {
    let odd = [MIB + 1, 3 * MIB - 4_097, 4 * MIB + 12_345, 11_111_111, 33_554_433];
    for capacity in [1, 2, 3, 4, 7, 16, 32, 64, 100, 256].map(|of| of * MIB).into_iter().chain(odd)
    {
        // Each shard takes 17 KB before its first session.
        let shards = [None, Some(1), Some(7), Some(if capacity < 4 * MIB { 9 } else { 64 })];
        // Memory is written to; `division` has the arithmetic of the large ones.
        let shards = if capacity > 16 * MIB { &shards[..1] } else { &shards };
        for (shards, is_clustered) in shards.iter().flat_map(|of| [(*of, false), (*of, true)]) {
            let settings = Settings { shards, ..Settings::new(Capacity::Bytes(capacity)) };
            let (bytes, told) = taken(&settings, is_clustered).expect("made");
            let what = format!("{capacity} bytes, {shards:?} shards, cluster {is_clustered}");
            assert_eq!(bytes, told, "{what}");
            assert!(bytes <= capacity, "{what}: {bytes} taken");
            let enough = capacity < 4 * MIB || bytes * 100 >= capacity * 95;
            assert!(enough, "{what}: {bytes} taken");
        }
    }
}

#[test]
fn the_least_capacity_is_told_and_is_enough() {
    for shards in [None, Some(1), Some(9)] {
        for is_clustered in [false, true] {
            let of = |bytes| Settings { shards, ..Settings::new(Capacity::Bytes(bytes)) };
            let mut needed = 1;
            for _ in 0..3 {
                match taken(&of(needed), is_clustered) {
                    Err(Error::Settings(rejoin_cache::Error::CapacityTooSmall {
                        capacity_bytes,
                        needed_bytes,
                    })) => {
                        assert_eq!(capacity_bytes, needed);
                        assert!(needed_bytes > needed, "{needed_bytes} after {needed}");
                        needed = needed_bytes;
                    }
                    made => {
                        made.expect("made");
                        break;
                    }
                }
            }
            assert!(taken(&of(needed), is_clustered).is_ok_and(|(bytes, _)| bytes <= needed));
            assert!(taken(&of(needed - 1), is_clustered).is_err(), "{needed} are not the least");
        }
    }
}
