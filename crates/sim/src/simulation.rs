//! A simulation: policies at capacities over seeds, on several threads.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::error::Error;
use crate::future::Future;
use crate::outcome::{Cell, GroupCell, HitRates, Outcome, Rate};
use crate::plan::Plan;
use crate::player::{Chunk, player};
use crate::progress::{PassProgress, Progress};
use crate::request::{Requests, Scope};
use crate::server::Server;
use crate::source::Source;
use crate::subject::Subject;
use crate::tally::{Counts, Tally};

/// Policies and capacities, and the servers on which to try them.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// The title of the outcome.
    pub title: String,
    /// The servers, which are the same for all policies.
    pub server: Server,
    /// The time before which requests are played but not counted. The first request of a device may
    /// be one of those.
    pub warm_up_ms: u64,
    /// The time from which requests are not played; `None` if all are.
    pub end_ms: Option<u64>,
    /// The names of the groups of the source's clients ([`group_of`](rejoin_trace::group_of)). Fewer
    /// than two are not counted apart.
    pub groups: Vec<String>,
    /// The policies.
    pub policies: Vec<Subject>,
    /// The capacities of each server, in sessions.
    pub capacities: Vec<NonZeroU32>,
    /// The number of seeds, which are numbered from 1.
    pub seeds: u32,
    /// The most threads.
    pub jobs: NonZeroUsize,
}

/// The most sessions in the caches of one pass, unless a single cell has more: with 100 bytes each,
/// 800 MB.
const MOST_SESSIONS_IN_A_PASS: u64 = 8_000_000;

/// The part of a pass in which its future is recorded.
const FUTURE_PART: f64 = 0.1;

impl Simulation {
    /// Makes the simulation of a plan, with one seed unless the plan has more, on one thread.
    pub fn of(plan: &Plan) -> Self {
        Self {
            title: plan.title.clone(),
            server: plan.server.clone(),
            warm_up_ms: plan.warm_up_ms,
            end_ms: plan.end_ms,
            groups: plan.groups.clone(),
            policies: plan.policies.clone(),
            capacities: plan.capacities.clone(),
            seeds: plan.seeds.map_or(1, NonZeroU32::get),
            jobs: NonZeroUsize::MIN,
        }
    }

    /// Plays every policy at every capacity over every seed.
    ///
    /// A pass is one seed. Its arrivals are read once for many cells, twice if one of them needs the
    /// future: memory is in proportion to clients and sessions, and to requests only for the
    /// clairvoyant. The outcome does not depend on the number of threads.
    ///
    /// If it is told to stop ([`Progress::stop`]), it returns the cells that have at least one seed.
    ///
    /// # Errors
    /// Returns [`Error::Cache`] for an impossible capacity, and the errors of the source.
    pub fn run(
        &self,
        source: &(impl Source + ?Sized),
        progress: &Progress,
    ) -> Result<Outcome, Error> {
        let batches = self.batches();
        let units: Vec<(u64, &[(Subject, NonZeroU32)])> = (1..=u64::from(self.seeds))
            .flat_map(|seed| batches.iter().map(move |batch| (seed, &batch[..])))
            .collect();
        progress.begin(units.iter().map(|(_, cells)| cells.len()).sum());
        let passes = in_parallel(&units, self.jobs, progress, |(seed, cells)| {
            self.pass(source, *seed, cells, progress)
        })?;
        let by_batch = |batch: usize| passes.iter().skip(batch).step_by(batches.len()).flatten();
        let mut cells = Vec::new();
        for (number, batch) in batches.iter().enumerate() {
            let passes: Vec<&Pass> = by_batch(number).collect();
            for (place, (policy, capacity)) in batch.iter().enumerate() {
                cells.extend(self.cell(*policy, *capacity, &passes, place));
            }
        }
        let policy = |cell: &Cell| self.policies.iter().position(|policy| *policy == cell.policy);
        let size =
            |cell: &Cell| self.capacities.iter().position(|size| size.get() == cell.capacity);
        cells.sort_by_key(|cell| (policy(cell), size(cell)));
        let complete = passes.iter().all(Option::is_some);
        Ok(Outcome { title: self.title.clone(), seeds: self.seeds, complete, cells })
    }

