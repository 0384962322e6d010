//! The findings between machines.

use super::{Cause, Seen, Severity, is_apart, is_breaking};
use crate::facts::{AddressFacts, Crossing, Facts, Way, WayFacts};

impl Seen<'_> {
    /// Finds connections that fail where they offer the session of another machine.
    pub(super) fn broken_crossings(&mut self) {
        for Crossing { from, to, way, tally } in &self.facts.crossings {
            let to_at = self.facts.addresses.iter().find(|at| at.address == *to);
            let (severity, cause) = match to_at.is_some_and(|at| is_breaking(at, *tally)) {
                _ if tally.broken == 0 => continue,
                true => (Severity::Broken, Cause::OfferBreaks),
                false => (Severity::Risk, Cause::HandshakesFail),
            };
            let text = format!(
                "TLS {}, {}: {} of {} connections to {to} failed that offered a session of {from}.",
                way.version(),
                way.token(),
                tally.broken,
                tally.tried
            );
            self.add(severity, cause, Some(*way), text);
        }
    }

    pub(super) fn crossings(&mut self) {
        for way in Way::ALL {
            let all = self.facts.crossings.iter().filter(|crossing| crossing.way == way);
            let whole = |address| {
                let mut of_way = self.facts.of_way(way);
                of_way.any(|(at, facts)| at.address == address && facts.at_once.is_whole())
            };
            // Where a machine's own workers differ, a miss proves nothing.
            let missed = all.clone().filter(|crossing| {
                crossing.tally.is_naught() && whole(crossing.from) && whole(crossing.to)
            });
            let missed: Vec<&Crossing> = missed.collect();
            let Some(first) = missed.first() else { continue };
            let text = format!(
                "TLS {}, {}: in {} of {} directions between machines nothing resumed ({} to {} was one).",
                way.version(),
                way.token(),
                missed.len(),
                all.count(),
                first.from,
                first.to
            );
            let is_minor = way == Way::Ids && self.facts.all_tickets_cross();
            let severity = if is_minor { Severity::Note } else { Severity::Loss };
            self.add(severity, Cause::MachinesApart, Some(way), text);
        }
    }

    /// Finds machines of which one takes what the other does not: each of a pair, or one alone.
    pub(super) fn ways_apart(&mut self) {
        for version in ["1.2", "1.3"] {
            let pairs = pairs_apart(self.facts, version);
            let Some((a, b)) = pairs.first() else { continue };
            let tokens = |at: &AddressFacts| {
                let taken = of_version(at, version).filter(|facts| facts.is_taken());
                taken.map(|facts| facts.way.token()).collect::<Vec<_>>().join(" and ")
            };
            let text = format!(
                "TLS {version}: {} resumes by {} only, {} by {} only, and nothing of each other ({} of {} pairs of \
                 machines).",
                a.address,
                tokens(a),
                b.address,
                tokens(b),
                pairs.len(),
                self.facts.addresses.len() * (self.facts.addresses.len() - 1) / 2
            );
            self.add(Severity::Loss, Cause::MachinesApart, Some(Way::Tickets), text);
        }
        for version in ["1.2", "1.3"] {
            let lost = one_way(self.facts, version);
            let Some((from, to, way)) = lost.first() else { continue };
            let count = self.facts.addresses.len();
            let text = format!(
                "TLS {version}: {} gives its clients a {}, and {} takes none, but resumes its own sessions ({} of {} \
                 directions between machines).",
                from.address,
                way.token(),
                to.address,
                lost.len(),
                count * (count - 1)
            );
            self.add(Severity::Loss, Cause::MachinesApart, Some(*way), text);
        }
    }

    /// Finds machines between which clients of both versions change the version, and so cannot resume.
    pub(super) fn versions_apart(&mut self) {
        let is = |spoken| {
            let mut all = self.facts.of_way(Way::Tls13);
            all.find(|(_, facts)| facts.spoken == Some(spoken)).map(|(at, _)| at.address)
        };
        if let (Some(with), Some(without)) = (is(true), is(false)) {
            let text = format!(
                "TLS 1.3 is spoken at {with}, and not at {without}. Clients of both versions change the version between \
                 them, and then no session resumes."
            );
            self.add(Severity::Loss, Cause::VersionsApart, Some(Way::Tls13), text);
        }
    }
}

/// Returns the pairs of addresses that both resume over a version, and nothing of each other.
fn pairs_apart<'f>(
    facts: &'f Facts,
    version: &'static str,
) -> Vec<(&'f AddressFacts, &'f AddressFacts)> {
    let all = facts.addresses.iter().enumerate();
    let pairs = all.flat_map(|(at, b)| facts.addresses[..at].iter().map(move |a| (a, b)));
    let is_apart = |a, b| refused(a, b, version).is_some() && refused(b, a, version).is_some();
    pairs.filter(|(a, b)| is_apart(*a, *b)).collect()
}

/// Returns the directions in which a version's sessions are refused though both addresses have a way that is the same, with
/// what is refused.
fn one_way<'f>(
    facts: &'f Facts,
    version: &'static str,
) -> Vec<(&'f AddressFacts, &'f AddressFacts, Way)> {
    let all = facts.addresses.iter();
    let pairs = all.flat_map(|from| facts.addresses.iter().map(move |to| (from, to)));
    let refused = pairs.filter_map(|(from, to)| {
        let way = refused(from, to, version)?;
        let same = held(to, version);
        let is_same = |facts: &WayFacts| Some(facts.way) == same && facts.is_taken();
        of_version(from, version).any(is_same).then_some((from, to, way))
    });
    refused.collect()
}

/// Returns the way by which clients come from an address, if another one resumes, and not by it.
fn refused(from: &AddressFacts, to: &AddressFacts, version: &'static str) -> Option<Way> {
    let way = held(from, version)?;
    let is_refused = of_version(to, version).any(|facts| facts.way == way && is_refused(facts));
    (held(to, version).is_some() && is_refused).then_some(way)
}

/// Returns the way in which clients of an address return that take all it gives: a ticket counts, and then no session id.
pub(super) fn held(at: &AddressFacts, version: &str) -> Option<Way> {
    let taken = of_version(at, version).filter(|facts| facts.is_taken()).map(|facts| facts.way);
    taken.max_by_key(|way| *way != Way::Ids)
}

fn of_version<'f>(at: &'f AddressFacts, version: &'f str) -> impl Iterator<Item = &'f WayFacts> {
    at.ways.iter().filter(move |facts| facts.way.version() == version)
}

/// Returns true if an address is known to take no session this way.
pub(super) fn is_refused(facts: &WayFacts) -> bool {
    facts.issued == Some(false) || facts.at_once.is_naught() && !is_apart(facts)
}
