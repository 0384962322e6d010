//! The sizes that were tried, and those that an answer needs besides.

use std::num::NonZeroU32;

use rejoin_report::distinct;
use rejoin_sim::sizing::{Found, narrow};
use rejoin_sim::{Cell, Error, Progress, Simulation, Source, Subject};

/// Cells by policy and capacity, and the means of making more.
pub(super) struct Trials<'a> {
    pub(super) simulation: &'a Simulation,
    pub(super) source: &'a dyn Source,
    pub(super) progress: &'a Progress,
    /// In the order of capacities, then of the policies asked for.
    pub(super) cells: Vec<Cell>,
}

impl<'a> Trials<'a> {
    pub(super) fn of(
        simulation: &'a Simulation,
        source: &'a dyn Source,
        progress: &'a Progress,
        found: &Found,
    ) -> Self {
        Self { simulation, source, progress, cells: found.cells.clone() }
    }

    pub(super) fn cell(&self, policy: Subject, capacity: u32) -> Option<&Cell> {
        self.cells.iter().find(|cell| (cell.policy, cell.capacity) == (policy, capacity))
    }

    /// Tries these policies at the sizes that were not tried. If it is stopped, some stay untried.
    pub(super) fn run(&mut self, policies: &[Subject], sizes: &[u32]) -> Result<(), Error> {
        let missing = |size: &u32, policy: &Subject| self.cell(*policy, *size).is_none();
        let capacities = sizes.iter().filter(|size| policies.iter().any(|of| missing(size, of)));
        let capacities = distinct(capacities.filter_map(|size| NonZeroU32::new(*size)));
        let policies = policies.iter().filter(|of| sizes.iter().any(|size| missing(size, of)));
        let policies: Vec<Subject> = policies.copied().collect();
        if capacities.is_empty() || self.progress.stopped() {
            return Ok(());
        }
        let simulation = Simulation { policies, capacities, ..self.simulation.clone() };
        for cell in simulation.run(self.source, self.progress)?.cells {
            if self.cell(cell.policy, cell.capacity).is_none() {
                self.cells.push(cell);
            }
        }
        let asked = &self.simulation.policies;
        let place = |cell: &Cell| asked.iter().position(|policy| *policy == cell.policy);
        self.cells.sort_by_key(|cell| (cell.capacity, place(cell)));
        Ok(())
    }

    /// Returns the smallest size, to within a hundredth, from which on a policy resumes so much; `None` if no size that
    /// was tried is enough.
    pub(super) fn need(&mut self, policy: Subject, percent: f64) -> Result<Option<u32>, Error> {
        let enough = |cell: &Cell| returning(cell) >= percent;
        let curve: Vec<(u32, bool)> =
            self.curve(policy).map(|cell| (cell.capacity, enough(cell))).collect();
        let from = curve.iter().rposition(|(_, enough)| !enough).map_or(0, |at| at + 1);
        let Some((reaches, _)) = curve.get(from) else { return Ok(None) };
        let fails = from.checked_sub(1).map_or(0, |at| curve[at].0);
        let narrowed = narrow(fails, *reaches, |sizes| {
            self.run(&[policy], sizes)?;
            let cells = sizes.iter().map(|size| self.cell(policy, *size).map(enough));
            Ok::<_, Error>(cells.collect())
        })?;
        Ok(narrowed.map(|(_, reaches)| reaches))
    }

    /// Returns what was tried of a policy, by size.
    pub(super) fn curve(&self, policy: Subject) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.policy == policy)
    }
}

/// Returns the hit rate after the first request of each device, in percent; 0 if no client returns.
pub(super) fn returning(cell: &Cell) -> f64 {
    cell.rates.hit_after_first_of_device.map_or(0.0, |rate| rate.mean)
}
