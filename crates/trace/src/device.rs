//! One device of a population: waiting, or running and connecting.

use std::num::NonZeroU64;

use crate::draws::{Draws, whole_ms};
use crate::event::Event;
use crate::population::{PopulationSettings, Start};
use crate::schedule::Scheduled;

/// A device between two connections.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) next_ms: u64,
    /// `None` if its next connection begins a run.
    run_ends_ms: Option<NonZeroU64>,
    interval_ms: u32,
    after: u32,
}

const _: () = assert!(size_of::<Device>() == 24);

impl Device {
    /// Draws a device in its state at time 0. Its own mean run is `running_ms`.
    pub(crate) fn found(settings: &PopulationSettings, running_ms: f64, draws: &mut Draws) -> Self {
        let interval_ms = settings.intervals.draw(draws);
        let mut device = Self { next_ms: 0, run_ends_ms: None, interval_ms, after: 0 };
        let PopulationSettings { waiting_ms, start, .. } = *settings;
        let running = whole_ms(running_ms).max(1);
        if start == Start::Steady && draws.below(running.saturating_add(waiting_ms)) < running {
            let (past, rest) = settings.runs.draw_under_way(running_ms, draws);
            let interval = f64::from(interval_ms);
            let next_ms = whole_ms(interval - past % interval);
            device.plan(next_ms, whole_ms(rest), settings, draws);
        } else {
            device.next_ms = whole_ms(draws.exponential(waiting_ms as f64));
        }
        device
    }

    /// Connects, and draws the time of the connection after this one. Its own mean run is `running_ms`.
    pub(crate) fn connect(
        &mut self,
        client: u32,
        settings: &PopulationSettings,
        running_ms: f64,
        draws: &mut Draws,
    ) -> Event {
        let now_ms = self.next_ms;
        let first_of_run = self.run_ends_ms.is_none();
        let run_ends_ms = match self.run_ends_ms {
            Some(run_ends_ms) => run_ends_ms.get(),
            None => {
                let run = settings.runs.draw(running_ms, draws);
                now_ms.saturating_add(whole_ms(run))
            }
        };
        let gap_ms = self.gap_ms(settings.jitter_ms, draws);
        self.plan(now_ms.saturating_add(gap_ms), run_ends_ms, settings, draws);
        let returns_in_ms = settings.claims.of(self.knows_to_return_in_ms(settings));
        Event { time_ms: now_ms, client: u64::from(client), first_of_run, returns_in_ms }
    }

    /// Returns the return time that it knows after it connected.
    fn knows_to_return_in_ms(&self, settings: &PopulationSettings) -> u32 {
        let leaves = self.run_ends_ms.is_none();
        if settings.departures_known && leaves { Event::NOT_BACK_MS } else { self.interval_ms }
    }

    /// Sets the next connection to `next_ms` if the run lasts until then, else to the beginning of
    /// the next run.
    fn plan(
        &mut self,
        next_ms: u64,
        run_ends_ms: u64,
        settings: &PopulationSettings,
        draws: &mut Draws,
    ) {
        if next_ms < run_ends_ms {
            self.next_ms = next_ms;
            self.run_ends_ms = NonZeroU64::new(run_ends_ms);
        } else {
            let wait = draws.exponential(settings.waiting_ms as f64);
            self.next_ms = run_ends_ms.saturating_add(whole_ms(wait));
            self.run_ends_ms = None;
        }
    }

    /// Draws the interval with jitter. The cut at both ends keeps the mean.
    fn gap_ms(&self, jitter_ms: u64, draws: &mut Draws) -> u64 {
        if jitter_ms == 0 {
            return u64::from(self.interval_ms);
        }
        let interval = f64::from(self.interval_ms);
        let late = (draws.normal() * jitter_ms as f64).clamp(-interval, interval);
        whole_ms(interval + late)
    }
}

impl Scheduled for Device {
    fn next_ms(&self) -> u64 {
        self.next_ms
    }

    fn after(&mut self) -> &mut u32 {
        &mut self.after
    }
}
