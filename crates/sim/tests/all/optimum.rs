//! The clairvoyant compared with every possible sequence of decisions, on short traces.

use std::collections::HashMap;
use std::num::NonZeroU32;

use rejoin_sim::policy::{Access, Clairvoyant, Policy, PolicyName, next_accesses};
use rejoin_testkit::random::Random;

/// Returns the most hits that any decisions can get, from the most hits so far for each set of keys
/// that the cache may hold (one bit each).
fn most_hits(keys: &[u64], capacity: u32, bypass: bool) -> u32 {
    let mut best = HashMap::from([(0_u32, 0)]);
    for key in keys {
        let mut after = HashMap::new();
        let mut reach = |held: u32, hits: u32| {
            let most = after.entry(held).or_insert(hits);
            *most = hits.max(*most);
        };
        for (held, hits) in best {
            let wanted = 1 << key;
            if held & wanted != 0 {
                reach(held, hits + 1);
                continue;
            }
            if bypass {
                reach(held, hits);
            }
            if held.count_ones() < capacity {
                reach(held | wanted, hits);
                continue;
            }
            let evictable = (0..32).map(|bit| 1 << bit).filter(|bit| held & bit != 0);
            evictable.for_each(|evicted| reach(held & !evicted | wanted, hits));
        }
        best = after;
    }
    best.into_values().max().unwrap_or(0)
}

fn hits(mut cache: impl Policy, keys: &[u64]) -> u32 {
    let next = next_accesses(keys.iter().copied());
    let accesses = keys.iter().zip(next).map(|(&key, next)| Access {
        key,
        now_ms: 0,
        next,
        returns_in_ms: None,
    });
    let hit = |access: Access| {
        let hit = cache.access(&access);
        if !hit {
            cache.store(&access);
        }
        u32::from(hit)
    };
    accesses.map(hit).sum()
}

#[test]
fn no_decisions_get_more_hits() {
    let mut random = Random::new(1);
    let mut below = |bound: u64| random.below(bound);
    for _ in 0..300 {
        let (distinct, capacity) = (2 + below(8), 1 + below(4) as u32);
        let keys: Vec<u64> = (0..30).map(|_| below(distinct)).collect();
        let sessions = NonZeroU32::new(capacity).expect("not zero");
        let with = hits(Clairvoyant::new(sessions), &keys);
        let without = hits(Clairvoyant::without_bypass(sessions), &keys);
        assert_eq!(with, most_hits(&keys, capacity, true), "{capacity} sessions, {keys:?}");
        assert_eq!(without, most_hits(&keys, capacity, false), "{capacity} sessions, {keys:?}");
        for policy in PolicyName::ALL {
            assert!(hits(policy.build(sessions, 0, 0), &keys) <= with, "{policy}: {keys:?}");
        }
    }
}