    /// Deals the cells out, so that there is as much work for every thread and memory for every pass. Cells of one policy,
    /// which take as long, are next to each other.
    fn batches(&self) -> Vec<Vec<(Subject, NonZeroU32)>> {
        let capacities = || self.capacities.iter().copied();
        let cells: Vec<(Subject, NonZeroU32)> = self
            .policies
            .iter()
            .flat_map(|policy| capacities().map(move |capacity| (*policy, capacity)))
            .collect();
        let threads_a_seed = self.jobs.get().div_ceil(self.seeds.max(1) as usize);
        let mut batches: Vec<Vec<(Subject, NonZeroU32)>> = Vec::new();
        for first in 0..threads_a_seed.min(cells.len()) {
            let (mut batch, mut sessions) = (Vec::new(), 0);
            for cell in cells.iter().skip(first).step_by(threads_a_seed) {
                let more = u64::from(cell.1.get()) * u64::from(self.server.servers.max(1));
                if sessions + more > MOST_SESSIONS_IN_A_PASS && !batch.is_empty() {
                    batches.push(std::mem::take(&mut batch));
                    sessions = 0;
                }
                batch.push(*cell);
                sessions += more;
            }
            batches.push(batch);
        }
        batches
    }

    /// `None` if it was stopped.
    fn pass(
        &self,
        source: &(impl Source + ?Sized),
        seed: u64,
        cells: &[(Subject, NonZeroU32)],
        progress: &Progress,
    ) -> Result<Option<Pass>, Error> {
        let groups = self.groups.len().max(1);
        let scope =
            Scope { warm_up_ms: self.warm_up_ms, end_ms: self.end_ms.unwrap_or(u64::MAX), groups };
        let made = cells
            .iter()
            .map(|(policy, capacity)| player(*policy, *capacity, &self.server, seed, groups));
        let mut players = made.collect::<Result<Vec<_>, _>>()?;
        let open = || Requests::open(source, seed, &self.server, scope);
        let mut walk = Walk { source, progress, pass: progress.pass(cells.len()), from: 0.0 };
        let mut future = Future::default();
        if cells.iter().any(|(policy, _)| policy.needs_future()) {
            let kept = self.server.sessions_kept;
            let record = |chunk: &Chunk<'_>| {
                chunk.requests.iter().for_each(|request| future.record(request, kept));
            };
            if walk.go(&mut open()?, None, FUTURE_PART, record)?.is_none() {
                return Ok(None);
            }
            future.finish();
        }
        let mut requests = open()?;
        let play = |chunk: &Chunk<'_>| players.iter_mut().for_each(|player| player.play(chunk));
        let played = walk.go(&mut requests, Some(&future), 1.0, play)?;
        players.iter_mut().for_each(|player| player.finish());
        let hits = || players.iter().map(|player| player.hits().clone()).collect();
        Ok(played.map(|()| Pass { requests: requests.into_counts(), hits: hits() }))
    }

    /// Makes a cell of its seeds; returns `None` if no seed was played to its end.
    fn cell(
        &self,
        policy: Subject,
        capacity: NonZeroU32,
        passes: &[&Pass],
        place: usize,
    ) -> Option<Cell> {
        let of = |counts: &dyn Fn(&Tally) -> Counts| -> Vec<(Counts, Counts)> {
            passes.iter().map(|pass| (counts(&pass.requests), counts(&pass.hits[place]))).collect()
        };
        let total = of(&Tally::total);
        if total.is_empty() {
            return None;
        }
        let named = self.groups.iter().enumerate().filter(|_| self.groups.len() > 1);
        let groups = named.map(|(group, name)| {
            let counts = of(&|tally: &Tally| tally.of(group));
            GroupCell {
                name: name.clone(),
                requests: mean_requests(&counts),
                rates: rates(&counts),
            }
        });
        let full = total.iter().map(|(requests, hits)| (requests.all - hits.all) as f64);
        Some(Cell {
            policy,
            capacity: capacity.get(),
            seeds: total.len() as u32,
            requests: mean_requests(&total),
            full_handshakes: full.sum::<f64>() / total.len() as f64,
            rates: rates(&total),
            groups: groups.collect(),
        })
    }
}

/// The counts of one seed played by some cells: requests, and hits for each cell.
#[derive(Debug)]
struct Pass {
    requests: Tally,
    hits: Vec<Tally>,
}

/// A walk over a pass, from one part of it to another.
struct Walk<'a, S: ?Sized> {
    source: &'a S,
    progress: &'a Progress,
    pass: PassProgress<'a>,
    from: f64,
}

