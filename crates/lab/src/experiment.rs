//! The experiment loop: cells are measured in turn until all are done, one fails, or the caller asks to stop.
//!
//! [`Turns`] counts cells and decides how an experiment ends. All studies use [`Turns::run_until`]: the
//! asynchronous ones directly, the others through [`Turns::run`]. A cell with which the machine did not keep up is
//! measured once more ([`Conditions`]). Only the studies of CPU caches, which measure several cells at a time and
//! count instead of timing, use [`Turns::run_on_threads`].

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use serde::Serialize;

use crate::conditions::{self, Watch};
use crate::{Conditions, Error};

/// The position of an experiment, announced before each cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Cells that are over.
    pub done: usize,
    /// All cells.
    pub of: usize,
    /// The cell that is measured next.
    pub what: String,
}

/// The end of an experiment: part of every outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ended {
    /// True if all cells were measured. Otherwise the outcome holds the figures so far.
    pub complete: bool,
    /// The first failure, if a cell failed.
    pub failure: Option<String>,
    /// Cells that were measured.
    pub done: usize,
    /// Cells that were asked for.
    pub wanted: usize,
    /// Cells with which the machine did not keep up, each with the reason: their figures are not to be trusted.
    pub doubts: Vec<String>,
}

impl Ended {
    /// The end of an experiment whose cells were all measured.
    #[cfg(test)]
    pub(crate) fn complete(cells: usize) -> Self {
        let doubts = Vec::new();
        Self { complete: true, failure: None, done: cells, wanted: cells, doubts }
    }

    /// The end of an experiment that was interrupted before it was known how many cells it has.
    pub(crate) fn interrupted() -> Self {
        Self { complete: false, failure: None, done: 0, wanted: 0, doubts: Vec::new() }
    }

    /// Returns why cells are missing: the first failure, or `interrupted` where none failed. `None` if none is missing.
    pub fn cut<'a>(&'a self, interrupted: &'a str) -> Option<&'a str> {
        (!self.complete).then(|| self.failure.as_deref().unwrap_or(interrupted))
    }

    /// Returns true if the machine did not keep up with a cell.
    pub(crate) fn doubts(&self, cell: impl Display) -> bool {
        let start = format!("{cell}: ");
        self.doubts.iter().any(|doubt| doubt.starts_with(&start))
    }

    /// Returns a note on each doubt, and one on what to do. Nothing if there are none.
    pub fn notes(&self) -> Vec<String> {
        conditions::notes(&self.doubts)
    }
}

/// One of at most two attempts at a cell.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    /// True if the machine did not keep up with the first.
    pub(crate) is_second: bool,
    /// The conditions that the cell itself has seen.
    pub(crate) seen: Conditions,
}

/// The count of an experiment's cells.
#[derive(Debug)]
pub(crate) struct Turns {
    wanted: usize,
    done: usize,
    over: usize,
    /// The number of cells that each further one counts as.
    weight: usize,
    repeats: bool,
    watches: bool,
    interrupted: bool,
    failure: Option<Error>,
    /// The conditions of each cell, in each round.
    seen: Vec<(String, Vec<Conditions>)>,
}

impl Turns {
    pub(crate) fn new(wanted: usize) -> Self {
        Self {
            wanted,
            done: 0,
            over: 0,
            weight: 1,
            repeats: true,
            watches: true,
            interrupted: false,
            failure: None,
            seen: Vec::new(),
        }
    }

    /// Turns that do not watch the machine, for tests that run beside each other.
    #[cfg(test)]
    pub(crate) fn unwatched(wanted: usize) -> Self {
        Self { watches: false, ..Self::new(wanted) }
    }

    /// Lets each further cell count as so many, and be measured once only: another process decides which is next.
    pub(crate) fn weigh(&mut self, weight: usize) {
        (self.weight, self.repeats) = (weight, false);
    }

    /// Measures cells one after the other, and returns their results. `began` is told of each attempt, `kept` of each
    /// result and its conditions. `stop` cancels the cell under way; a cell that hears by itself that it is to stop
    /// yields `None`. The first failure ends the loop.
    pub(crate) async fn run_until<C: Display + Clone, T>(
        &mut self,
        cells: impl IntoIterator<Item = C>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        mut began: impl FnMut(&Step, &C),
        mut measure: impl AsyncFnMut(C, &mut Attempt) -> Result<Option<T>, Error>,
        mut kept: impl FnMut(&mut T, Conditions) -> Result<(), Error>,
    ) -> Vec<T> {
        let mut results = Vec::new();
        for cell in cells {
            if self.is_over(stop.as_mut()).await {
                break;
            }
            let best = self.best(&cell, stop.as_mut(), &mut began, &mut measure).await;
            self.over += self.weight;
            let Some((mut result, seen)) = best else { continue };
            self.done += self.weight;
            self.note(&cell, seen);
            if let Err(error) = kept(&mut result, seen) {
                self.failure.get_or_insert(error);
            }
            results.push(result);
        }
        results
    }

