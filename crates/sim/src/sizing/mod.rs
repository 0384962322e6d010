//! The size that a cache needs, found by trying sizes.
//!
//! A [`Survey`] reads the arrivals once and finds how much an unlimited cache would resume.
//! [`Sizing`] then tries sizes until it knows the smallest that comes close enough to that. The hit
//! rate is the one after the first request of each device: the share of *returning* devices that
//! resume.
//!
//! # Method
//!
//! Sizes go up in steps of four, from a few sessions to as many as an unlimited cache would hold,
//! and no further than to where every policy is within a tenth of a point of the unlimited cache.
//! Between the last step at which no policy resumes a twentieth of the possible resumptions, and the
//! first at which all policies resume everything, each step is divided evenly, so that there are
//! about a dozen sizes. A policy's need is the smallest of them from which on it reaches the target;
//! the interval below is then narrowed to a hundredth of the size. Hit rates need not grow with the
//! size (FIFO's do not always), and narrowing keeps to the *last* size that fails.
//!
//! Not here: prices of handshakes, which the caller gives, and configuration files.

mod ages;
mod memory;
mod sizes;
mod survey;
mod trials;

use std::num::NonZeroU32;

use serde::Serialize;

use crate::error::Error;
use crate::outcome::Cell;
use crate::policy::PolicyName;
use crate::progress::Progress;
use crate::simulation::Simulation;
use crate::source::Source;
use crate::subject::Subject;
use trials::Trials;

pub use ages::Lifetime;
pub use memory::{HAPROXY, NGINX, OPENSSL, Peer, shipped_bytes};
pub use sizes::narrow;
pub use survey::Survey;

/// FIFO, the policy of OpenSSL, nginx and HAProxy.
pub const FIFO: Subject = Subject::Yardstick(PolicyName::Fifo);

/// The shipped policies. If two need the same capacity, the earlier is recommended.
const SHIPPED: [Subject; 4] = [Subject::Both, Subject::Learned, Subject::Lru, Subject::Predictive];

/// A search for the capacity that is enough.
#[derive(Debug)]
pub struct Sizing<'a> {
    /// The servers, policies, seeds and threads. Its capacities are ignored.
    pub simulation: &'a Simulation,
    /// The survey of the same arrivals.
    pub survey: &'a Survey,
    /// The target, in percent of the requests that an unlimited cache would resume.
    pub target_percent: f64,
}

/// The step of the search, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The search for the range in which sizes matter.
    Range,
    /// The trial of the sizes between.
    Sizes,
    /// The narrowing of the needs.
    Narrowing,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Every policy at every capacity that was tried, in the order of capacities, then of the
    /// policies asked for.
    pub cells: Vec<Cell>,
    /// The capacities to show: every policy was tried at each. Those that were tried only to find
    /// where sizes begin to matter are left out.
    pub sizes: Vec<u32>,
    /// The need of each policy, in the order asked for.
    pub needs: Vec<Need>,
    /// True if the search ran to its end. If not, no need is known.
    pub complete: bool,
}

/// The capacity that a policy needs to reach the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The policy.
    pub policy: Subject,
    /// The capacity of each server, in sessions; `None` if the policy does not reach the target at
    /// any size tried.
    pub sessions: Option<u32>,
    /// The largest smaller size that was tried and does not reach it; `None` if there is none.
    pub fails_at: Option<u32>,
}

