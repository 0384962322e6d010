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

    /// Finds machines of which one takes what the other does not.
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

/// Returns the pairs of addresses that both resume over a version, by no way that is the same.
fn pairs_apart<'f>(
    facts: &'f Facts,
    version: &'static str,
) -> Vec<(&'f AddressFacts, &'f AddressFacts)> {
    let is_apart = |a: &AddressFacts, b: &AddressFacts| {
        let takes = |at| of_version(at, version).any(WayFacts::is_taken);
        let refuses =
            |at, way| of_version(at, version).any(|facts| facts.way == way && is_refused(facts));
        let taken_by_one = |one, other| {
            let mut taken = of_version(one, version).filter(|facts| facts.is_taken());
            taken.all(|facts| refuses(other, facts.way))
        };
        takes(a) && takes(b) && taken_by_one(a, b) && taken_by_one(b, a)
    };
    let all = facts.addresses.iter().enumerate();
    let pairs = all.flat_map(|(at, b)| facts.addresses[..at].iter().map(move |a| (a, b)));
    pairs.filter(|(a, b)| is_apart(a, b)).collect()
}

fn of_version<'f>(
    at: &'f AddressFacts,
    version: &'static str,
) -> impl Iterator<Item = &'f WayFacts> {
    at.ways.iter().filter(move |facts| facts.way.version() == version)
}

/// Returns true if an address is known to take no session this way.
pub(super) fn is_refused(facts: &WayFacts) -> bool {
    facts.issued == Some(false) || facts.at_once.is_naught() && !is_apart(facts)
}
