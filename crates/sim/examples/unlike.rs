//! Policies on traces that are unlike each other: the table of docs/prediction.md.
//!
//! ```sh
//! cargo run --release -p rejoin-sim --example unlike -- [--carried] [--after HOURS] [--only NAME] [BLOCK_IO.oracleGeneral.bin...]
//! ```
//!
//! With `--carried` clients carry their history, as in the ids of TLS 1.3. With `--after` requests count from then on.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::collections::HashSet;
use std::num::{NonZeroU32, NonZeroUsize};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rejoin_sim::{Progress, Server, Simulation, Subject};
use rejoin_trace::Event;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const SIMPLE: [&str; 7] = ["fifo", "lru", "random", "lfu", "sieve", "s3-fifo", "arc"];

/// A trace: its name, and what makes it.
type Made = (&'static str, fn(&mut Draw) -> Vec<(f64, u64)>);

const TRACES: &[Made] = &[
    ("poisson, one rate", |d| d.renewal(4_000, 12.0 * HOUR, |_, d| d.exponential(20.0 * MINUTE))),
    ("poisson, three rates", |d| {
        d.renewal(3_000, 8.0 * HOUR, |client, d| {
            d.exponential([2.0, 15.0, 120.0][client as usize % 3] * MINUTE)
        })
    }),
    ("poisson, lognormal rates", |d| {
        let means: Vec<f64> = (0..4_000).map(|_| d.lognormal(30.0 * MINUTE, 1.5)).collect();
        d.renewal(4_000, 12.0 * HOUR, |client, d| d.exponential(means[client as usize]))
    }),
    ("zipf 0.7", |d| d.zipf(20_000, 0.7, 200_000, 10.0)),
    ("zipf 0.9", |d| d.zipf(20_000, 0.9, 200_000, 10.0)),
    ("zipf 1.2", |d| d.zipf(20_000, 1.2, 200_000, 10.0)),
    ("day and night", |d| {
        d.renewal(4_000, 72.0 * HOUR, |client, d| {
            let mean = if client % 4 == 0 { 20.0 } else { 90.0 } * MINUTE;
            d.exponential(mean)
        })
        .into_iter()
        .filter(|(at, client)| {
            let hour = (at / HOUR + (client % 6) as f64) % 24.0;
            client % 8 == 0 || (8.0..20.0).contains(&hour)
        })
        .collect()
    }),
    ("cron herds", |d| {
        d.renewal(4_000, 24.0 * HOUR, |_, _| MINUTE)
            .into_iter()
            .filter_map(|(at, client)| {
                let every = [5.0, 15.0, 60.0, 60.0][client as usize % 4] * MINUTE;
                let tick = (at / MINUTE).round() * MINUTE;
                (tick % every < 1.0).then_some((tick, client))
            })
            .map(|(at, client)| (at + (client * 7_919 % 20_000) as f64 / 1_000.0, client))
            .collect()
    }),
    ("cron herds among people", |d| {
        let mut all = d.renewal(2_000, 24.0 * HOUR, |client, d| {
            [5.0, 30.0][client as usize % 2] * MINUTE + d.uniform() * 2.0
        });
        all.extend(shifted(d.renewal(4_000, 24.0 * HOUR, |_, d| d.lognormal(30.0 * MINUTE, 1.5))));
        all
    }),
    ("intervals that drift", |d| {
        let mut intervals: Vec<f64> = (0..3_000).map(|_| d.lognormal(8.0 * MINUTE, 0.7)).collect();
        d.renewal(3_000, 10.0 * HOUR, move |client, d| {
            let interval = &mut intervals[client as usize];
            *interval = (*interval * (1.0 + 0.1 * (d.uniform() - 0.5))).clamp(20.0, HOUR);
            *interval
        })
    }),
    ("rates that change", |d| {
        let mut rates = vec![(0.0, 0.0); 3_000];
        let mut at = vec![0.0; 3_000];
        d.renewal(3_000, 16.0 * HOUR, move |client, d| {
            let (rate, until) = &mut rates[client as usize];
            if at[client as usize] >= *until {
                *rate = d.lognormal(12.0 * MINUTE, 1.3);
                *until = at[client as usize] + d.exponential(3.0 * HOUR);
            }
            let gap = d.exponential(*rate);
            at[client as usize] += gap;
            gap
        })
    }),
    ("devices behind NAT", |d| {
        let all = d.renewal(3_000, 10.0 * HOUR, |client, d| {
            [60.0, 300.0, 900.0, 1_800.0][client as usize % 4] * (0.97 + 0.06 * d.uniform())
        });
        all.into_iter().map(|(at, device)| (at, device * device / 9_000)).collect()
    }),
    ("mqtt keep-alives", |d| {
        d.runs(5_000, 12.0 * HOUR, 40.0 * MINUTE, 2.0 * HOUR, |client, d| {
            [60.0, 120.0, 300.0, 600.0][client as usize % 4] * (1.0 + 0.1 * d.uniform())
        })
    }),
    ("mobile bursts", |d| {
        let mut left = vec![0_u32; 5_000];
        d.renewal(5_000, 14.0 * HOUR, move |client, d| {
            let left = &mut left[client as usize];
            if *left == 0 {
                *left = 2 + (d.uniform() * 8.0) as u32;
                return d.lognormal(40.0 * MINUTE, 1.0);
            }
            *left -= 1;
            1.0 + 30.0 * d.uniform() * d.uniform()
        })
    }),
    ("browsers", |d| d.renewal(6_000, 24.0 * HOUR, |_, d| d.lognormal(15.0 * MINUTE, 2.0))),
    ("regimes that alternate", |d| {
        let mut all = d.renewal(1_500, 12.0 * HOUR, |client, _| 60.0 + (client % 240) as f64);
        all.extend(shifted(d.zipf(10_000, 0.8, 150_000, 3.5)));
        all.retain(|(at, client)| (at / HOUR) as u64 % 2 == u64::from(*client >= SHIFT));
        all
    }),
    ("zipf with scans", |d| {
        let mut all = d.zipf(10_000, 0.9, 120_000, 6.0);
        all.extend((0..80_000).map(|scanned| (scanned as f64 / 4.0, SHIFT + scanned)));
        all
    }),
    ("bursts of scans", |d| {
        let mut all = d.renewal(2_000, 10.0 * HOUR, |_, d| d.lognormal(10.0 * MINUTE, 0.8));
        for burst in 0..10_u64 {
            let from = burst as f64 * HOUR + 600.0;
            all.extend((0..8_000).map(|at| (from + at as f64 / 40.0, SHIFT + burst * 8_000 + at)));
        }
        all
    }),
    ("a loop", |d| d.renewal(3_000, 6.0 * HOUR, |_, d| 5.0 * MINUTE + 0.2 * d.uniform())),
    ("paper 000", |d| {
        d.runs(20_000, 2.0 * HOUR, 120.0, 2_760.0, |client, _| {
            [60.0, 60.0, 60.0, 30.0, 30.0, 15.0][client as usize % 6]
        })
    }),
    ("telemetry, jittered", |d| {
        d.renewal(5_000, 24.0 * HOUR, |client, d| {
            [15.0, 30.0, 60.0][client as usize % 3] * MINUTE * (0.8 + 0.4 * d.uniform())
        })
    }),
    ("two or three visits", |d| {
        let mut all = Vec::new();
        for client in 0..70_000 {
            let mut at = client as f64 / 3.0 + d.uniform();
            for _ in 0..1 + (d.uniform() * 3.0) as u32 {
                all.push((at, client));
                at += d.lognormal(60.0, 1.0);
            }
        }
        all
    }),
    ("polls that back off", |d| {
        let mut steps = vec![0_i32; 2_000];
        d.renewal(2_000, 12.0 * HOUR, move |client, d| {
            let step = &mut steps[client as usize];
            *step = if d.uniform() < 0.15 { 0 } else { (*step + 1).min(9) };
            4.0 * 2_f64.powi(*step) * (0.9 + 0.2 * d.uniform())
        })
    }),
    ("sessions of people", |d| {
        d.runs(8_000, 16.0 * HOUR, 15.0 * MINUTE, 4.0 * HOUR, |_, d| d.lognormal(50.0, 1.2))
    }),
    ("devices and browsers", |d| {
        let mut all = d.runs(6_000, 6.0 * HOUR, 10.0 * MINUTE, 2.0 * HOUR, |client, _| {
            [60.0, 30.0, 15.0][client as usize % 3]
        });
        all.extend(shifted(d.renewal(4_000, 6.0 * HOUR, |_, d| d.lognormal(15.0 * MINUTE, 1.8))));
        all
    }),
    ("clients that grow", |d| {
        let all = d.renewal(6_000, 10.0 * HOUR, |_, d| d.lognormal(12.0 * MINUTE, 1.0));
        all.into_iter()
            .filter(|(at, client)| *at / (10.0 * HOUR) > *client as f64 / 6_000.0)
            .collect()
    }),
    ("poisson, two rates", |d| {
        d.renewal(4_000, 14.0 * HOUR, |client, d| {
            d.exponential([12.0, 30.0][client as usize % 2] * MINUTE)
        })
    }),
    ("poisson, even rates", |d| {
        d.renewal(4_000, 14.0 * HOUR, |client, d| {
            d.exponential(10.0 * 4_000.0 / (client + 1) as f64 * MINUTE)
        })
    }),
];

const SHIFT: u64 = 1 << 32;

fn shifted(all: Vec<(f64, u64)>) -> Vec<(f64, u64)> {
    all.into_iter().map(|(at, client)| (at, client + SHIFT)).collect()
}

struct Draw(ChaCha8Rng);

impl Draw {
    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.uniform()).ln() * mean
    }

    fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        let (a, b) = (1.0 - self.uniform(), self.uniform());
        median * (sigma * (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()).exp()
    }

    /// Clients that come again and again.
    fn renewal(
        &mut self,
        clients: u64,
        end: f64,
        mut gap: impl FnMut(u64, &mut Self) -> f64,
    ) -> Vec<(f64, u64)> {
        let mut all = Vec::new();
        for client in 0..clients {
            let mut at = gap(client, self) * self.uniform();
            while at < end {
                all.push((at, client));
                at += gap(client, self).max(0.05);
            }
        }
        all
    }

    /// Clients that run and wait in turns, both for exponential times.
    fn runs(
        &mut self,
        clients: u64,
        end: f64,
        runs: f64,
        waits: f64,
        gap: impl Fn(u64, &mut Self) -> f64,
    ) -> Vec<(f64, u64)> {
        let mut all = Vec::new();
        for client in 0..clients {
            let mut at = self.exponential(waits);
            while at < end {
                let until = at + self.exponential(runs);
                while at < until.min(end) {
                    all.push((at, client));
                    at += gap(client, self);
                }
                at = at.max(until) + self.exponential(waits);
            }
        }
        all
    }

    /// Independent references.
    fn zipf(
        &mut self,
        clients: usize,
        exponent: f64,
        requests: usize,
        a_second: f64,
    ) -> Vec<(f64, u64)> {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=clients)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        let mut at = 0.0;
        (0..requests)
            .map(|_| {
                at += self.exponential(1.0 / a_second);
                let drawn = self.uniform() * sum;
                (at, sums.partition_point(|sum| *sum < drawn) as u64)
            })
            .collect()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (carried, arguments) = match &arguments[..] {
        [flag, rest @ ..] if flag == "--carried" => (true, rest),
        all => (false, all),
    };
    let server = Server { history_carried: carried, ..Server::default() };
    let (after_ms, arguments) = match arguments {
        [flag, hours, rest @ ..] if flag == "--after" => {
            (hours.parse::<u64>().expect("hours") * 3_600_000, rest)
        }
        all => (0, all),
    };
    let (only, files) = match arguments {
        [flag, name, files @ ..] if flag == "--only" => (name.as_str(), files),
        files => ("", files),
    };
    let names = std::iter::once("learned").chain(SIMPLE);
    println!(
        "| trace | requests | sessions | {} | margin |",
        names.collect::<Vec<_>>().join(" | ")
    );
    let (mut cells, mut short) = (0, 0);
    for (number, (name, make)) in
        TRACES.iter().enumerate().filter(|(_, (name, _))| name.contains(only))
    {
        let mut made = make(&mut Draw(ChaCha8Rng::seed_from_u64(number as u64)));
        made.sort_by(|a, b| a.0.total_cmp(&b.0));
        let event = |(at, client): (f64, u64)| Event {
            time_ms: (at * 1_000.0) as u64,
            client,
            first_of_run: false,
            returns_in_ms: None,
        };
        let events: Vec<Event> = made.into_iter().map(event).collect();
        play(name, &events, (&server, after_ms), 0.5, [&mut cells, &mut short]);
    }
    for file in files {
        let bytes = std::fs::read(file).expect("a trace");
        let events = rejoin_trace::open(file, &bytes[..]).expect("a trace");
        let events: Vec<Event> = events.collect::<Result<_, _>>().expect("a trace");
        let name = file.rsplit('/').next().unwrap_or(file);
        play(name, &events, (&server, after_ms), 2.0, [&mut cells, &mut short]);
    }
    println!("{short} of {cells} cells are short");
}