    /// Measures a cell, and once more if the machine does not keep up. Returns the result of the better attempt.
    async fn best<C: Display + Clone, T>(
        &mut self,
        cell: &C,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        began: &mut impl FnMut(&Step, &C),
        measure: &mut impl AsyncFnMut(C, &mut Attempt) -> Result<Option<T>, Error>,
    ) -> Option<(T, Conditions)> {
        let mut best: Option<(T, Conditions)> = None;
        for is_second in [false, true] {
            let cell = cell.clone();
            began(&self.step(&cell, is_second), &cell);
            let mut attempt = Attempt { is_second, ..Attempt::default() };
            let watch = self.watches.then(Watch::begin);
            let result = tokio::select! {
                biased;
                result = measure(cell, &mut attempt) => result,
                () = &mut stop => Ok(None),
            };
            // Ctrl-C also reaches the processes of a cell, whose failure is then none.
            let is_told = result.is_err() && is_ready(stop.as_mut()).await;
            let machine = watch.map_or_else(Conditions::default, |watch| watch.end());
            let seen = attempt.seen.worse(machine);
            let strain = |best: &(T, Conditions)| best.1.strain();
            if let Some(result) = self.taken(result, is_told)
                && best.as_ref().is_none_or(|best| seen.strain() < strain(best))
            {
                best = Some((result, seen));
            }
            if seen.kept_up() || !self.repeats || self.is_over(stop.as_mut()).await {
                break;
            }
        }
        best
    }

