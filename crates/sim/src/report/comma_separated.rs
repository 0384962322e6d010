//! The outcome as CSV, for spreadsheets and scripts.

use crate::{HitRates, Outcome, Rate};

/// The columns. Their names and order do not change.
const COLUMNS: [&str; 12] = [
    "policy",
    "capacity",
    "group",
    "seeds",
    "requests",
    "full_handshakes",
    "hit_all_mean",
    "hit_all_sd",
    "hit_after_first_of_device_mean",
    "hit_after_first_of_device_sd",
    "hit_after_first_of_run_mean",
    "hit_after_first_of_run_sd",
];

/// Formats the outcome as CSV: a line for each cell, followed by one for each of its groups of clients.
///
/// `group` is empty in the line that counts all of them, `full_handshakes` in that of a group; a
/// rate is empty where nothing was counted. Rates are in percent, with every digit.
///
/// # Panics
///
/// Never: a string takes every field.
pub fn csv(outcome: &Outcome) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |fields: &[String]| writer.write_record(fields).expect("memory takes it");
    write(&COLUMNS.map(str::to_owned));
    for cell in &outcome.cells {
        let line = |group: &str, requests: f64, full_handshakes: Option<f64>, rates: &HitRates| {
            let [all, device, run] =
                [rates.hit_all, rates.hit_after_first_of_device, rates.hit_after_first_of_run]
                    .map(mean_and_sd);
            let mut fields = vec![
                cell.policy.to_string(),
                cell.capacity.to_string(),
                group.to_owned(),
                cell.seeds.to_string(),
                requests.to_string(),
                number(full_handshakes),
            ];
            fields.extend([all, device, run].into_iter().flatten());
            fields
        };
        write(&line("", cell.requests, Some(cell.full_handshakes), &cell.rates));
        for group in &cell.groups {
            write(&line(&group.name, group.requests, None, &group.rates));
        }
    }
    let bytes = writer.into_inner().expect("memory takes it");
    String::from_utf8(bytes).expect("fields are text")
}

fn mean_and_sd(rate: Option<Rate>) -> [String; 2] {
    [number(rate.map(|rate| rate.mean)), number(rate.map(|rate| rate.sd))]
}

fn number(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
