//! The throughput of two processes with one cache, by the store's own bench.

use super::{Effort, Found};
use crate::frame::cargo;

const TIMES: f64 = 1.5;

pub(crate) fn gain(_: Effort) -> Option<Found> {
    let output =
        cargo("bench").args(["--package", "rejoin-store", "--bench", "processes"]).output();
    let said = String::from_utf8(output.ok()?.stdout).ok()?;
    let figure = |before: &str| {
        let told = said.lines().find_map(|line| line.strip_prefix(before));
        told?.split_whitespace().next()?.parse::<f64>().ok()
    };
    let (one_cache, two_caches, line_ns) = (
        figure("two processes do ")?,
        figure("with a cache each they do ")?,
        figure("a cache line takes ")?,
    );
    // A machine on which two processes hinder each other anyway says nothing about the cache.
    let figure = format!(
        "{one_cache:.2}; with a cache each {two_caches:.2}; a cache line takes {line_ns:.0} ns to the other core"
    );
    (two_caches >= TIMES).then_some(Found { figure, holds: one_cache >= TIMES })
}
