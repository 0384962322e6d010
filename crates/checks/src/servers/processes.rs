//! The throughput of two processes with one cache, by the store's own bench.

use super::{Effort, Found};
use crate::frame::cargo;

const TIMES: f64 = 1.5;

pub(crate) fn gain(_: Effort) -> Option<Found> {
    let output =
        cargo("bench").args(["--package", "rejoin-store", "--bench", "processes"]).output();
    let said = String::from_utf8(output.ok()?.stdout).ok()?;
    let figure = said.lines().find_map(|line| {
        line.strip_prefix("two processes do ")?.split_whitespace().next()?.parse::<f64>().ok()
    })?;
    Some(Found { figure: format!("{figure:.2}"), holds: figure >= TIMES })
}
