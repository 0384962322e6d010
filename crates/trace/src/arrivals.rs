//! The connections of all devices of a population, in order of time.
//!
//! Only the devices that connect within the present moment are in a heap. The others are in a
//! ring of unsorted lists, one for each moment to come, and enter the heap when their moment
//! begins. A device further ahead than the ring is long stays in its list for another lap. Time
//! and number order the connections completely, so that this changes the order of nothing; with
//! ten million devices in one heap, an event would cost several times as much.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::device::Device;
use crate::draws::Draws;
use crate::event::Event;
use crate::population::{MOST_DEVICES, Population, PopulationSettings};

/// How many connections a moment has, at most, in the mean: its heap stays in a processor's
/// cache.
const CONNECTIONS_PER_MOMENT: f64 = 256.0;
/// Devices in a list of the ring, in the mean: few enough for laps to be rare.
const DEVICES_PER_LIST: usize = 64;

/// The end of a list: no device has this number.
const NONE: u32 = u32::MAX;
const _: () = assert!(MOST_DEVICES <= NONE as u64);

/// The connections of a [`Population`], in order of time, without end.
#[derive(Debug, Clone)]
pub struct Arrivals {
    devices: Vec<Device>,
    schedule: Schedule,
    settings: PopulationSettings,
    draws: Draws,
}

impl Arrivals {
    pub(crate) fn new(population: &Population, seed: u64) -> Self {
        let settings = population.settings().clone();
        let mut draws = Draws::new(seed);
        let found = |_| Device::found(&settings, &mut draws);
        let mut devices: Vec<Device> = (0..settings.devices).map(found).collect();
        let moment_ms = CONNECTIONS_PER_MOMENT / population.expected_connections_per_s() * 1_000.0;
        let schedule = Schedule::new(&mut devices, moment_ms as u64);
        Self { devices, schedule, settings, draws }
    }
}

impl Iterator for Arrivals {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let client = self.schedule.take_next(&mut self.devices)?;
        let device = &mut self.devices[client as usize];
        let event = device.event(client);
        device.connect(&self.settings, &mut self.draws);
        self.schedule.add(client, device);
        Some(event)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

/// Devices, by number, in order of their next connection.
#[derive(Debug, Clone)]
struct Schedule {
    /// Time and number of those of this moment, the least on top.
    due: BinaryHeap<Reverse<u128>>,
    /// The first of each list. Those of moment m are in list m modulo the length.
    later: Vec<u32>,
    /// A moment is so many bits of a time in milliseconds.
    moment_bits: u32,
    /// Which moment it is.
    moment: u64,
}

impl Schedule {
    /// With moments of at most `moment_ms`, and at least one.
    fn new(devices: &mut [Device], moment_ms: u64) -> Self {
        let later = vec![NONE; devices.len().div_ceil(DEVICES_PER_LIST)];
        let moment_bits = moment_ms.max(1).ilog2();
        let mut schedule = Self { due: BinaryHeap::new(), later, moment_bits, moment: 0 };
        for (client, device) in devices.iter_mut().enumerate() {
            schedule.add(client as u32, device);
        }
        schedule
    }

    fn add(&mut self, client: u32, device: &mut Device) {
        let moment = device.next_ms >> self.moment_bits;
        if moment <= self.moment {
            // As one number, so that the heap compares without branches.
            self.due.push(Reverse(u128::from(device.next_ms) << 32 | u128::from(client)));
        } else {
            let list = moment % self.later.len() as u64;
            device.after = std::mem::replace(&mut self.later[list as usize], client);
        }
    }

    fn take_next(&mut self, devices: &mut [Device]) -> Option<u32> {
        if self.due.is_empty() {
            self.advance(devices);
        }
        self.due.pop().map(|Reverse(key)| key as u32)
    }

    /// Goes on to the next moment that has a device.
    fn advance(&mut self, devices: &mut [Device]) {
        for _ in 0..self.later.len() {
            self.begin(self.moment + 1, devices);
            if !self.due.is_empty() {
                return;
            }
        }
        // Nobody in a whole lap: all wait for ages.
        let earliest_ms = devices.iter().map(|device| device.next_ms).min();
        if let Some(earliest_ms) = earliest_ms {
            self.begin(earliest_ms >> self.moment_bits, devices);
        }
    }

    /// Those of this moment become due, those of a later lap go back into the list.
    fn begin(&mut self, moment: u64, devices: &mut [Device]) {
        self.moment = moment;
        let list = moment % self.later.len() as u64;
        let mut client = std::mem::replace(&mut self.later[list as usize], NONE);
        while client != NONE {
            let device = &mut devices[client as usize];
            let after = device.after;
            self.add(client, device);
            client = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same population with the plainest schedule there is.
    fn plain(population: &Population, seed: u64, count: usize) -> Vec<Event> {
        let settings = population.settings();
        let mut draws = Draws::new(seed);
        let found = |_| Device::found(settings, &mut draws);
        let mut devices: Vec<Device> = (0..settings.devices).map(found).collect();
        let mut next = || {
            let devices = devices.iter_mut().enumerate();
            let next = devices.min_by_key(|(client, device)| (device.next_ms, *client));
            let (client, device) = next.expect("a device");
            let event = device.event(client as u32);
            device.connect(settings, &mut draws);
            event
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
        assert_plain(PopulationSettings { running_ms: 1, waiting_ms: 1, ..paper }, 3, 20_000);
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
