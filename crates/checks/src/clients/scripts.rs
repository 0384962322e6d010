//! The programs' behaviour with Rejoin and without, and the sessions that they share.

use super::{Effort, Found};
use crate::frame::test;
use rejoin_testkit::clients::matrix;
use rejoin_testkit::clients::sharing::Shared;
use rejoin_testkit::clients::world::World;

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
    tests(&[
        "clients::security",
        "programs::programs_hold_no_secret",
        "programs::the_search_finds_secrets",
    ])
}

pub(crate) fn trouble(_: Effort) -> Option<Found> {
    tests(&["clients::trouble"])
}

/// The tests of the command whose names contain one of these.
fn tests(names: &[&str]) -> Option<Found> {
    let results = names.iter().map(|name| test("rejoin-cli", name)).collect::<Option<Vec<_>>>()?;
    let holds = results.iter().all(|(_, passed)| *passed);
    let figures: Vec<_> = results.into_iter().map(|(figure, _)| figure).collect();
    Some(Found { figure: figures.join("; "), holds })
}
