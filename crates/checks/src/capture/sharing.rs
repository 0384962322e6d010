//! The sharing table of the captures' README, and Table I of paper 004.

use serde_json::Value;

use super::{Effort, Found, rejoin, report};

const COLUMNS: [&str; 6] = [
    "handshakes",
    "full_observed",
    "full_own_reuse",
    "full_shared_client",
    "full_own_reuse_server",
    "full_shared_server",
];
/// The second tool's figures, with six full handshakes that it leaves unclassified and one of DTLS,
/// which it does not read, and without two copies that it counts twice
/// (`docs/capture-differences.md`).
const BY_FILE: [u64; 6] = [2_171, 1_798, 1_051, 737, 924, 566];
const BY_APPLICATION: [u64; 6] = [2_171, 1_798, 794, 737, 704, 566];

/// Applications and hosts.
const SERVICES: [(&str, u64, usize); 8] = [
    ("e.crashlytics.com", 29, 27),
    ("api.xbcs.net", 25, 24),
    ("graph.facebook.com", 19, 4),
    ("googleads.g.doubleclick.net", 17, 6),
    ("main.crws.cz", 15, 1),
    ("gask.hit.gemius.pl", 14, 3),
    ("ipws2.timetable.cz", 14, 1),
    ("pagead2.googleadservices.com", 14, 4),
];

pub(crate) fn table(Effort { captures, .. }: Effort) -> Option<Found> {
    let apps = captures.join("apps.tsv");
    let by_file = counts(&report(captures, &[])?);
    let by_application = counts(&report(captures, &["--apps", apps.to_str()?])?);
    let figure = format!("{by_file:?}, {by_application:?}");
    Some(Found { figure, holds: (by_file, by_application) == (BY_FILE, BY_APPLICATION) })
}

fn counts(report: &Value) -> [u64; 6] {
    COLUMNS.map(|column| report[column].as_u64().unwrap_or_default())
}

pub(crate) fn services(Effort { captures, .. }: Effort) -> Option<Found> {
    let report = report(captures, &[])?;
    let found: Vec<(&str, u64, usize)> = report["top_services"]
        .as_array()?
        .iter()
        .filter_map(|service| {
            let hosts = service["hosts"].as_array()?.len();
            Some((service["name"].as_str()?, service["applications"].as_u64()?, hosts))
        })
        .collect();
    let equal = found.iter().zip(SERVICES).filter(|(found, wanted)| *found == wanted).count();
    let figure = format!("{equal} of {}", SERVICES.len());
    Some(Found { figure, holds: found == SERVICES })
}

/// Full, resumed; latency and energy as printed in the paper.
const TABLE_I: [(&str, f64, f64); 6] = [
    ("4021:974", 840.44, 51.29),
    ("1538:3457", 671.96, 40.80),
    ("828:4167", 623.79, 37.80),
    ("57719:12935", 844.48, 51.54),
    ("17029:53625", 649.29, 39.39),
    ("12539:58115", 627.75, 38.05),
];

pub(crate) fn table_i(_: Effort) -> Option<Found> {
    let counts = TABLE_I.map(|(counts, ..)| counts).join(",");
    let text = String::from_utf8(rejoin(&["capture", "--counts", &counts])).ok()?;
    let printed = text.lines().skip(2).filter_map(|line| {
        let mut words = line.split_whitespace().rev();
        let energy: f64 = words.next()?.parse().ok()?;
        Some((words.next()?.parse::<f64>().ok()?, energy))
    });
    let off =
        printed.zip(TABLE_I).map(|((latency, energy), (_, wanted_latency, wanted_energy))| {
            (latency - wanted_latency).abs().max((energy - wanted_energy).abs())
        });
    let off: Vec<f64> = off.collect();
    let worst = off.iter().copied().fold(0.0, f64::max);
    // Both sides have two decimals.
    let holds = off.len() == TABLE_I.len() && worst < 0.010_001;
    Some(Found { figure: format!("{worst:.2} over {} columns", off.len()), holds })
}