    /// Does the same with cells that cannot be cancelled: `stop` is heard between them.
    pub(crate) fn run<C: Display + Clone, T>(
        &mut self,
        cells: impl IntoIterator<Item = C>,
        stop: &AtomicBool,
        mut began: impl FnMut(&Step),
        mut measure: impl FnMut(C, &mut Attempt) -> Result<Option<T>, Error>,
    ) -> Vec<T> {
        let told = pin!(poll_fn(|_| match stop.load(Ordering::Relaxed) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }));
        let began = |step: &Step, _: &C| began(step);
        let measure = async |cell, attempt: &mut Attempt| measure(cell, attempt);
        let mut turns = pin!(self.run_until(cells, told, began, measure, |_, _| Ok(())));
        loop {
            // Nothing in it waits: the first look is the last.
            if let Poll::Ready(results) =
                turns.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                return results;
            }
        }
    }

    /// Measures each cell `rounds` times, in turns, and returns its results beside it.
    pub(crate) fn run_rounds<C: Display + Copy, T>(
        &mut self,
        (rounds, cells): (u16, Vec<C>),
        stop: &AtomicBool,
        began: impl FnMut(&Step),
        measure: impl FnMut(C, &mut Attempt) -> Result<Option<T>, Error>,
    ) -> Vec<(C, Vec<T>)> {
        let turns = (0..rounds).flat_map(|_| cells.iter().copied());
        let results = self.run(turns, stop, began, measure);
        let mut by_cell: Vec<(C, Vec<T>)> = cells.iter().map(|cell| (*cell, Vec::new())).collect();
        for (turn, result) in results.into_iter().enumerate() {
            by_cell[turn % cells.len()].1.push(result);
        }
        by_cell
    }

    /// Measures several cells at a time, until all are over or `is_stopped`. A failure does not end the others.
    pub(crate) fn run_on_threads<C: Display + Sync>(
        &mut self,
        (threads, cells): (u16, &[C]),
        is_stopped: impl Fn() -> bool + Sync,
        began: impl FnMut(&Step) + Send,
        measure: impl Fn(&C) -> Result<(), Error> + Sync,
    ) {
        let (next, shared) = (AtomicUsize::new(0), Mutex::new((self, began)));
        let announce = |cell: &C| {
            let (turns, began) = &mut *lock(&shared);
            began(&turns.step(cell, false));
        };
        let work = || {
            while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed))
                && !is_stopped()
            {
                announce(cell);
                let result = measure(cell).map(Some);
                let is_told = result.is_err() && is_stopped();
                let turns = &mut lock(&shared).0;
                turns.over += turns.weight;
                turns.done += turns.taken(result, is_told).map_or(0, |()| turns.weight);
            }
        };
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
    }

    fn step(&self, what: &impl Display, is_second: bool) -> Step {
        let what = if is_second { format!("{what}, again") } else { what.to_string() };
        Step { done: self.over, of: self.wanted, what }
    }

    /// Returns true if no further cell is to be measured.
    async fn is_over(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> bool {
        // A future that has completed is not asked again.
        self.interrupted = self.interrupted || (self.failure.is_none() && is_ready(stop).await);
        self.interrupted || self.failure.is_some()
    }

    /// Returns the result of an attempt, if there is one. The failure of a cell that was told to stop is none.
    fn taken<T>(&mut self, result: Result<Option<T>, Error>, is_told: bool) -> Option<T> {
        match result {
            Ok(Some(result)) => return Some(result),
            Err(error) if !is_told => {
                self.failure.get_or_insert(error);
            }
            Ok(None) | Err(_) => self.interrupted = true,
        }
        None
    }

    /// Notes the conditions of a cell in one round.
    fn note(&mut self, cell: &impl Display, seen: Conditions) {
        let cell = cell.to_string();
        match self.seen.iter_mut().find(|(other, _)| *other == cell) {
            Some((_, rounds)) => rounds.push(seen),
            None => self.seen.push((cell, vec![seen])),
        }
    }

    /// Returns the cells with which the machine did not keep up, in the median of their rounds.
    pub(crate) fn doubts(&self) -> Vec<String> {
        self.seen
            .iter()
            .filter_map(|(cell, rounds)| Conditions::median(rounds).doubt(cell))
            .collect()
    }

    /// Returns how the experiment ended.
    ///
    /// # Errors
    /// The first failure, where `is_empty`: nothing was measured.
    pub(crate) fn ended(self, is_empty: bool) -> Result<Ended, Error> {
        let doubts = self.doubts();
        let Self { wanted, done, failure, .. } = self;
        match failure {
            Some(failure) if is_empty => Err(Error::Nothing(Box::new(failure))),
            failure => Ok(Ended {
                complete: done == wanted && failure.is_none(),
                failure: failure.map(|failure| failure.to_string()),
                done,
                wanted,
                doubts,
            }),
        }
    }

    /// Returns true if all cells were measured, false if the caller stopped them.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn all(self) -> Result<bool, Error> {
        self.failure.map_or(Ok(self.done == self.wanted), Err)
    }
}

/// Returns each of these with each of those.
pub(crate) fn crossed<A: Copy, B: Copy>(these: &[A], those: &[B]) -> Vec<(A, B)> {
    these.iter().flat_map(|one| those.iter().map(|other| (*one, *other))).collect()
}

async fn is_ready(mut stop: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|context| Poll::Ready(stop.as_mut().poll(context).is_ready())).await
}

