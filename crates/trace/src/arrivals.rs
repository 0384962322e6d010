//! The connections of all devices of a population, in order of time.

use crate::device::Device;
use crate::draws::Draws;
use crate::event::Event;
use crate::population::{MOST_DEVICES, Population, PopulationSettings};
use crate::runs::Runs;
use crate::schedule::{MOST_CLIENTS, Schedule};

const _: () = assert!(MOST_DEVICES <= MOST_CLIENTS);

impl Population {
    /// Returns all its connections in order of time, without end: `take_while` bounds them.
    ///
    /// The same seed gives the same connections on every platform. It takes 24 bytes per device, 28 if
    /// devices have habits ([`Runs::Habits`]), and constant time per event. Clients are numbered from 0. A device that runs at time 0 began
    /// before: its first connection here is not the first of its run.
    pub fn arrivals(&self, seed: u64) -> Arrivals {
        Arrivals::new(self, Draws::new(seed, 0))
    }
}

/// The connections of a [`Population`], in order of time, without end.
#[derive(Debug, Clone)]
pub struct Arrivals {
    devices: Vec<Device>,
    means: MeanRuns,
    schedule: Schedule,
    settings: PopulationSettings,
    draws: Draws,
}

impl Arrivals {
    pub(crate) fn new(population: &Population, mut draws: Draws) -> Self {
        let settings = population.settings().clone();
        let means = MeanRuns::draw(&settings, &mut draws);
        let found = |client| Device::found(&settings, means.of(client), &mut draws);
        let mut devices: Vec<Device> = (0..settings.devices as u32).map(found).collect();
        let schedule = Schedule::new(&mut devices, population.expected_connections_per_s());
        Self { devices, means, schedule, settings, draws }
    }
}

/// The mean runs of all devices, in milliseconds.
#[derive(Debug, Clone)]
enum MeanRuns {
    Same(f64),
    Own(Vec<f32>),
}

impl MeanRuns {
    fn draw(settings: &PopulationSettings, draws: &mut Draws) -> Self {
        let PopulationSettings { runs, devices, running_ms, .. } = *settings;
        let population_ms = running_ms as f64;
        match runs {
            Runs::Exponential | Runs::LogNormal { .. } => Self::Same(population_ms),
            Runs::Habits { .. } => {
                let own = |_| runs.draw_mean(population_ms, draws) as f32;
                Self::Own((0..devices).map(own).collect())
            }
        }
    }

    fn of(&self, client: u32) -> f64 {
        match self {
            Self::Same(mean_ms) => *mean_ms,
            Self::Own(means_ms) => f64::from(means_ms[client as usize]),
        }
    }
}

impl Iterator for Arrivals {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let client = self.schedule.take_next(&mut self.devices)?;
        let device = &mut self.devices[client as usize];
        let running_ms = self.means.of(client);
        let event = device.connect(client, &self.settings, running_ms, &mut self.draws);
        self.schedule.add(client, device);
        Some(event)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::population::Start;

    /// Returns the connections of the same population with the simplest schedule.
    fn plain(population: &Population, seed: u64, count: usize) -> Vec<Event> {
        let settings = population.settings();
        let mut draws = Draws::new(seed, 0);
        let means = MeanRuns::draw(settings, &mut draws);
        let found = |client| Device::found(settings, means.of(client), &mut draws);
        let mut devices: Vec<Device> = (0..settings.devices as u32).map(found).collect();
        let mut next = || {
            let devices = devices.iter_mut().enumerate();
            let next = devices.min_by_key(|(client, device)| (device.next_ms, *client));
            let (client, device) = next.expect("a device");
            device.connect(client as u32, settings, means.of(client as u32), &mut draws)
        };
        (0..count).map(|_| next()).collect()
    }

    fn assert_plain(settings: PopulationSettings, seed: u64, count: usize) {
        let population = Population::new(settings).expect("in range");
        let arrivals: Vec<Event> = population.arrivals(seed).take(count).collect();
        assert_eq!(arrivals, plain(&population, seed, count), "{:?}", population.settings());
    }

    #[test]
    fn the_ring_changes_the_order_of_nothing() {
        for devices in [1, 2, 63, 500, 3_000] {
            assert_plain(PopulationSettings::paper(devices), devices, 20_000);
        }
        let paper = PopulationSettings::paper(2_000);
        assert_plain(PopulationSettings { jitter_ms: 30_000, ..paper.clone() }, 1, 20_000);
        assert_plain(PopulationSettings { running_ms: 1, ..paper.clone() }, 2, 20_000);
        let short = PopulationSettings { running_ms: 1, waiting_ms: 1, ..paper.clone() };
        assert_plain(short, 3, 20_000);
        let runs = Runs::Habits { sigma: 1.5, within: 0.3 };
        assert_plain(PopulationSettings { runs, ..paper.clone() }, 6, 20_000);
        assert_plain(PopulationSettings { start: Start::Waiting, ..paper }, 5, 20_000);
    }

    #[test]
    fn moments_without_anybody_are_skipped() {
        let paper = PopulationSettings::paper(300);
        let longest = crate::LONGEST_MEAN_MS;
        for (running_ms, waiting_ms) in [(1_000, longest), (longest, 1_000), (longest, longest)] {
            for mix in ["0.001:1", "4294967.295:1", "0.001:1,4294967.295:1"] {
                let intervals = mix.parse().expect("a mix");
                let settings =
                    PopulationSettings { running_ms, waiting_ms, intervals, ..paper.clone() };
                assert_plain(settings, 4, 20_000);
            }
        }
    }
}
