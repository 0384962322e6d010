//! Passes, threads, groups and stopping, and their effect on the figures.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::population::{DEVICES, after_first_of_run, plan, play, simulation};
use rejoin_sim::{Error, Outcome, Pass, Plan, Progress, Simulation, Source};
use rejoin_trace::{Event, Mixture};

const POLICIES: &str = "fifo,lru,random,predictive,learned,clairvoyant";

#[test]
fn many_cells_in_one_pass_are_as_each_in_its_own() {
    let plan = plan(2_000, "");
    let together = play(&plan, &simulation(&plan, POLICIES, &[30, 90], 2));
    let mut cells = together.cells.iter();
    for policy in POLICIES.split(',') {
        for capacity in [30, 90] {
            let alone = play(&plan, &simulation(&plan, policy, &[capacity], 2));
            assert_eq!(cells.next(), alone.cells.first());
        }
    }
}

#[test]
fn threads_change_nothing() {
    let plan = plan(2_000, "servers = 2");
    let with = |jobs: usize| {
        let jobs = NonZeroUsize::new(jobs).expect("not zero");
        play(&plan, &Simulation { jobs, ..simulation(&plan, POLICIES, &[30, 60, 90], 3) })
    };
    let one = with(1);
    assert_eq!((one.cells.len(), one.complete, one.seeds), (18, true, 3));
    for jobs in [2, 7, 100] {
        assert_eq!(with(jobs), one, "{jobs} threads");
    }
}

#[test]
fn seeds_differ() {
    let plan = plan(2_000, "");
    let outcome = play(&plan, &simulation(&plan, "lru,random", &[90], 3));
    for cell in outcome.cells {
        assert!(cell.seeds == 3 && after_first_of_run(&cell) > 10.0);
        assert!(cell.rates.hit_all.is_some_and(|rate| rate.sd > 0.0), "{}", cell.policy);
    }
}

/// A source that tells a progress to stop when so many events were read.
struct Stopping<'a> {
    mixture: &'a Mixture,
    progress: &'a Progress,
    after: u64,
    read: AtomicU64,
}

impl Source for Stopping<'_> {
    fn open(&self, seed: u64) -> Result<Box<dyn Pass + '_>, Error> {
        let stop = |_: &Event| {
            if self.read.fetch_add(1, Ordering::Relaxed) == self.after {
                self.progress.stop();
            }
        };
        Ok(Box::new(self.mixture.arrivals(seed).take(10_000).inspect(stop).map(Ok)))
    }

    fn part_over(&self, _: u64, events: u64) -> f64 {
        events as f64 / 10_000.0
    }
}

fn stopped(after: u64) -> (Outcome, f64) {
    let plan = plan(2_000, "");
    let mixture = plan.mixture.as_ref().expect("a group");
    let progress = Progress::default();
    let source = Stopping { mixture, progress: &progress, after, read: AtomicU64::new(0) };
    let jobs = NonZeroUsize::MIN;
    let simulation = simulation(&plan, "lru,predictive", &[90], 4);
    let simulation = Simulation { jobs, end_ms: None, ..simulation };
    let outcome = simulation.run(&source, &progress).expect("a simulation");
    (outcome, progress.part_over())
}

#[test]
fn told_to_stop_it_keeps_what_is_finished() {
    let (outcome, part_over) = stopped(25_000);
    assert!(!outcome.complete && outcome.seeds == 4);
    assert_eq!(outcome.cells.iter().map(|cell| cell.seeds).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(outcome.cells[0].requests, 10_000.0);
    assert!((0.5..0.75).contains(&part_over), "{part_over}");

    let (outcome, _) = stopped(0);
    assert!(outcome.cells.is_empty() && !outcome.complete);
    let (outcome, part_over) = stopped(u64::MAX);
    assert!(outcome.complete && part_over == 1.0);
}

#[test]
fn a_warm_up_is_played_and_not_counted() {
    let (whole, warm) = (plan(2_000, ""), plan(2_000, "warm_up_s = 1800"));
    let requests = |plan: &Plan| {
        let cell = play(plan, &simulation(plan, "lru", &[10_000], 1)).cells.remove(0);
        let rates = cell.rates;
        let missed = |rate: Option<rejoin_sim::Rate>| 100.0 - rate.expect("some").mean;
        (cell.requests, cell.full_handshakes, missed(rates.hit_after_first_of_device))
    };
    let ((all, all_full, _), (late, late_full, missed)) = (requests(&whole), requests(&warm));
    assert!(late < 0.6 * all && late_full < 0.6 * all_full, "{late} of {all}");
    assert!(missed < 1e-9, "a device first seen in the warm-up is known: {missed}");
}

/// Checks that groups are counted apart, and that together they are the whole.
#[test]
fn every_group_has_its_own_rates() {
    let flood = "[[group]]\nkind = 'flood'\nper_s = 5\nclaims_s = 1\n";
    let more = format!("[[group]]\ndevices = 500{DEVICES}departures_known = true\n{flood}");
    let first = format!("duration_s = 3600\n[[group]]\nname = 'first'\ndevices = 1500{DEVICES}");
    let plan = Plan::parse(&format!("{first}{more}")).expect("a plan");
    let outcome = play(&plan, &simulation(&plan, "fifo,predictive", &[200], 1));
    for cell in &outcome.cells {
        let names: Vec<&str> = cell.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["first", "devices", "flood"]);
        let hits = |requests: f64, rate: Option<rejoin_sim::Rate>| {
            requests * rate.map_or(0.0, |rate| rate.mean) / 100.0
        };
        let sum: f64 = cell.groups.iter().map(|g| hits(g.requests, g.rates.hit_all)).sum();
        let whole = cell.requests - cell.full_handshakes;
        assert!((sum - whole).abs() < 0.01 && whole > 1_000.0, "{sum} hits, {whole} in all");
        let flood = cell.groups[2].rates;
        assert_eq!(flood.hit_all.map(|rate| rate.mean), Some(0.0));
        assert!(flood.hit_after_first_of_device.or(flood.hit_after_first_of_run).is_none());
    }
}

#[test]
fn what_is_wrong_with_a_trace_is_told() {
    struct Broken;
    impl Source for Broken {
        fn open(&self, seed: u64) -> Result<Box<dyn Pass + '_>, Error> {
            if seed > 1 {
                return Err(Error::Open(std::io::ErrorKind::NotFound.into()));
            }
            let cut = rejoin_trace::Error::Cut { events: 1, byte: 48 };
            let event = Event { time_ms: 0, client: 0, first_of_run: true, returns_in_ms: None };
            Ok(Box::new([Ok(event), Err(cut)].into_iter()))
        }

        fn part_over(&self, _: u64, _: u64) -> f64 {
            f64::NAN
        }
    }
    let plan = plan(1, "");
    let simulation = simulation(&plan, "lru,clairvoyant", &[10], 5);
    let error = simulation.run(&Broken, &Progress::default()).expect_err("it is cut");
    assert!(!error.is_misuse() && error.to_string().starts_with("cut after 1 whole"), "{error}");
}

#[test]
fn a_trace_without_requests_has_no_rates() {
    let plan = plan(1, "");
    let simulation = simulation(&plan, "lru,clairvoyant", &[10], 1);
    let outcome = simulation.run(&[][..] as &[Event], &Progress::default()).expect("a trace");
    assert!(outcome.complete && outcome.cells.iter().all(|cell| cell.rates.hit_all.is_none()));
}
