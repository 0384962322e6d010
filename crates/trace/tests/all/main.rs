//! The tests of the format and of the generators, one module for each subject.

mod csv;
mod format;
mod mixture;
mod open;
mod oracle_general;
mod population;
mod start_and_claims;

use rejoin_trace::{Event, Population, PopulationSettings};

/// Returns a connection that announces nothing.
fn at(time_ms: u64, client: u64) -> Event {
    Event { time_ms, client, first_of_run: false, returns_in_ms: None }
}

/// Returns the first connections of the paper's population, with 500 devices.
fn arrivals(seed: u64, count: usize) -> Vec<Event> {
    let population = Population::new(PopulationSettings::paper(500)).expect("in range");
    population.arrivals(seed).take(count).collect()
}
