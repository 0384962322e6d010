//! A race: peers take turns on the same arrivals, so that a slow machine slows them all.

use std::time::Instant;

use crate::peers::openssl::allocated_bytes;
use crate::peers::{Contender, Peer};
use crate::workload::{Arrival, ID_BYTES, Intervals, VALUE_BYTES, Workload};

const SEED: u64 = 0;

/// The amount of work at one size of the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) sessions: u64,
    pub(crate) rounds: usize,
    /// The arrivals at the start of each turn that are not timed: they fill the processor's caches
    /// again after the others' turns.
    pub(crate) lead_in: usize,
    pub(crate) timed: usize,
}

/// The measurements of one peer at one size.
#[derive(Debug)]
pub(crate) struct Figures {
    /// The nanoseconds per operation, round by round.
    rounds_ns: Vec<f64>,
    returned: u64,
    lost: u64,
    /// The bytes per session, beyond its id and value.
    pub(crate) overhead_bytes: f64,
}

impl Figures {
    pub(crate) fn min_ns(&self) -> f64 {
        self.rounds_ns.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn median_ns(&self) -> f64 {
        median(self.rounds_ns.clone())
    }

    /// Returns the share of returning clients whose session was still there.
    pub(crate) fn kept_percent(&self) -> f64 {
        100.0 * (self.returned - self.lost) as f64 / self.returned as f64
    }

    /// Returns this peer's time as a multiple of the other's, in the median round.
    pub(crate) fn times(&self, other: &Self) -> f64 {
        median(self.rounds_ns.iter().zip(&other.rounds_ns).map(|(a, b)| a / b).collect())
    }
}

struct Lane {
    peer: Box<dyn Peer>,
    figures: Figures,
}

impl Lane {
    fn new(contender: &Contender, sessions: u64, fill: &[Arrival]) -> Self {
        let before = allocated_bytes();
        let mut peer = (contender.make)(sessions);
        peer.serve(fill);
        peer.settle();
        let measured = allocated_bytes().saturating_sub(before);
        let bytes = peer.exact_bytes().unwrap_or(measured);
        let overhead_bytes = bytes as f64 / sessions as f64 - (ID_BYTES + VALUE_BYTES) as f64;
        let figures = Figures { rounds_ns: Vec::new(), returned: 0, lost: 0, overhead_bytes };
        Self { peer, figures }
    }

    fn turn(&mut self, lead_in: &[Arrival], arrivals: &[Arrival]) {
        self.peer.serve(lead_in);
        let (ns, lost) = timed(|| self.peer.serve(arrivals));
        let returned = arrivals.iter().filter(|arrival| !arrival.first).count();
        self.figures.rounds_ns.push(ns / arrivals.len() as f64);
        self.figures.returned += returned as u64;
        self.figures.lost += lost;
    }
}

/// Measures each contender, in their order.
pub(crate) fn race(size: &Size, intervals: Intervals, contenders: &[Contender]) -> Vec<Figures> {
    let mut workload = Workload::new(intervals, size.sessions, SEED);
    let fill = workload.fill();
    let filled = |contender| Lane::new(contender, size.sessions, &fill);
    let mut lanes: Vec<Lane> = contenders.iter().map(filled).collect();
    for round in 0..size.rounds {
        let arrivals = workload.next(size.lead_in + size.timed);
        let (lead_in, arrivals) = arrivals.split_at(size.lead_in);
        // The order changes, so that no peer always follows the same one.
        let first = round % lanes.len();
        let (front, back) = lanes.split_at_mut(first);
        back.iter_mut().chain(front).for_each(|lane| lane.turn(lead_in, arrivals));
    }
    lanes.into_iter().map(|lane| lane.figures).collect()
}

/// Returns the nanoseconds that `work` took.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_nanos() as f64, result)
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
