//! A comparison of the engine with a naive exact model: four million seeded random operations, with
//! every answer, value and count compared; twenty million more in `make test-all`.
//!
//! The model, `rejoin_testkit::cache_model`, is written from the documentation of the operations, with a `Vec`
//! and linear scans. Ghosts of evicted clients are modelled exactly as well: the tests choose the
//! hash key, so they know where a client is remembered. The engine's own
//! [`rejoin_cache::ReturnTimes`] calculates the worth of a place; the model decides which places are
//! compared, and what is learned. Nothing of the crate is public for the sake of these tests.
//!
//! Configurations are the product of policy and prediction, grace, capacity and shards; block
//! size, longest value, ghosts, prior, pace of the clock, and whether the clock may step back
//! follow from the seed. Each runs on the heap and in the middle of fenced memory.

use rejoin_cache::{
    Cache, Capacity, ContextTag, Fairness, Layout, Line, Memory, Policy, Prediction,
};
use rejoin_cache::{SecretBytes, Settings, SourceBy};
use rejoin_testkit::cache_model::Weighed;
use rejoin_testkit::cache_model::fenced::Fenced;
use rejoin_testkit::cache_model::operation::{Operation, id_of};
use rejoin_testkit::cache_model::plan::Plan;
use rejoin_testkit::cache_model::twins::{Happened, Twins};
use rejoin_testkit::random::Random;

/// The number of operations in one comparison.
const OPERATIONS: u64 = 2_000_000;
/// The number of operations in one long comparison.
const MANY_OPERATIONS: u64 = 10_000_000;

fn on_the_heap(layout: &Layout) -> Vec<Line> {
    vec![Line::ZERO; layout.region_lines()]
}

#[test]
fn agrees_with_the_model_on_the_heap() {
    run(OPERATIONS, plans(1), on_the_heap);
}

#[test]
#[ignore = "slow: make test-all (half a minute of random operations)"]
fn agrees_with_the_model_on_the_heap_at_length() {
    run(MANY_OPERATIONS, plans(1), on_the_heap);
}

#[test]
fn agrees_with_the_model_between_fences() {
    run(OPERATIONS, plans(2), Fenced::new);
}

#[test]
#[ignore = "slow: make test-all (half a minute of random operations)"]
fn agrees_with_the_model_between_fences_at_length() {
    run(MANY_OPERATIONS, plans(2), Fenced::new);
}

#[test]
fn no_time_is_too_far() {
    let settings = Settings::new(Capacity::Sessions(4));
    let mut twins = Twins::new(&settings, [0; 16], 4, 0, on_the_heap);
    let context = ContextTag::default();
    for now_ms in [0, 1 << 33, (1 << 33) - 1, 1 << 45, 3, u64::MAX / 1_000_000] {
        (0..4).for_each(|client| twins.apply(now_ms, Operation::Get { client, context }));
    }
    let cache = Cache::new(&settings, [0; 16], 0).expect("settings make a cache");
    cache.get(u64::MAX, &id_of(0), context, &mut SecretBytes::default());
}

fn run<M: Memory>(operations: u64, plans: Vec<Plan>, memory: fn(&Layout) -> M) {
    let (share, enough) = (operations.div_ceil(plans.len() as u64), operations * 3 / 10_000);
    let runs = plans.into_iter().map(|plan| Plan { operations: share, ..plan }.run(memory));
    let all = runs.fold(Happened::default(), |all, one| all.plus(&one));
    let counts: &[u64] = bytemuck::cast_slice(std::slice::from_ref(&all.counters));
    assert!(counts.iter().all(|count| *count > enough), "hardly exercised: {all:?}");
    let Weighed { overdue, in_time, swept, refused, waited } = all.weighed;
    for count in [all.epoch_moves, overdue, in_time, swept, refused, waited] {
        assert!(count > enough, "hardly exercised: {all:?}");
    }
}

fn plans(seed: u64) -> Vec<Plan> {
    const POLICIES: [(Policy, Prediction); 4] = [
        (Policy::Predictive, Prediction::Hint),
        (Policy::Predictive, Prediction::Learned),
        (Policy::Predictive, Prediction::Both),
        (Policy::Lru, Prediction::Both),
    ];
    let mut random = Random::new(seed);
    let mut plans = Vec::new();
    for (policy, prediction) in POLICIES {
        for grace_ms in [0, 2_000, 600_000] {
            for sessions in [1, 3, 17, 64, 250] {
                for shards in [1, 4] {
                    let asked = Settings {
                        policy,
                        prediction,
                        grace_ms,
                        shards: Some(shards),
                        ..Settings::new(Capacity::Sessions(sessions))
                    };
                    plans.push(plan(asked, &mut random));
                }
            }
        }
    }
    plans.push(plan(Settings::new(Capacity::Sessions(1_000)), &mut random));
    plans.push(plan(Settings::new(Capacity::Bytes(50_000)), &mut random));
    // Large enough that only one client in two is counted.
    plans.push(plan(Settings::new(Capacity::Sessions(2_500)), &mut random));
    plans
}

/// Draws the settings that the product leaves open.
fn plan(asked: Settings, random: &mut Random) -> Plan {
    let block_bytes = random.one_of(&[8, 20, 64, 192]);
    let settings = Settings {
        prior_ms: random.one_of(&[0, 1_000, 60_000, 10_000_000]),
        block_bytes,
        longest_value_bytes: random.one_of(&[block_bytes - 1, 3 * block_bytes, 2_000, 65_535]),
        ghosts_percent: random.one_of(&[0, 100, 400, 1_000]),
        fairness: random.once_in(2).then(|| Fairness {
            by: SourceBy::Address,
            percent: random.one_of(&[1, 10, 30, 60, 100]),
        }),
        ..asked
    };
    let layouts = Layout::for_cache(&settings).expect("settings make a cache");
    let sessions: u64 = layouts.iter().map(Layout::sessions).sum();
    Plan {
        seed: random.next(),
        operations: 0,
        clients: (sessions as u16 * random.one_of(&[1, 2, 4, 8])).max(6),
        pace_bits: random.one_of(&[1, 5, 9, 13]),
        back: random.once_in(3),
        counters_every: if layouts.len() == 1 { 1 } else { 8 },
        settings,
    }
}
