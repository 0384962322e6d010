//! The cost of a connection and its savings, measured once for all lines.

use std::sync::OnceLock;

use serde_json::Value;

use super::measured::measure;
use super::{Effort, Found};

const OWN_RESUMED: f64 = 1.25;
const IN_FULL: f64 = 0.7;
const RELAY: f64 = 0.6;
/// A part of a round trip.
const SAVED: f64 = 0.95;

pub(crate) fn tls13(effort: Effort) -> Option<Found> {
    first_byte(effort, "TLSv1_3")
}

pub(crate) fn tls12(effort: Effort) -> Option<Found> {
    first_byte(effort, "TLSv1_2")
}

pub(crate) fn resumed(effort: Effort) -> Option<Found> {
    saved(effort, "TLSv1_2")
}

pub(crate) fn early(effort: Effort) -> Option<Found> {
    saved(effort, "TLSv1_3")
}

fn first_byte(effort: Effort, tls: &str) -> Option<Found> {
    let line = line(effort, "first_byte", tls)?;
    let figure = |name: &str| line[name].as_f64();
    let (managed, own, full) =
        (figure("managed_us")?, figure("own_resumed_us")?, figure("own_full_us")?);
    let asked = figure("asked_us")?;
    let (to_own, to_full) = (managed / own, managed / full);
    Some(Found {
        figure: format!(
            "{to_own:.2} and {to_full:.2} ({managed:.0} µs; own {own:.0} and {full:.0}; any question {asked:.0})"
        ),
        holds: to_own <= OWN_RESUMED && to_full < IN_FULL,
    })
}

fn saved(effort: Effort, tls: &str) -> Option<Found> {
    let saved = line(effort, "delayed", tls)?["round_trips_saved"].as_f64()?;
    Some(Found { figure: format!("{saved:.2}"), holds: saved >= SAVED })
}

pub(crate) fn relay(effort: Effort) -> Option<Found> {
    let line = line(effort, "relay", "TLSv1_3")?;
    let (managed, own) = (line["managed_mb_s"].as_f64()?, line["own_mb_s"].as_f64()?);
    let times = managed / own;
    Some(Found {
        figure: format!("{times:.2} ({managed:.0} MB/s; own {own:.0})"),
        holds: times >= RELAY,
    })
}

/// One object of the measurement, which is made once for all lines.
fn line(effort: Effort, what: &str, tls: &str) -> Option<&'static Value> {
    static MEASURED: OnceLock<Vec<Value>> = OnceLock::new();
    let measured = MEASURED.get_or_init(|| measure(effort.quick));
    measured.iter().find(|line| line["what"] == what && line["tls"] == tls)
}
