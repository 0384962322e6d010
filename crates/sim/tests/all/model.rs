//! Each policy compared with a naive one, over seeded operations: accesses, several sessions stored
//! after one, sessions removed.

mod naive;
mod naive_ghosts;

use std::num::NonZeroU32;

use naive::{Ends, Hand, Ranked};
use naive_ghosts::{FourLists, ThreeQueues};
use rejoin_sim::policy::{Access, Policy, PolicyName, SetAssociativeFifo, next_accesses};
use rejoin_testkit::random::Random;

/// The number of operations in a run.
const STEPS: usize = 3_000;

/// The operation at a position of the trace.
#[derive(Clone, Copy)]
enum Step {
    /// A lookup, and a store after a miss.
    Resume,
    /// A store, whether the session is there or not.
    Store,
    Remove,
}

/// Draws keys below `keys`, some more often than others.
fn script(random: &mut Random, keys: u64) -> Vec<(Access, Step)> {
    let drawn: Vec<u64> =
        (0..STEPS).map(|_| random.below(random.clone().below(keys) + 1)).collect();
    let next = next_accesses(drawn.iter().copied());
    let accesses = drawn.iter().zip(next).enumerate();
    let accesses = accesses.map(|(at, (&key, next))| Access {
        key,
        now_ms: at as u64,
        next,
        returns_in_ms: None,
    });
    let step = |random: &mut Random| match random.below(20) {
        0 => Step::Remove,
        1 | 2 => Step::Store,
        _ => Step::Resume,
    };
    accesses.map(|access| (access, step(random))).collect()
}

fn run(one: &mut dyn Policy, other: &mut dyn Policy, script: &[(Access, Step)], what: &str) {
    for (at, (access, step)) in script.iter().enumerate() {
        let same = match step {
            Step::Remove => one.remove(access.key) == other.remove(access.key),
            Step::Resume => {
                let (hit, expected) = (one.access(access), other.access(access));
                if !hit {
                    one.store(access);
                }
                if !expected {
                    other.store(access);
                }
                hit == expected
            }
            Step::Store => {
                one.store(access);
                other.store(access);
                true
            }
        };
        assert!(same && one.len() == other.len(), "{what}, step {at}");
    }
}

/// Compares on small caches of every size, with few keys and many.
fn assert_same<N: Policy>(
    make: impl Fn(NonZeroU32) -> Box<dyn Policy + Send>,
    naive: impl Fn(usize) -> N,
) {
    for seed in 0..4 {
        for capacity in 1..=24_u32 {
            let mut random = Random::new(seed * 100 + u64::from(capacity));
            let keys = 2 + random.below(6 * u64::from(capacity));
            let script = script(&mut random, keys);
            let capacity = NonZeroU32::new(capacity).expect("not zero");
            let what = format!("seed {seed}, {capacity} sessions, {keys} keys");
            let mut naive = naive(capacity.get() as usize);
            run(&mut make(capacity), &mut naive, &script, &what);
        }
    }
}

fn assert_named<N: Policy>(policy: PolicyName, naive: impl Fn(usize) -> N) {
    assert_same(|capacity| policy.build(capacity, 0, 0), naive);
}

#[test]
fn fifo() {
    assert_named(PolicyName::Fifo, |capacity| Ends::new(capacity, false, false));
}

#[test]
fn lru() {
    assert_named(PolicyName::Lru, |capacity| Ends::new(capacity, true, false));
}

#[test]
fn mru() {
    assert_named(PolicyName::Mru, |capacity| Ends::new(capacity, true, true));
}

#[test]
fn lfu() {
    assert_named(PolicyName::Lfu, Ranked::by_frequency);
}

#[test]
fn sieve() {
    assert_named(PolicyName::Sieve, Hand::new);
}

#[test]
fn s3_fifo() {
    assert_named(PolicyName::S3Fifo, ThreeQueues::new);
}

#[test]
fn arc() {
    assert_named(PolicyName::Arc, FourLists::new);
}

#[test]
fn clairvoyant() {
    assert_named(PolicyName::Clairvoyant, |capacity| Ranked::by_next_use(capacity, true));
    assert_named(PolicyName::ClairvoyantNoBypass, |capacity| Ranked::by_next_use(capacity, false));
}

#[test]
fn one_set_is_a_fifo() {
    let one_set = |capacity| -> Box<dyn Policy + Send> {
        Box::new(SetAssociativeFifo::new(capacity, capacity))
    };
    assert_same(one_set, |capacity| Ends::new(capacity, false, false));
}

/// Checks that exactly one session is evicted, and only if necessary; which one is random.
#[test]
fn random_and_sets_hold_what_was_stored() {
    let policies = [PolicyName::Random, PolicyName::Fifo4Way, PolicyName::Fifo11Way];
    for (policy, seed) in policies.into_iter().zip(0..) {
        for capacity in 1..=24_u32 {
            let mut random = Random::new(seed);
            let mut cache = policy.build(NonZeroU32::new(capacity).expect("not zero"), seed, 0);
            let script = script(&mut random, 3 * u64::from(capacity));
            let mut held: Vec<u64> = Vec::new();
            for (access, step) in script {
                let there = held.contains(&access.key);
                match step {
                    Step::Remove => assert_eq!(cache.remove(access.key), there),
                    Step::Store | Step::Resume => {
                        assert_eq!(cache.access(&access), there);
                        cache.store(&access);
                        held.retain(|&key| key != access.key);
                        held.push(access.key);
                    }
                }
                let before = held.len();
                held.retain(|&key| cache.access(&Access { key, ..access }));
                let lost = before - held.len();
                assert!(lost <= 1 && held.len() == cache.len() && cache.len() <= capacity as usize);
                let must = policy != PolicyName::Random || before > capacity as usize;
                assert!(lost == 0 || must || matches!(step, Step::Remove));
            }
        }
    }
}
