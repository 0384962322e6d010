//! The outcome of a simulation as text: a table for a terminal, CSV, and a page with the curves.
//!
//! These are pure functions; the caller writes the text.

mod chart;
mod comma_separated;
mod page;
mod terminal;

use rejoin_trace::grouped;

use crate::{Cell, HitRates, Outcome, Rate, Subject};

pub use comma_separated::csv;
pub use page::html;
pub use terminal::table;

/// The reason why there is no page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The outcome has no cell.
    #[error("there is nothing to draw yet: let at least one seed be played to its end")]
    Empty,
    /// A rate that no axis from 0 to 100 percent can show.
    #[error("{policy} at {capacity} sessions: {rate} is no hit rate in percent")]
    NotAPercentage {
        /// The policy.
        policy: Subject,
        /// Its capacity, in sessions.
        capacity: u32,
        /// The rate, with its deviation.
        rate: String,
    },
}

/// The requests that a hit rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    All,
    AfterFirstOfDevice,
    AfterFirstOfRun,
}

impl Counted {
    const EVERY: [Self; 3] = [Self::All, Self::AfterFirstOfDevice, Self::AfterFirstOfRun];

    const fn of(self, rates: &HitRates) -> Option<Rate> {
        match self {
            Self::All => rates.hit_all,
            Self::AfterFirstOfDevice => rates.hit_after_first_of_device,
            Self::AfterFirstOfRun => rates.hit_after_first_of_run,
        }
    }

    const fn key(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::AfterFirstOfDevice => "device",
            Self::AfterFirstOfRun => "run",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::All => "all requests",
            Self::AfterFirstOfDevice => "after the first of each device",
            Self::AfterFirstOfRun => "after the first of each run",
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::All => "Every request counts, even one that nothing could have made a hit.",
            Self::AfterFirstOfDevice => {
                "The first request of each device is left out: it has no session to resume."
            }
            Self::AfterFirstOfRun => {
                "The first request of each run of a device is left out: what remains are the \
                 returns within a run."
            }
        }
    }
}

/// The cells of one policy, smallest capacity first.
#[derive(Debug)]
struct Curve<'a> {
    policy: Subject,
    cells: Vec<&'a Cell>,
}

impl<'a> Curve<'a> {
    /// One for each policy, in the order of their first cells.
    fn all(outcome: &'a Outcome) -> Vec<Self> {
        let mut curves: Vec<Self> = Vec::new();
        for cell in &outcome.cells {
            match curves.iter_mut().find(|curve| curve.policy == cell.policy) {
                Some(curve) => curve.cells.push(cell),
                None => curves.push(Self { policy: cell.policy, cells: vec![cell] }),
            }
        }
        for curve in &mut curves {
            curve.cells.sort_by_key(|cell| cell.capacity);
        }
        curves
    }
}

/// Returns a note if cells had fewer seeds than asked for, or none.
fn incomplete(outcome: &Outcome) -> Option<&'static str> {
    (!outcome.complete).then_some("incomplete: not every seed of every policy and size was played")
}

/// Returns true if each cell must be shown with its number of seeds.
fn seeds_differ(outcome: &Outcome) -> bool {
    outcome.cells.iter().any(|cell| cell.seeds != outcome.seeds)
}

/// Formats a rate as `76.8 ± 0.4`; with one seed, which has no deviation, as `76.8`.
fn percent(rate: Option<Rate>, seeds: u32) -> String {
    match rate {
        None => "–".to_owned(),
        Some(Rate { mean, .. }) if seeds == 1 => format!("{mean:.1}"),
        Some(Rate { mean, sd }) => format!("{mean:.1} ± {sd:.1}"),
    }
}

/// Rounds to a whole number, with commas between the thousands. A negative number becomes 0.
pub fn thousands(number: f64) -> String {
    grouped(number.round_ties_even() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        let texts = [0.0, 999.0, 1_000.4, 1_234_567.0].map(thousands);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
