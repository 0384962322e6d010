//! The outcome as a table for a terminal.

use rejoin_report::printable;

use super::{Counted, Curve, incomplete, percent, seeds_differ, thousands};
use crate::{HitRates, Outcome};

/// The outcome as a table: a row for each policy and capacity, below it one for each group of
/// clients where there are several. Rates are in percent, ± one standard deviation over seeds.
pub fn table(outcome: &Outcome) -> String {
    let with_seeds = seeds_differ(outcome);
    let table = rejoin_report::table(&[0], head(with_seeds), rows(outcome, with_seeds));
    let seeds = match outcome.seeds {
        1 => "one seed".to_owned(),
        seeds => format!("{seeds} seeds"),
    };
    let mut text = format!("{}: {seeds}, hit rates in percent\n{table}", printable(&outcome.title));
    if let Some(line) = incomplete(outcome) {
        text.push('\n');
        text.push_str(line);
    }
    text
}

fn rows(outcome: &Outcome, with_seeds: bool) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (at, curve) in Curve::all(outcome).iter().enumerate() {
        if at > 0 {
            rows.push(vec![String::new()]);
        }
        for (at, cell) in curve.cells.iter().enumerate() {
            let policy = if at == 0 { cell.policy.to_string() } else { String::new() };
            let mut row = vec![policy, thousands(cell.capacity.into())];
            row.extend(with_seeds.then(|| cell.seeds.to_string()));
            row.extend(figures(&cell.rates, cell.seeds, cell.requests));
            rows.push(row);
            let several = cell.groups.len() > 1;
            for group in cell.groups.iter().filter(|_| several) {
                let mut row = vec![format!("  {}", printable(&group.name)), String::new()];
                row.extend(with_seeds.then(String::new));
                row.extend(figures(&group.rates, cell.seeds, group.requests));
                rows.push(row);
            }
        }
    }
    rows
}

fn head(with_seeds: bool) -> Vec<&'static str> {
    let mut head = vec!["policy", "sessions"];
    head.extend(with_seeds.then_some("seeds"));
    head.extend(Counted::EVERY.map(|counted| match counted {
        Counted::All => "all requests",
        Counted::AfterFirstOfDevice => "after the first\nof each device",
        Counted::AfterFirstOfRun => "after the first\nof each run",
    }));
    head.push("requests");
    head
}

fn figures(rates: &HitRates, seeds: u32, requests: f64) -> impl Iterator<Item = String> {
    let rates = Counted::EVERY.map(|counted| percent(counted.of(rates), seeds));
    rates.into_iter().chain([thousands(requests)])
}
