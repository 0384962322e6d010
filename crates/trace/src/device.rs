//! One device of a population: waiting, or running and connecting.

use std::num::NonZeroU64;

use crate::draws::Draws;
use crate::event::Event;
use crate::population::PopulationSettings;

/// A device between two connections.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) next_ms: u64,
    /// `None`: its next connection begins a run.
    run_ends_ms: Option<NonZeroU64>,
    interval_ms: u32,
    /// The device after it in the schedule's list.
    pub(crate) after: u32,
}

const _: () = assert!(size_of::<Device>() == 24);

impl Device {
    /// As it is found at time 0.
    pub(crate) fn found(settings: &PopulationSettings, draws: &mut Draws) -> Self {
        let interval_ms = settings.intervals.draw(draws);
        let mut device = Self { next_ms: 0, run_ends_ms: None, interval_ms, after: 0 };
        let PopulationSettings { running_ms, waiting_ms, .. } = *settings;
        if draws.below(running_ms + waiting_ms) < running_ms {
            let past = draws.exponential(running_ms as f64);
            let interval = f64::from(interval_ms);
            let next_ms = whole_ms(interval - past % interval);
            let run_ends_ms = whole_ms(draws.exponential(running_ms as f64));
            device.plan(next_ms, run_ends_ms, settings, draws);
        } else {
            device.next_ms = whole_ms(draws.exponential(waiting_ms as f64));
        }
        device
    }

    pub(crate) fn event(&self, client: u32) -> Event {
        Event {
            time_ms: self.next_ms,
            client: u64::from(client),
            first_of_run: self.run_ends_ms.is_none(),
            returns_in_ms: Some(self.interval_ms),
        }
    }

    /// Goes on to the connection after this one.
    pub(crate) fn connect(&mut self, settings: &PopulationSettings, draws: &mut Draws) {
        let now_ms = self.next_ms;
        let run_ends_ms = match self.run_ends_ms {
            Some(run_ends_ms) => run_ends_ms.get(),
            None => {
                let run = draws.exponential(settings.running_ms as f64);
                now_ms.saturating_add(whole_ms(run))
            }
        };
        let gap_ms = self.gap_ms(settings.jitter_ms, draws);
        self.plan(now_ms.saturating_add(gap_ms), run_ends_ms, settings, draws);
    }

    /// Connects at `next_ms` if the run lasts until then, else when the next run begins.
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

    /// The interval, jittered. The cut at both ends keeps the mean.
    fn gap_ms(&self, jitter_ms: u64, draws: &mut Draws) -> u64 {
        if jitter_ms == 0 {
            return u64::from(self.interval_ms);
        }
        let interval = f64::from(self.interval_ms);
        let late = (draws.normal() * jitter_ms as f64).clamp(-interval, interval);
        whole_ms(interval + late)
    }
}

/// To the nearest millisecond.
fn whole_ms(ms: f64) -> u64 {
    ms.round() as u64
}
