//! What programs do, and what they share.

use crate::checks::cargo;
use crate::matrix;
use crate::sharing::Shared;
use crate::world::World;
use crate::{Effort, Found};

pub(crate) fn all(_: Effort) -> Option<Found> {
    let results = matrix::run(&World::new("check-scripts"));
    let wrong = results.iter().filter(|tried| !tried.holds());
    let named = wrong.map(|tried| {
        format!("; {} {} at {} {:?}", tried.case.program, tried.case.what, tried.server, tried.tls)
    });
    let named: Vec<_> = named.collect();
    let figure = format!("{} of {}{}", results.len() - named.len(), results.len(), named.concat());
    Some(Found { figure, holds: named.is_empty() })
}

pub(crate) fn sharing(_: Effort) -> Option<Found> {
    let world = World::new("check-sharing");
    let shared: Vec<_> =
        world.servers.iter().map(|service| Shared::by(&world, service).holds()).collect();
    let good = shared.iter().filter(|holds| **holds).count();
    let figure = format!("{good} of {} services", shared.len());
    Some(Found { figure, holds: good == shared.len() })
}

pub(crate) fn security(_: Effort) -> Option<Found> {
    tests(&[("clients", "security"), ("programs", "secret")])
}

pub(crate) fn trouble(_: Effort) -> Option<Found> {
    tests(&[("clients", "trouble")])
}

/// Of this package: those of a file whose names have this in them.
fn tests(all: &[(&str, &str)]) -> Option<Found> {
    let (mut figures, mut holds) = (Vec::new(), true);
    for (file, name) in all {
        let mut tests = cargo("test");
        tests.args(["--package", "rejoin-cli", "--test", file, name]);
        let said = String::from_utf8(tests.output().ok()?.stdout).ok()?;
        let result = said.lines().find_map(|line| line.strip_prefix("test result: "))?;
        holds &= result.starts_with("ok.");
        figures.push(result.split(';').take(2).collect::<String>());
    }
    Some(Found { figure: figures.join(", "), holds })
}
