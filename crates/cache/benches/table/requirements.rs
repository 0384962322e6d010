//! The requirements on the cache, as ratios within one run.

use rejoin_cache::{Cache, Policy, SecretBytes};

use crate::adapter;
use crate::peers::{BTREE, CONTENDERS, LRU, PREDICTIVE, QUICK_CACHE, SCHNELLRU, SKIP_LIST, ours};
use crate::race::{Figures, Size, median, timed};
use crate::workload::{Arrival, Intervals, Newcomers, VALUE_BYTES, Value, Workload};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// None: it is shown beside a requirement, for comparison.
    None,
}

/// A requirement, and the measured value.
#[derive(Debug)]
pub(crate) struct Requirement {
    pub(crate) what: &'static str,
    pub(crate) sessions: u64,
    pub(crate) bound: Bound,
    pub(crate) measured: f64,
}

impl Requirement {
    pub(crate) fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtMost(most) => self.measured <= most,
            Bound::AtLeast(least) => self.measured >= least,
            Bound::None => true,
        }
    }
}

const VALUE: Value = [7; VALUE_BYTES];

/// Returns the requirements that the table answers.
pub(crate) fn of_table(sessions: u64, figures: &[Figures]) -> Vec<Requirement> {
    let of = |name| row(figures, name);
    let requirement = |what, bound, measured| Requirement { what, sessions, bound, measured };
    let ours = of(PREDICTIVE);
    vec![
        requirement("predictive / quick_cache", Bound::AtMost(1.4), ours.times(of(QUICK_CACHE))),
        requirement("BTreeMap index / predictive", Bound::AtLeast(3.0), of(BTREE).times(ours)),
        requirement("skip list / predictive", Bound::AtLeast(4.0), of(SKIP_LIST).times(ours)),
        requirement("overhead, bytes a session", Bound::AtMost(48.0), ours.overhead_bytes),
    ]
}

/// Returns the requirements that the table answers for every size, with three intervals and with any.
pub(crate) fn of_size(size: &Size, three: &[Figures], any: &[Figures]) -> Vec<Requirement> {
    let Size { sessions, rounds, .. } = *size;
    let at_most =
        |what, most, measured| Requirement { what, sessions, bound: Bound::AtMost(most), measured };
    let beside = |what, measured| Requirement { what, sessions, bound: Bound::None, measured };
    let [predictive, lru, schnellru] = eviction_ns([PREDICTIVE, LRU, SCHNELLRU], sessions, rounds);
    let times = |figures, name, other| row(figures, name).times(row(figures, other));
    vec![
        at_most("predictive / our lru", 1.1, times(three, PREDICTIVE, LRU)),
        at_most("the same, any interval", 1.1, times(any, PREDICTIVE, LRU)),
        at_most("our lru / schnellru", 1.5, times(three, LRU, SCHNELLRU)),
        at_most("insert and evict, ns, any interval", 400.0, predictive),
        beside("the same, our lru", lru),
        beside("the same, schnellru", schnellru),
    ]
}

/// Returns the figures of a contender.
fn row<'a>(figures: &'a [Figures], name: &str) -> &'a Figures {
    let at = CONTENDERS.iter().position(|contender| contender.name == name);
    &figures[at.expect("the row is in the table")]
}

/// Measures the time to store a session in a full cache of clients that return after any interval, of contenders that take turns.
fn eviction_ns<const N: usize>(names: [&str; N], sessions: u64, rounds: usize) -> [f64; N] {
    const AT_ONCE: u64 = 2_000;
    let mut workload = Workload::new(Intervals::Any, sessions, 0);
    let (fill, returned) = (workload.fill(), workload.next(2 * sessions as usize));
    let mut peers = names.map(|name| {
        let contender = CONTENDERS.iter().find(|contender| contender.name == name);
        let mut peer = (contender.expect("it is in the table").make)(sessions);
        peer.serve(&fill);
        peer.serve(&returned);
        peer
    });
    let now_ms = returned.last().map_or(0, |arrival| arrival.at_ms);
    let mut newcomers = Newcomers::new(sessions, 1).from(now_ms);
    let mut rounds_ns = [const { Vec::new() }; N];
    for _ in 0..rounds {
        let arrivals = newcomers.next(AT_ONCE);
        for (peer, rounds_ns) in peers.iter_mut().zip(&mut rounds_ns) {
            let (ns, _) = timed(|| peer.serve(&arrivals));
            rounds_ns.push(ns / AT_ONCE as f64);
        }
    }
    rounds_ns.map(median)
}

