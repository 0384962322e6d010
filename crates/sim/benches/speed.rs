//! The speed of the simulator: requests per second on one thread, one policy at one size, with the
//! trace in memory; and the memory of the shipped cache for each session.
//!
//! ```sh
//! cargo bench --package rejoin-sim
//! cargo bench --package rejoin-sim -- predictive
//! ```
//!
//! The minimum time of several runs counts, because other load on the machine only adds to it.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark prints times")]

use std::num::NonZeroU32;
use std::time::Instant;

use rejoin_sim::{Plan, Progress, Simulation, Subject};
use rejoin_trace::{Event, Population, PopulationSettings};

const DEVICES: u64 = 200_000;
const SESSIONS: u32 = 10_000;
const REQUESTS: usize = 2_000_000;
const RUNS: usize = 7;

const SUBJECTS: [&str; 11] = [
    "lru",
    "predictive",
    "learned",
    "both",
    "fifo",
    "random",
    "sieve",
    "s3-fifo",
    "arc",
    "exact",
    "clairvoyant",
];

/// The required millions of requests per second; the end of the output lists misses.
const REQUIRED: [(&str, f64); 3] = [("lru", 10.0), ("predictive", 8.0), ("learned", 3.0)];
const MOST_BYTES_A_SESSION: f64 = 100.0;

fn main() {
    let population = Population::new(PopulationSettings::paper(DEVICES)).expect("in range");
    let began = Instant::now();
    let trace: Vec<Event> = population.arrivals(1).take(REQUESTS).collect();
    let drawn = REQUESTS as f64 / began.elapsed().as_secs_f64() / 1e6;
    println!("{REQUESTS} requests of {DEVICES} devices, {SESSIONS} sessions");
    println!("drawing them: {drawn:.1} M/s\n");
    println!("{:12} {:>12} {:>12} {:>12}", "policy", "M requests/s", "ns each", "hits, %");
    let mut missed = Vec::new();
    // Cargo adds flags of its own.
    let asked = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |name: &&str| asked.as_deref().is_none_or(|asked| asked == *name);
    for name in SUBJECTS.into_iter().filter(wanted) {
        let (speed, hits) = speed(name.parse().expect("a policy"), &trace);
        println!("{name:12} {speed:12.2} {:12.1} {hits:12.1}", 1e3 / speed);
        let required = REQUIRED.into_iter().find(|(required, _)| *required == name);
        missed.extend(required.filter(|(_, least)| speed < *least));
    }
    let bytes = bytes_a_session();
    println!("\n{bytes:.1} bytes a session of the shipped cache (at most {MOST_BYTES_A_SESSION})");
    assert!(bytes <= MOST_BYTES_A_SESSION);
    for (name, least) in missed {
        println!("slower than required: {name}, at least {least} M requests/s");
    }
}

/// Measures the millions of requests per second, and the hit rate.
fn speed(subject: Subject, trace: &[Event]) -> (f64, f64) {
    let simulation = Simulation {
        policies: vec![subject],
        capacities: vec![NonZeroU32::new(SESSIONS).expect("not zero")],
        ..Simulation::of(&Plan::default())
    };
    let mut hits = 0.0;
    let seconds = (0..RUNS).map(|_| {
        let began = Instant::now();
        let outcome = simulation.run(trace, &Progress::default()).expect("a trace");
        hits = outcome.cells[0].rates.hit_all.map_or(0.0, |rate| rate.mean);
        began.elapsed().as_secs_f64()
    });
    let fastest = seconds.fold(f64::INFINITY, f64::min);
    (trace.len() as f64 / fastest / 1e6, hits)
}

/// Returns the bytes per session of the shipped cache, with the simulator's settings.
fn bytes_a_session() -> f64 {
    use rejoin_cache::{Cache, Capacity, Settings};
    let sessions = u64::from(SESSIONS);
    let capacity = Capacity::Sessions(sessions);
    let settings = Settings { block_bytes: 8, shards: Some(1), ..Settings::new(capacity) };
    let cache = Cache::new(&settings, [0; 16], 0).expect("a cache");
    cache.capacity_bytes() as f64 / cache.capacity_sessions() as f64
}