/// Plays a trace at a twentieth, a sixth and a third of its clients.
fn play(
    name: &str,
    events: &[Event],
    (server, after_ms): (&Server, u64),
    most_below: f64,
    [cells, short]: [&mut u32; 2],
) {
    let clients = events.iter().map(|event| event.client).collect::<HashSet<_>>().len() as u32;
    let capacities = [20, 6, 3].map(|part| NonZeroU32::new(clients / part).expect("clients"));
    let policies: Vec<Subject> = std::iter::once("learned")
        .chain(SIMPLE)
        .map(|name| name.parse().expect("a policy"))
        .collect();
    let simulation = Simulation {
        title: name.to_owned(),
        server: server.clone(),
        warm_up_ms: after_ms,
        end_ms: None,
        groups: Vec::new(),
        policies: policies.clone(),
        capacities: capacities.to_vec(),
        seeds: 1,
        jobs: NonZeroUsize::MIN,
    };
    let outcome = simulation.run(events, &Progress::default()).expect("a simulation");
    for capacity in capacities {
        let rates: Vec<f64> = policies
            .iter()
            .filter_map(|policy| {
                let cell = outcome
                    .cells
                    .iter()
                    .find(|cell| cell.policy == *policy && cell.capacity == capacity.get());
                Some(cell?.rates.hit_after_first_of_device?.mean)
            })
            .collect();
        let best = rates[1..].iter().copied().fold(0.0, f64::max);
        let margin = rates[0] - best;
        *cells += 1;
        *short += u32::from(margin < -most_below);
        let shown: Vec<String> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
        let mark = if margin < -most_below { " **short**" } else { "" };
        println!(
            "| {name} | {} | {capacity} | {} | {margin:+.1}{mark} |",
            events.len(),
            shown.join(" | ")
        );
    }
}