impl Sizing<'_> {
    /// Tries the given capacities, or else finds and narrows them by itself.
    ///
    /// # Errors
    /// Returns the errors of [`Simulation::run`].
    pub fn run(
        &self,
        capacities: Option<&[NonZeroU32]>,
        source: &(impl Source + ?Sized),
        progress: &Progress,
        begins: &dyn Fn(Stage),
    ) -> Result<Found, Error> {
        let mut trials = Trials::new(self, source, progress);
        let mut sizes = match capacities {
            Some(capacities) => {
                begins(Stage::Sizes);
                let sizes = sizes::sorted(capacities.iter().map(|size| size.get()));
                trials.run(&self.simulation.policies, &sizes)?;
                sizes
            }
            None => self.find_sizes(&mut trials, begins)?,
        };
        let mut needs: Vec<Need> = Vec::new();
        if !progress.stopped() {
            let policies = self.simulation.policies.iter();
            needs = policies.map(|policy| trials.need(*policy)).collect();
        }
        if capacities.is_none() && !progress.stopped() {
            begins(Stage::Narrowing);
            for need in worth_narrowing(&needs) {
                trials.narrow(&mut needs[need])?;
            }
            if let Some(best) = best(&needs).and_then(|need| need.sessions) {
                trials.run(&self.simulation.policies, &[best])?;
                sizes = sizes::sorted(sizes.into_iter().chain([best]));
            }
        }
        let complete = !progress.stopped();
        if !complete {
            needs.clear();
        }
        Ok(Found { cells: trials.into_cells(), sizes, needs, complete })
    }

    fn find_sizes(
        &self,
        trials: &mut Trials<'_, impl Source + ?Sized>,
        begins: &dyn Fn(Stage),
    ) -> Result<Vec<u32>, Error> {
        let policies = &self.simulation.policies;
        begins(Stage::Range);
        let ladder = sizes::ladder(self.survey.most_sessions);
        // The small sizes together cost no more than the largest of them.
        let small = ladder.partition_point(|size| *size <= sizes::SMALL);
        trials.run(policies, &ladder[..small])?;
        let mut tried = small;
        while tried < ladder.len() && !(tried > 0 && trials.nothing_to_win(ladder[tried - 1])) {
            trials.run(policies, &ladder[tried..=tried])?;
            tried += 1;
        }
        let ladder = &ladder[..tried];
        let first = ladder.iter().rposition(|size| trials.little_resumed(*size)).unwrap_or(0);
        let last = ladder.iter().position(|size| trials.nothing_to_win(*size));
        let last = last.map_or(ladder.len(), |last| last + 1).max(first + 1);
        let sizes = sizes::divided(&ladder[first..last]);
        begins(Stage::Sizes);
        trials.run(policies, &sizes)?;
        Ok(sizes)
    }

    /// Returns the target in percent of the requests after the first of each device.
    pub fn goal(&self) -> f64 {
        self.survey.returning_percent() * self.target_percent / 100.0
    }
}

impl Found {
    /// Returns the shipped policy that needs least, if any reaches the target.
    pub fn recommended(&self) -> Option<&Need> {
        best(&self.needs)
    }

    /// Returns the need of a policy, if it was tried.
    pub fn need(&self, policy: Subject) -> Option<&Need> {
        self.needs.iter().find(|need| need.policy == policy)
    }

    /// Returns the cell of a policy at a capacity.
    pub fn cell(&self, policy: Subject, capacity: u32) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.policy == policy && cell.capacity == capacity)
    }

    /// Returns the largest capacity tried.
    pub fn largest(&self) -> Option<u32> {
        self.sizes.last().copied()
    }
}

/// Returns the shipped policy that needs least to reach the target.
fn best(needs: &[Need]) -> Option<&Need> {
    let place = |need: &Need| SHIPPED.iter().position(|shipped| *shipped == need.policy);
    let reaching = needs.iter().filter(|need| need.sessions.is_some() && place(need).is_some());
    reaching.min_by_key(|need| (need.sessions, place(need)))
}

/// Returns FIFO, the basis of comparison, and the shipped policies that may be the best.
fn worth_narrowing(needs: &[Need]) -> Vec<usize> {
    let best = best(needs).and_then(|need| need.sessions);
    let worth_it = |need: &Need| {
        let may_be_best = SHIPPED.contains(&need.policy) && need.sessions == best;
        need.sessions.is_some() && (need.policy == FIFO || may_be_best)
    };
    (0..needs.len()).filter(|at| worth_it(&needs[*at])).collect()
}
