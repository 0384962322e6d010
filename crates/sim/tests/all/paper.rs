//! Paper 000's population against an independent simulator of it (10 seeds): 20,000 devices for an
//! hour. Policies that depend on hints only as announced, so that nothing learned moves them.

use crate::population::{after_first_of_run, plan, play, simulation};
use rejoin_sim::{Cell, Outcome};

const CAPACITIES: [u32; 4] = [200, 600, 1_000, 1_300];
const SEEDS: u32 = 3;
/// The tolerance in points. Three seeds are within 0.6 of ten.
const TOLERANCE: f64 = 1.5;

/// The hit rates after the first of each run.
const INDEPENDENT: [(&str, [f64; 4]); 7] = [
    ("lru", [0.1, 17.2, 64.9, 100.0]),
    ("random", [4.3, 35.8, 61.4, 72.3]),
    ("predictive", [38.6, 76.8, 98.4, 100.0]),
    ("exact", [38.6, 76.8, 98.4, 100.0]),
    ("literal", [38.6, 76.7, 93.1, 93.3]),
    ("clairvoyant", [46.5, 92.4, 100.0, 100.0]),
    ("s3-fifo", [2.5, 52.0, 69.0, 76.0]),
];

/// The hit rates after the first of each device, at 600.
const INDEPENDENT_OF_DEVICE: [(&str, f64); 6] = [
    ("predictive", 65.7),
    ("clairvoyant", 79.4),
    ("lfu", 5.2),
    ("mru", 5.5),
    ("sieve", 5.2),
    ("fifo-11way", 21.8),
];

fn cell<'a>(outcome: &'a Outcome, policy: &str, capacity: u32) -> &'a Cell {
    let wanted = |cell: &&Cell| cell.policy.as_str() == policy && cell.capacity == capacity;
    outcome.cells.iter().find(wanted).unwrap_or_else(|| panic!("no {policy} at {capacity}"))
}

#[test]
fn an_independent_simulator_agrees() {
    let plan = plan(20_000, "");
    let policies = INDEPENDENT.map(|(policy, _)| policy).join(",") + ",fifo";
    let outcome = play(&plan, &simulation(&plan, &policies, &CAPACITIES, SEEDS));
    for (policy, rates) in INDEPENDENT {
        for (capacity, expected) in CAPACITIES.into_iter().zip(rates) {
            let rate = after_first_of_run(cell(&outcome, policy, capacity));
            let off = (rate - expected).abs();
            assert!(off < TOLERANCE, "{policy} at {capacity}: {rate:.1}, not {expected}");
        }
    }
    // Depending on the seed it falls into step with the devices or not.
    let fifo = |capacity| after_first_of_run(cell(&outcome, "fifo", capacity));
    assert!((fifo(600) - 27.0).abs() < 20.0, "{}", fifo(600));
    assert!((fifo(1_300) - 87.1).abs() < TOLERANCE, "{}", fifo(1_300));
}

#[test]
fn after_the_first_of_each_device_it_agrees_too() {
    let plan = plan(20_000, "");
    let policies = INDEPENDENT_OF_DEVICE.map(|(policy, _)| policy).join(",");
    let outcome = play(&plan, &simulation(&plan, &policies, &[600], SEEDS));
    for (policy, expected) in INDEPENDENT_OF_DEVICE {
        let rates = cell(&outcome, policy, 600).rates;
        let rate = rates.hit_after_first_of_device.expect("some were counted").mean;
        assert!((rate - expected).abs() < TOLERANCE, "{policy}: {rate:.1}, not {expected}");
    }
}

/// Compares with the independent simulator, whose tickets were used once.
#[test]
#[ignore = "slow: make test-all"]
fn tickets_flood_a_cache_that_does_not_know_better() {
    for (resumed, lru, exact) in [(1, 64.0, 96.1), (2, 18.4, 77.1)] {
        let keys = format!("tls = '1.3'\ntickets_resumed = {resumed}\ntickets_used_once = true");
        let plan = plan(20_000, &keys);
        let outcome = play(&plan, &simulation(&plan, "lru,exact,predictive", &[1_300], SEEDS));
        for (policy, expected) in [("lru", lru), ("exact", exact), ("predictive", 100.0)] {
            let rate = after_first_of_run(cell(&outcome, policy, 1_300));
            assert!((rate - expected).abs() < TOLERANCE, "2 + {resumed}, {policy}: {rate:.1}");
        }
    }
}

/// Compares with tickets that a resumption leaves in the cache, as in OpenSSL.
#[test]
fn tickets_used_again_and_again() {
    let plan = plan(20_000, "tls = '1.3'\ntickets_resumed = 2");
    let outcome = play(&plan, &simulation(&plan, "lru,predictive,clairvoyant", &[600], SEEDS));
    let rate = |policy| after_first_of_run(cell(&outcome, policy, 600));
    assert!(rate("lru") < 1.0, "{}", rate("lru"));
    assert!(rate("predictive") > 76.0, "{}", rate("predictive"));
    // An optimum stores one ticket per client, as over TLS 1.2.
    assert!((rate("clairvoyant") - 92.4).abs() < TOLERANCE, "{}", rate("clairvoyant"));
}

/// Compares what is learned with the table of docs/paper-000.md, to the digit: nothing else notices that it has drifted.
#[test]
fn what_is_learned_is_what_the_document_says() {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/paper-000.md");
    let page = std::fs::read_to_string(PAGE).expect("the document");
    let row = |first: &str| -> Vec<&str> {
        let line = page.lines().find(|line| line.starts_with(&format!("| {first} | ")));
        line.expect("a row").split('|').map(str::trim).skip(2).take(5).collect()
    };
    let of = |size: &&str| size.replace(',', "").parse().expect("a size");
    let sizes: Vec<u32> = row("n").iter().map(of).collect();
    let plan = plan(20_000, "ghosts_percent = 200");
    let outcome = play(&plan, &simulation(&plan, "learned,both", &sizes, 10));
    for policy in ["learned", "both"] {
        let rates = sizes.iter().map(|size| after_first_of_run(cell(&outcome, policy, *size)));
        let rates: Vec<String> = rates.map(|rate| format!("{rate:.1}")).collect();
        assert_eq!(rates, row(policy), "{policy} at {sizes:?}");
    }
}
