//! Browsers: clients that come back when a person does, and announce nothing.
//!
//! The gaps of one browser are independent of each other and come from one distribution, the same
//! for all. Each browser exists before time 0 and after the end: it has no runs, and none of its
//! connections is the first of a run.

use crate::draws::{Draws, whole_ms};
use crate::error::{Error, in_range};
use crate::event::Event;
use crate::gaps::Gaps;
use crate::population::MOST_DEVICES;
use crate::schedule::{Schedule, Scheduled};

/// The settings of a group of browsers.
#[derive(Debug, Clone, PartialEq)]
pub struct BrowserSettings {
    /// The number of browsers: 1 to [`MOST_DEVICES`].
    pub browsers: u64,
    /// The time between two connections of a browser.
    pub gaps: Gaps,
}

/// Browsers whose settings are all in range.
#[derive(Debug, Clone, PartialEq)]
pub struct Browsers(BrowserSettings);

impl Browsers {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`Error::OutOfRange`] or [`Error::NumberOutOfRange`], naming the setting and its range.
    pub fn new(settings: BrowserSettings) -> Result<Self, Error> {
        in_range("browsers", settings.browsers, 1, MOST_DEVICES)?;
        settings.gaps.check()?;
        Ok(Self(settings))
    }

    /// Returns the settings.
    pub fn settings(&self) -> &BrowserSettings {
        &self.0
    }

    /// Returns the mean number of connections in a second.
    pub fn expected_connections_per_s(&self) -> f64 {
        self.0.browsers as f64 / self.0.gaps.mean_ms() * 1_000.0
    }

    /// Returns all their connections in order of time, without end, in their steady state.
    ///
    /// The same seed gives the same connections on every platform. It takes 16 bytes per browser
    /// and constant time per event. Browsers are numbered from 0.
    pub fn arrivals(&self, seed: u64) -> BrowserArrivals {
        BrowserArrivals::new(self, Draws::new(seed, 0))
    }
}

/// The connections of [`Browsers`], in order of time, without end.
#[derive(Debug, Clone)]
pub struct BrowserArrivals {
    browsers: Vec<Browser>,
    schedule: Schedule,
    gaps: Gaps,
    draws: Draws,
}

impl BrowserArrivals {
    pub(crate) fn new(group: &Browsers, mut draws: Draws) -> Self {
        let BrowserSettings { browsers, gaps } = *group.settings();
        let found = |_| Browser { next_ms: whole_ms(gaps.draw_rest(&mut draws)), after: 0 };
        let mut browsers: Vec<Browser> = (0..browsers).map(found).collect();
        let schedule = Schedule::new(&mut browsers, group.expected_connections_per_s());
        Self { browsers, schedule, gaps, draws }
    }
}

impl Iterator for BrowserArrivals {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let client = self.schedule.take_next(&mut self.browsers)?;
        let browser = &mut self.browsers[client as usize];
        let time_ms = browser.next_ms;
        browser.next_ms = time_ms.saturating_add(whole_ms(self.gaps.draw(&mut self.draws)));
        self.schedule.add(client, browser);
        let client = u64::from(client);
        Some(Event { time_ms, client, first_of_run: false, returns_in_ms: None })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

/// A browser between two connections.
#[derive(Debug, Clone)]
struct Browser {
    next_ms: u64,
    after: u32,
}

impl Scheduled for Browser {
    fn next_ms(&self) -> u64 {
        self.next_ms
    }

    fn after(&mut self) -> &mut u32 {
        &mut self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::population::LONGEST_MEAN_MS;

    /// Returns the connections of the same browsers with the simplest schedule.
    fn plain(group: &Browsers, seed: u64, count: usize) -> Vec<(u64, u64)> {
        let BrowserSettings { browsers, gaps } = *group.settings();
        let mut draws = Draws::new(seed, 0);
        let mut next_ms: Vec<u64> =
            (0..browsers).map(|_| whole_ms(gaps.draw_rest(&mut draws))).collect();
        let mut next = || {
            let earliest = next_ms.iter_mut().zip(0..).min_by_key(|(ms, client)| (**ms, *client));
            let (next_ms, client) = earliest.expect("a browser");
            let time_ms = *next_ms;
            *next_ms = time_ms.saturating_add(whole_ms(gaps.draw(&mut draws)));
            (time_ms, client)
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn the_ring_changes_the_order_of_nothing() {
        let longest = LONGEST_MEAN_MS;
        for (browsers, gaps) in [
            (1, Gaps::LogNormal { median_ms: 60_000, sigma: 2.0 }),
            (500, Gaps::LogNormal { median_ms: 1, sigma: 5.0 }),
            (300, Gaps::LogNormal { median_ms: longest, sigma: 5.0 }),
            (2_000, Gaps::Pareto { least_ms: 1_000, shape: 1.1 }),
            (300, Gaps::Pareto { least_ms: longest, shape: 1.001 }),
        ] {
            let group = Browsers::new(BrowserSettings { browsers, gaps }).expect("in range");
            let arrivals = group.arrivals(browsers).map(|event| (event.time_ms, event.client));
            let arrivals: Vec<(u64, u64)> = arrivals.take(5_000).collect();
            assert_eq!(arrivals, plain(&group, browsers, 5_000), "{gaps:?}");
        }
    }
}