/// Returns the requirements with a workload of their own.
pub(crate) fn of_their_own(size: &Size) -> Vec<Requirement> {
    let Size { sessions, rounds, timed, .. } = *size;
    let lifetime = |sessions| Requirement {
        what: "insert with a lifetime / without",
        sessions,
        bound: Bound::AtMost(1.3),
        measured: lifetime(sessions, rounds, timed as u64 / 4),
    };
    vec![
        Requirement {
            what: "two threads / one thread, 64 shards",
            sessions,
            bound: Bound::AtLeast(1.5),
            measured: two_threads(sessions, rounds, timed),
        },
        lifetime(20_480),
        lifetime(sessions),
        Requirement {
            what: "rustls' own take + put / ours",
            sessions: 100_000,
            bound: Bound::AtLeast(100.0),
            measured: adapter::speedup(100_000, rounds),
        },
    ]
}

/// Measures the operations per second of two threads, each with its own clients, over those of one
/// thread with all clients.
fn two_threads(sessions: u64, rounds: usize, arrivals_each: usize) -> f64 {
    let cache = ours::cache(sessions, Policy::Predictive, Some(64));
    let mut halves = [1, 2].map(|seed| Workload::new(Intervals::Three, sessions / 2, seed));
    halves.iter_mut().for_each(|half| serve(&cache, &half.fill()));
    let pair = |_| {
        let [a, b] = halves.each_mut().map(|half| half.next(arrivals_each));
        let both: Vec<Arrival> = a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect();
        let (alone_ns, ()) = timed(|| serve(&cache, &both));
        let [a, b] = halves.each_mut().map(|half| half.next(arrivals_each));
        let (together_ns, ()) = timed(|| {
            std::thread::scope(|threads| {
                threads.spawn(|| serve(&cache, &a));
                serve(&cache, &b);
            });
        });
        alone_ns / together_ns
    };
    median((0..rounds).map(pair).collect())
}

fn serve(cache: &Cache, arrivals: &[Arrival]) {
    let mut out = SecretBytes::default();
    for arrival in arrivals {
        if arrival.first || !ours::arrive(cache, arrival, &mut out) {
            ours::store(cache, arrival, &VALUE, u64::MAX);
        }
    }
}

/// Measures the time to store a session in a full cache when sessions have lifetimes, some of which
/// are over, relative to the time when they have none.
fn lifetime(sessions: u64, rounds: usize, arrivals: u64) -> f64 {
    let caches = [(), ()].map(|()| ours::cache(sessions, Policy::Predictive, None));
    let mut newcomers = Newcomers::new(sessions, 0);
    let mut round = |arrivals| {
        let arrivals = newcomers.next(arrivals);
        let [with, without] = [true, false].map(|limited| {
            let store = |(at, arrival): (usize, &Arrival)| {
                let lifetime_ms = 20_000 * (1 + at as u64 % 16);
                let expires_ms = if limited { arrival.at_ms + lifetime_ms } else { u64::MAX };
                ours::store(&caches[usize::from(limited)], arrival, &VALUE, expires_ms);
            };
            timed(|| arrivals.iter().enumerate().for_each(store)).0
        });
        with / without
    };
    // The cache is filled, and every session is replaced once.
    round(2 * sessions);
    median((0..rounds).map(|_| round(arrivals)).collect())
}
