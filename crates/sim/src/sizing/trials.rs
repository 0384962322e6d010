//! The trials of policies at capacities, each made once.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::{Need, Sizing, sizes};
use crate::error::Error;
use crate::outcome::Cell;
use crate::progress::Progress;
use crate::simulation::Simulation;
use crate::source::Source;
use crate::subject::Subject;

/// The trials so far.
pub(super) struct Trials<'a, S: ?Sized> {
    sizing: &'a Sizing<'a>,
    source: &'a S,
    progress: &'a Progress,
    /// The cells by capacity and policy.
    cells: BTreeMap<(u32, Subject), Cell>,
}

/// The points below an unlimited cache within which a policy has nothing more to gain.
const NOTHING_POINTS: f64 = 0.1;
/// The part of an unlimited cache's resumptions below which a size is too small to matter.
const LITTLE: f64 = 0.05;

impl<'a, S: Source + ?Sized> Trials<'a, S> {
    pub(super) fn new(sizing: &'a Sizing<'a>, source: &'a S, progress: &'a Progress) -> Self {
        Self { sizing, source, progress, cells: BTreeMap::new() }
    }

    /// Tries the sizes that were not tried yet. If it is stopped, some stay untried.
    pub(super) fn run(&mut self, policies: &[Subject], sizes: &[u32]) -> Result<(), Error> {
        let known =
            |size: &u32| policies.iter().all(|policy| self.cells.contains_key(&(*size, *policy)));
        let sizes = sizes.iter().filter(|size| !known(size));
        let capacities: Vec<NonZeroU32> = sizes.filter_map(|size| NonZeroU32::new(*size)).collect();
        if capacities.is_empty() || self.progress.stopped() {
            return Ok(());
        }
        let policies = policies.to_vec();
        let simulation = Simulation { policies, capacities, ..self.sizing.simulation.clone() };
        let outcome = simulation.run(self.source, self.progress)?;
        let cells = outcome.cells.into_iter().map(|cell| ((cell.capacity, cell.policy), cell));
        self.cells.extend(cells);
        Ok(())
    }

    /// Returns true if every policy resumes little with so many sessions.
    pub(super) fn little_resumed(&self, size: u32) -> bool {
        let little = self.sizing.survey.returning_percent() * LITTLE;
        self.at(size).all(|percent| percent < little)
    }

    /// Returns true if no policy gains from more than so many sessions.
    pub(super) fn nothing_to_win(&self, size: u32) -> bool {
        let all = self.sizing.survey.returning_percent() - NOTHING_POINTS;
        self.at(size).all(|percent| percent >= all)
    }

    fn at(&self, size: u32) -> impl Iterator<Item = f64> {
        let cells = self.cells.iter().filter(move |((capacity, _), _)| *capacity == size);
        cells.map(|(_, cell)| percent(cell))
    }

    fn enough(&self, policy: Subject, size: u32) -> bool {
        let cell = self.cells.get(&(size, policy));
        cell.is_some_and(|cell| percent(cell) >= self.sizing.goal())
    }

    /// Returns the smallest size tried from which on all sizes tried are enough.
    pub(super) fn need(&self, policy: Subject) -> Need {
        let mut need = Need { policy, sessions: None, fails_at: None };
        for (size, _) in self.cells.keys().rev().filter(|(_, of)| *of == policy) {
            if !self.enough(policy, *size) {
                need.fails_at = Some(*size);
                break;
            }
            need.sessions = Some(*size);
        }
        need
    }

    /// Tries sizes between one that is enough and one that is not.
    pub(super) fn narrow(&mut self, need: &mut Need) -> Result<(), Error> {
        let Need { policy, sessions: Some(sessions), fails_at } = *need else { return Ok(()) };
        let narrowed = sizes::narrow(fails_at.unwrap_or(0), sessions, |sizes| {
            self.run(&[policy], sizes)?;
            let known = !self.progress.stopped();
            Ok::<_, Error>(
                known.then(|| sizes.iter().map(|size| self.enough(policy, *size)).collect()),
            )
        })?;
        if let Some((fails, reaches)) = narrowed {
            (need.sessions, need.fails_at) = (Some(reaches), (fails > 0).then_some(fails));
        }
        Ok(())
    }

    /// Returns the cells in the order of capacities, then of the policies asked for.
    pub(super) fn into_cells(self) -> Vec<Cell> {
        let asked = &self.sizing.simulation.policies;
        let place = |cell: &Cell| asked.iter().position(|policy| *policy == cell.policy);
        let mut cells: Vec<Cell> = self.cells.into_values().collect();
        cells.sort_by_key(|cell| (cell.capacity, place(cell)));
        cells
    }
}

/// Returns the hit rate after the first request of each device; 0 if no client returns.
fn percent(cell: &Cell) -> f64 {
    cell.rates.hit_after_first_of_device.map_or(0.0, |rate| rate.mean)
}
