//! The losses over a version.

use super::Loss;
use super::machines::{held, is_refused};
use crate::facts::{AddressFacts, Crossing, Facts, Way, WayFacts};

/// Computes what is lost over a version.
pub(super) fn loss(facts: &Facts, version: &'static str) -> Loss {
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| way.version() == version).collect();
    let is_open = ways.iter().any(|way| is_crossing_open(facts, *way));
    let measured = ways.iter().flat_map(|way| facts.of_way(*way)).find_map(|(_, facts)| {
        let (full, resumed) = (facts.full?, facts.resumed?);
        Some((
            full.bytes.saturating_sub(resumed.bytes),
            full.round_trips.saturating_sub(resumed.round_trips),
        ))
    });
    Loss {
        version,
        resuming_share: resuming_share(facts, &ways).filter(|_| !is_open),
        bytes: measured.map(|(bytes, _)| bytes),
        round_trips: measured.map(|(_, round_trips)| round_trips),
    }
}

/// Returns the share of returns that resume by one of these ways, if each goes to any of the addresses. A pair of addresses
/// that was not tried counts as the mean of those that were.
pub(super) fn resuming_share(facts: &Facts, ways: &[Way]) -> Option<f64> {
    let mean = |shares: Vec<f64>| {
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    };
    let of_way = |facts: &WayFacts| match facts.issued {
        Some(false) => Some(0.0),
        _ => facts.at_once.share(),
    };
    // Who has a ticket has no session id.
    let gives_tickets = |at: &AddressFacts| {
        let given = |facts: &WayFacts| facts.way == Way::Tickets && facts.issued == Some(true);
        ways.contains(&Way::Tickets) && at.ways.iter().any(given)
    };
    let of_address = |at: &AddressFacts| {
        let known = at.ways.iter().filter(|facts| ways.contains(&facts.way));
        let held = known.filter(|facts| facts.way != Way::Ids || !gives_tickets(at));
        held.filter_map(of_way).reduce(f64::max)
    };
    let known = facts.addresses.iter().filter_map(|at| Some((at, of_address(at)?)));
    let (known, own): (Vec<_>, Vec<_>) = known.unzip();
    let count = own.len() as f64;
    let own = mean(own)?;
    let pairs = known.iter().flat_map(|from| known.iter().map(move |to| (*from, *to)));
    let pairs = pairs.filter(|(from, to)| from.address != to.address);
    let of_pair = |(from, to)| {
        let held = ways.first().and_then(|way| held(from, way.version()));
        let of_held = ways.iter().filter(|way| held.is_none_or(|held| held == **way));
        let known = of_held.filter_map(|way| across(facts, from, to, *way));
        known.reduce(f64::max)
    };
    let across = mean(pairs.filter_map(of_pair).collect());
    let across = across.unwrap_or(if count > 1.0 { 0.0 } else { own });
    Some((own + (count - 1.0) * across) / count)
}

/// Returns the share of an address's sessions that resume at another one.
fn across(facts: &Facts, from: &AddressFacts, to: &AddressFacts, way: Way) -> Option<f64> {
    let is_this = |crossing: &&Crossing| {
        (crossing.from, crossing.to, crossing.way) == (from.address, to.address, way)
    };
    // The last of several tries counts for all of them: the first to resume ends them.
    let tried = facts.crossings.iter().find(is_this);
    let tried = tried.map(|crossing| f64::from(crossing.tally.resumed.min(1)));
    // Nothing is offered to another address where one of both takes nothing.
    let is_refused = |at: &AddressFacts| at.ways.iter().any(|of| of.way == way && is_refused(of));
    tried.or_else(|| (is_refused(from) || is_refused(to)).then_some(0.0))
}

/// Returns true if all crossings that were due are open, so that there is no mean of others.
fn is_crossing_open(facts: &Facts, way: Way) -> bool {
    let is_tried = facts.crossings.iter().any(|crossing| crossing.way == way);
    !is_tried && facts.crossings_not_tried.iter().any(|pair| pair.way == way)
}