impl<S: Source + ?Sized> Walk<'_, S> {
    /// `None` if it was stopped.
    fn go(
        &mut self,
        requests: &mut Requests<'_>,
        future: Option<&Future>,
        to: f64,
        mut with: impl FnMut(&Chunk<'_>),
    ) -> Result<Option<()>, Error> {
        while requests.advance()? {
            if self.progress.stopped() {
                return Ok(None);
            }
            let position = requests.position();
            let gaps = future.map(|future| future.gaps_from(position)).unwrap_or_default();
            with(&Chunk { requests: requests.chunk(), position, gaps });
            let (time_ms, events) = requests.reached();
            let part = self.source.part_over(time_ms, events).clamp(0.0, 1.0);
            self.pass.set(self.from + (to - self.from) * part);
        }
        self.from = to;
        self.pass.set(to);
        Ok(Some(()))
    }
}

/// The result of a piece of work; `None` if it was stopped.
type Ended<R> = Result<Option<R>, Error>;

/// Does each piece of work on one of so many threads and returns the results in the order of the
/// work. A piece that had not begun when an error occurred, or when it was told to stop, is `None`.
pub(crate) fn in_parallel<W: Sync, R: Send>(
    work: &[W],
    threads: NonZeroUsize,
    progress: &Progress,
    run: impl Fn(&W) -> Ended<R> + Sync,
) -> Result<Vec<Option<R>>, Error> {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let done: Mutex<Vec<(usize, Ended<R>)>> = Mutex::default();
    let labour = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            // Work before a failure is finished, so that the first failure is returned.
            if at >= work.len() || at > failed.load(Ordering::Relaxed) || progress.stopped() {
                return;
            }
            let result = run(&work[at]);
            if result.is_err() {
                failed.fetch_min(at, Ordering::Relaxed);
            }
            if let Ok(mut done) = done.lock() {
                done.push((at, result));
            }
        }
    };
    thread::scope(|scope| {
        let threads = threads.get().min(work.len());
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(labour)).collect();
        let ended: Vec<_> = running.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ended.into_iter().collect::<Result<(), _>>().map_err(|_| Error::Panicked)
    })?;
    let mut done = done.into_inner().map_err(|_| Error::Panicked)?;
    done.sort_by_key(|(at, _)| *at);
    let mut results: Vec<Option<R>> = work.iter().map(|_| None).collect();
    for (at, result) in done {
        results[at] = result?;
    }
    Ok(results)
}

fn mean_requests(counts: &[(Counts, Counts)]) -> f64 {
    counts.iter().map(|(requests, _)| requests.all as f64).sum::<f64>() / counts.len() as f64
}

/// Calculates hit rates from the requests and hits of each seed.
pub(crate) fn rates(counts: &[(Counts, Counts)]) -> HitRates {
    let rate = |of: fn(&Counts) -> u64| {
        let counted = counts.iter().filter(|(requests, _)| of(requests) > 0);
        let percent = counted.map(|(requests, hits)| of(hits) as f64 * 100.0 / of(requests) as f64);
        Rate::over(&percent.collect::<Vec<f64>>())
    };
    HitRates {
        hit_all: rate(|counts| counts.all),
        hit_after_first_of_device: rate(|counts| counts.after_first_of_device),
        hit_after_first_of_run: rate(|counts| counts.after_first_of_run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prediction takes several times as long as first in, first out.
    #[test]
    fn every_thread_has_as_many_cells_of_each_policy() {
        let policies = vec![Subject::Lru, Subject::Learned];
        let size = |size| NonZeroU32::new(size).expect("not zero");
        let capacities: Vec<NonZeroU32> = [10, 20, 5_000_000, 6_000_000].map(size).to_vec();
        let jobs = NonZeroUsize::new(2).expect("not zero");
        let plan = Plan::default();
        let simulation = Simulation { policies, capacities, jobs, ..Simulation::of(&plan) };
        let simulation = Simulation { seeds: 1, ..simulation };
        let batches = simulation.batches();
        assert!(batches.iter().flatten().count() == 8, "{batches:?}");
        // Two caches that are too large for one pass are in two, on the same thread or on another.
        let each = |first: u32, second: u32| {
            let cell = |policy, sessions| (policy, size(sessions));
            let of = |policy| [cell(policy, first), cell(policy, second)];
            [of(Subject::Lru), of(Subject::Learned)].concat()
        };
        let [one, two, three, four] = &batches[..] else { panic!("{batches:?}") };
        assert_eq!([&one[..], two].concat(), each(10, 5_000_000));
        assert_eq!([&three[..], four].concat(), each(20, 6_000_000));
    }
}