/// Locks a mutex, also one whose last holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures cells 0 to 5, of which `fails` fails and at `stops` the caller stops.
    fn run(
        fails: Option<u32>,
        stops: Option<u32>,
    ) -> (Vec<u32>, Vec<String>, Result<Ended, Error>) {
        let (stop, mut told) = (AtomicBool::new(false), Vec::new());
        let mut turns = Turns::unwatched(6);
        let began = |step: &Step| told.push(format!("{}/{} {}", step.done, step.of, step.what));
        let results = turns.run(0..6_u32, &stop, began, |cell, _| {
            stop.store(stops == Some(cell), Ordering::Relaxed);
            if fails == Some(cell) { Err(Error::Settings("cannot")) } else { Ok(Some(cell)) }
        });
        let ended = turns.ended(results.is_empty());
        (results, told, ended)
    }

    #[test]
    fn all_cells_are_measured_in_turn() {
        let (results, told, ended) = run(None, None);
        assert_eq!((results.len(), told.len(), told[5].as_str()), (6, 6, "5/6 5"));
        let ended = ended.expect("complete");
        assert_eq!((ended.complete, ended.done, ended.cut("interrupted")), (true, 6, None));
    }

    #[test]
    fn a_failure_keeps_what_was_measured() {
        let (results, told, ended) = run(Some(2), None);
        let ended = ended.expect("two cells");
        assert_eq!((results, told.len(), ended.done), (vec![0, 1], 3, 2));
        assert_eq!(ended.cut("interrupted"), Some("cannot"));
        let (.., ended) = run(Some(0), None);
        let error = ended.expect_err("nothing was measured");
        assert_eq!(error.to_string(), "nothing was measured: cannot");
        assert!(error.is_misuse());
    }

    #[test]
    fn a_stop_is_heard_between_cells_and_forgives_a_failure() {
        let (results, _, ended) = run(None, Some(3));
        let ended = ended.expect("a part");
        assert_eq!((results.len(), ended.cut("interrupted")), (4, Some("interrupted")));
        let (results, _, ended) = run(Some(0), Some(0));
        assert_eq!((results.len(), ended.expect("interrupted").failure), (0, None));
    }

    #[tokio::test]
    async fn a_stop_cancels_the_cell_under_way() {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let mut stop = Some(stop);
        let stopped = pin!(async {
            let _: Result<(), _> = stopped.await;
        });
        let measure = async |cell: u32, _: &mut Attempt| {
            if cell == 1 {
                drop(stop.take());
                std::future::pending::<()>().await;
            }
            Ok(Some(cell))
        };
        let mut turns = Turns::unwatched(3);
        let results = turns.run_until(0..3, stopped, |_, _| {}, measure, |_, _| Ok(())).await;
        assert_eq!(results, [0]);
        assert!(!turns.all().expect("nothing failed"));
    }

    #[test]
    fn rounds_take_turns_and_weigh() {
        let (stop, mut turns) = (AtomicBool::new(false), Turns::unwatched(10));
        let mut next = 0..;
        let by_cell = turns.run_rounds((2, vec!['a', 'b']), &stop, |_| {}, |_, _| Ok(next.next()));
        assert_eq!(by_cell, [('a', vec![0, 2]), ('b', vec![1, 3])]);
        turns.weigh(3);
        turns.run(0..2, &stop, |_| {}, |cell, _| Ok(Some(cell)));
        assert!(turns.all().expect("nothing failed"));
    }

    /// Measures one cell, whose attempts see so many late connections, in percent.
    fn attempts(late: &[f64], fails: bool) -> (Vec<usize>, Vec<String>, Ended) {
        let (mut told, mut attempts) = (Vec::new(), late.iter().enumerate());
        let mut turns = Turns::unwatched(1);
        let began = |step: &Step| told.push(step.what.clone());
        let results = turns.run(["cell"], &AtomicBool::new(false), began, |_, attempt| {
            let (number, late_percent) = attempts.next().expect("at most two");
            assert_eq!(attempt.is_second, number == 1);
            attempt.seen.late_percent = *late_percent;
            if fails && attempt.is_second {
                Err(Error::Settings("cannot"))
            } else {
                Ok(Some(number))
            }
        });
        let ended = turns.ended(results.is_empty()).expect("a result");
        (results, told, ended)
    }

    #[test]
    fn a_cell_is_measured_again_if_the_machine_did_not_keep_up() {
        let (results, told, ended) = attempts(&[0.5], false);
        assert_eq!((results, told.len(), ended.notes().len()), (vec![0], 1, 0));
        let (results, told, ended) = attempts(&[30.0, 0.5], false);
        assert_eq!((results, told[1].as_str(), ended.notes().len()), (vec![1], "cell, again", 0));
        for (late, better) in [([30.0, 20.0], 1), ([20.0, 30.0], 0)] {
            let (results, _, ended) = attempts(&late, false);
            assert_eq!((results, ended.complete), (vec![better], true));
            assert_eq!(ended.doubts, ["cell: 20 % of the connections began late"]);
            assert!(ended.notes()[1].contains("End other programs"), "{:?}", ended.notes());
        }
        let (results, _, ended) = attempts(&[30.0, 0.0], true);
        assert_eq!((results, ended.done, ended.doubts.len()), (vec![0], 1, 1));
        assert_eq!(ended.cut("interrupted"), Some("cannot"));
    }

    #[test]
    fn on_threads_a_failure_does_not_end_the_others() {
        let cells: Vec<u32> = (0..20).collect();
        let (mut turns, mut told) = (Turns::unwatched(20), 0);
        turns.run_on_threads(
            (3, &cells),
            || false,
            |_| told += 1,
            |cell| {
                if *cell == 4 { Err(Error::Settings("cannot")) } else { Ok(()) }
            },
        );
        let ended = turns.ended(false).expect("nineteen");
        assert_eq!((told, ended.done, ended.failure.as_deref()), (20, 19, Some("cannot")));
    }
}
