//! Exact counts on a trace of paper 000's population, and libCacheSim's results on the same trace.
//! `data/README.md` describes the trace.

use std::num::NonZeroU32;

use rejoin_sim::policy::{Access, PolicyName, next_accesses};

static TRACE: &[u8] = include_bytes!("../data/paper-000.oracleGeneral.bin");

const REQUESTS: u64 = 85_973;
const CAPACITIES: [u32; 4] = [200, 600, 1_000, 1_300];

/// The miss ratios by libCacheSim (March 2024), every request counted, in ten-thousandths.
const LIB_CACHE_SIM: [(PolicyName, [u64; 4]); 7] = [
    (PolicyName::Fifo, [9994, 8425, 4761, 3779]),
    (PolicyName::Lru, [9992, 8721, 5374, 2875]),
    (PolicyName::Lfu, [9939, 9559, 9182, 8934]),
    (PolicyName::Sieve, [9939, 9559, 9182, 8934]),
    (PolicyName::Arc, [9905, 7020, 4224, 2923]),
    (PolicyName::S3Fifo, [9804, 6366, 5112, 4513]),
    // Its Bélády stores every object.
    (PolicyName::ClairvoyantNoBypass, [6703, 3444, 2510, 2345]),
];

/// The hits, by capacity.
const GOLDENS: [(PolicyName, [u64; 4]); 13] = [
    (PolicyName::Fifo, [50, 13_537, 45_041, 53_486]),
    (PolicyName::Lru, [70, 10_997, 39_770, 61_256]),
    (PolicyName::Random, [2_645, 21_842, 37_575, 44_542]),
    (PolicyName::Lfu, [527, 3_788, 7_030, 9_168]),
    (PolicyName::Mru, [1_415, 4_000, 6_514, 8_509]),
    (PolicyName::Fifo4Way, [709, 17_173, 35_800, 44_253]),
    (PolicyName::Fifo8Way, [287, 16_015, 38_040, 47_855]),
    (PolicyName::Fifo11Way, [215, 15_427, 38_834, 49_167]),
    (PolicyName::Sieve, [527, 3_788, 7_030, 9_168]),
    (PolicyName::S3Fifo, [1_688, 31_241, 42_027, 47_175]),
    (PolicyName::Arc, [816, 25_624, 49_657, 60_845]),
    (PolicyName::Clairvoyant, [28_441, 56_392, 64_398, 65_809]),
    (PolicyName::ClairvoyantNoBypass, [28_342, 56_368, 64_397, 65_809]),
];

fn accesses() -> Vec<Access> {
    let (records, rest) = TRACE.as_chunks::<24>();
    assert!(rest.is_empty(), "cut short");
    let read = |record: &[u8; 24]| {
        let [s0, s1, s2, s3, key @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *record;
        let [.., n0, n1, n2, n3, n4, n5, n6, n7] = *record;
        let next = i64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
        Access {
            key: u64::from_le_bytes(key),
            now_ms: u64::from(u32::from_le_bytes([s0, s1, s2, s3])) * 1_000,
            // The trace counts positions from 1.
            next: u64::try_from(next).map_or(u64::MAX, |next| next - 1),
            returns_in_ms: None,
        }
    };
    records.iter().map(read).collect()
}

fn hits(policy: PolicyName, capacity: u32, seed: u64, accesses: &[Access]) -> u64 {
    let mut cache = policy.build(NonZeroU32::new(capacity).expect("not zero"), seed, 0);
    let mut hits = 0;
    for access in accesses {
        if cache.access(access) {
            hits += 1;
        } else {
            cache.store(access);
        }
    }
    assert_eq!(cache.len(), capacity as usize);
    hits
}

#[test]
fn the_trace_says_itself_what_comes_next() {
    let accesses = accesses();
    assert_eq!(accesses.len() as u64, REQUESTS);
    let next = next_accesses(accesses.iter().map(|access| access.key));
    assert!(accesses.iter().map(|access| access.next).eq(next));
}

#[test]
fn lib_cache_sim_agrees_to_four_digits() {
    let accesses = accesses();
    let counted = LIB_CACHE_SIM.map(|(policy, _)| {
        let misses = CAPACITIES.map(|capacity| REQUESTS - hits(policy, capacity, 0, &accesses));
        (policy, misses.map(|misses| (misses * 20_000 + REQUESTS) / (2 * REQUESTS)))
    });
    assert_eq!(counted, LIB_CACHE_SIM);
}

#[test]
fn counts() {
    let accesses = accesses();
    let counted = GOLDENS.map(|(policy, _)| {
        (policy, CAPACITIES.map(|capacity| hits(policy, capacity, 0, &accesses)))
    });
    assert_eq!(counted, GOLDENS);
}
