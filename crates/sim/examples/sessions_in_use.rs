//! The numbers of running devices and of sessions in use, in paper 000's population.
//!
//! A session is in use until its client's announced return: a device that left holds one for the
//! rest of its interval, and the server cannot know. The paper (§V.C, §VI.B) has 0.04 c
//! devices running with a standard deviation of 0.005 c, and 0.065 c sessions in use at most.
//!
//! ```sh
//! cargo run --release -p rejoin-sim --example sessions_in_use
//! ```

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rejoin_trace::{Population, PopulationSettings, Start};

const DEVICES: u64 = 20_000;
const SEEDS: u64 = 10;
/// The time after which the population is close enough to its steady state.
const FROM_S: u64 = 600;
const TO_S: u64 = 3_600;

fn main() -> Result<(), rejoin_trace::Error> {
    let running: Vec<Vec<f64>> = (1..=SEEDS).map(running).collect();
    let in_use = (1..=SEEDS).map(in_use).collect::<Result<Vec<_>, _>>()?;
    println!("{DEVICES} devices, {SEEDS} seeds, every second from {FROM_S} to {TO_S} s");
    print("devices running", &running);
    print("sessions in use", &in_use);
    Ok(())
}

fn print(what: &str, seeds: &[Vec<f64>]) {
    let all: Vec<f64> = seeds.iter().flatten().copied().collect();
    let (mean, sd) = mean_and_sd(&all);
    let most: Vec<f64> = seeds.iter().map(|s| s.iter().copied().fold(0.0, f64::max)).collect();
    let (most, _) = mean_and_sd(&most);
    let share = |n: f64| n / DEVICES as f64;
    println!(
        "{what}: mean {mean:.0} ({:.4} c), sd {sd:.1} ({:.4} c), greatest of a seed {most:.0} ({:.4} c)",
        share(mean),
        share(sd),
        share(most)
    );
}

fn mean_and_sd(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let square = |value: &f64| (value - mean) * (value - mean);
    (mean, (values.iter().map(square).sum::<f64>() / values.len() as f64).sqrt())
}

/// Counts the devices that wait and run, each second: runs of 120 s, waits of 2,760 s, in the mean.
fn running(seed: u64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut change = vec![0_i64; TO_S as usize + 1];
    for _ in 0..DEVICES {
        let (mut at_s, mut runs) = (0.0, false);
        loop {
            let unit = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            at_s -= (1.0 - unit).ln() * if runs { 120.0 } else { 2_760.0 };
            if at_s >= TO_S as f64 {
                break;
            }
            runs = !runs;
            change[at_s as usize + 1] += if runs { 1 } else { -1 };
        }
    }
    let mut now = 0;
    let each_second = change.into_iter().map(|change| {
        now += change;
        now as f64
    });
    each_second.skip(FROM_S as usize).collect()
}

/// Counts the sessions whose client has announced a return that is still to come, each second.
fn in_use(seed: u64) -> Result<Vec<f64>, rejoin_trace::Error> {
    let paper = PopulationSettings::paper(DEVICES);
    let population = Population::new(PopulationSettings { start: Start::Waiting, ..paper })?;
    // The time at which a client is expected back; 0 if it holds no session in use.
    let mut expected_ms = vec![0; DEVICES as usize];
    let mut returns = BinaryHeap::new();
    let (mut now, mut second, mut counts) = (0, 0, Vec::new());
    for event in population.arrivals(seed).take_while(|event| event.time_ms < TO_S * 1_000) {
        while second * 1_000 <= event.time_ms {
            while let Some(Reverse((ms, client))) = returns.peek().copied()
                && ms < second * 1_000
            {
                returns.pop();
                // A client that came back in time would be expected later by now.
                let expected: &mut u64 = &mut expected_ms[client as usize];
                if *expected == ms {
                    *expected = 0;
                    now -= 1;
                }
            }
            counts.push(now as f64);
            second += 1;
        }
        let expected = &mut expected_ms[event.client as usize];
        now += u64::from(*expected == 0);
        *expected = event.time_ms + u64::from(event.returns_in_ms.unwrap_or(0));
        returns.push(Reverse((*expected, event.client)));
    }
    Ok(counts.split_off(FROM_S as usize))
}
