//! The bench of the crate `cluster`, and its test of a thousand rotations.

use std::sync::OnceLock;

use super::{Effort, Found};
use crate::frame::{cargo, test};

const MOST_POINTS_APART: f64 = 0.5;
const LEAST_A_SECOND: f64 = 25_000.0;
const MOST_P99_MS: f64 = 2.0;

pub(crate) fn hits(_: Effort) -> Option<Found> {
    let apart = lines("hits of ").map(|line| {
        let percents: Option<Vec<f64>> = line
            .split(" % in ")
            .map(|part| part.rsplit(' ').next()?.parse().ok())
            .take(2)
            .collect();
        percents.map_or(f64::INFINITY, |percents| (percents[0] - percents[1]).abs())
    });
    let apart = apart.reduce(f64::max)?;
    Some(Found { figure: format!("{apart:.2}"), holds: apart <= MOST_POINTS_APART })
}

pub(crate) fn round_trips(_: Effort) -> Option<Found> {
    let line = lines("commands for ").next()?;
    let puts = line.strip_prefix("commands for ")?.split(' ').next()?;
    let scripts = line.rsplit(' ').next()?;
    Some(Found { figure: line.to_owned(), holds: puts == scripts })
}

pub(crate) fn speed(_: Effort) -> Option<Found> {
    let line = lines("operations a second").next()?;
    let figure: f64 = line.rsplit(' ').next()?.parse().ok()?;
    Some(Found { figure: format!("{figure:.0}"), holds: figure >= LEAST_A_SECOND })
}

pub(crate) fn latency(_: Effort) -> Option<Found> {
    let line = lines("a get at ").next()?;
    let p99_ms: f64 = line.split("p99 ").nth(1)?.split(' ').next()?.parse().ok()?;
    Some(Found { figure: format!("{p99_ms:.2}"), holds: p99_ms < MOST_P99_MS })
}

pub(crate) fn rotations(_: Effort) -> Option<Found> {
    let (figure, holds) = test("rejoin-cluster", "a_thousand_rotations")?;
    Some(Found { figure, holds })
}

/// The lines of the bench that begin so. The bench runs once.
fn lines(begin: &str) -> impl Iterator<Item = &'static str> {
    static SAID: OnceLock<String> = OnceLock::new();
    let bench = || {
        let mut bench = cargo("bench");
        bench.args(["--package", "rejoin-cluster", "--bench", "valkey"]);
        String::from_utf8_lossy(&bench.output().expect("cargo").stdout).into_owned()
    };
    SAID.get_or_init(bench).lines().filter(move |line| line.starts_with(begin))
}
