//! Client certificates that are decoded once (patch 002), by `rejoin bench interning`.

use serde_json::Value;

use super::{Effort, Found, told};

/// Times as many resumptions a second.
const TIMES: f64 = 1.1;

/// The least gain of TLS 1.2 and 1.3, with one certificate and with many.
pub(crate) fn interning(effort: Effort) -> Option<Found> {
    let quick = if effort.quick { " --quick" } else { "" };
    let Some(outcome) = told(&format!("bench interning --json{quick}")) else {
        return Some(Found { figure: "it could not be measured".to_owned(), holds: false });
    };
    let rows = outcome["rows"].as_array()?;
    let least = |figure: &dyn Fn(&Value) -> Option<f64>| {
        rows.iter().filter_map(figure).reduce(f64::min).filter(|_| rows.len() == 4)
    };
    let times = least(&|row| row["times"].as_f64())?;
    let saved = least(&|row| row["saved_bytes"].as_f64())?;
    let decoded = least(&|row| row["decoded_bytes"].as_f64())?;
    let spare = least(&|row| Some(row["saved_bytes"].as_f64()? - row["decoded_bytes"].as_f64()?))?;
    let figure = format!("{times:.2}; {saved:.0} bytes less, {decoded:.0} when decoded");
    Some(Found { figure, holds: times >= TIMES && spare >= 0.0 })
}
