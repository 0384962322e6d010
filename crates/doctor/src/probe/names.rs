//! Other names of the server, and none.

use std::net::SocketAddr;

use super::{Place, Probe, TRIES, mode, session};
use crate::connection::Failure;
use crate::facts::{NameFacts, Way};
use crate::settings::Host;

/// A session that was made under one name and offered under another: it resumed or not, or none was issued.
type Outcome = Result<Option<bool>, Failure>;

impl Probe<'_> {
    /// Tries other names, and none, at the first address that answers.
    pub(super) fn names(&mut self, places: &[Place]) -> Vec<NameFacts> {
        let Some(place) = places.iter().find(|place| place.facts.failure.is_none()) else {
            return Vec::new();
        };
        let is_named = matches!(self.settings.target.host, Host::Name(_));
        let nameless = is_named.then_some(None);
        let names = nameless.into_iter().chain(self.settings.names.iter().cloned().map(Some));
        let found = names.flat_map(|name| self.name(place, name.as_ref())).collect();
        // A name without tickets says nothing of the first one.
        self.tickets.remove(&place.address);
        found
    }

    fn name(&mut self, place: &Place, name: Option<&Host>) -> Vec<NameFacts> {
        let mut found: Vec<NameFacts> = Vec::new();
        for way in [Way::Tickets, Way::Ids, Way::Tls13] {
            let speaks = place.study(way).is_some_and(|facts| facts.spoken == Some(true));
            // A ticket tells it, where there is one.
            let told = way == Way::Ids
                && place.study(Way::Tickets).is_some_and(|facts| facts.at_once.resumed > 0)
                && found.iter().all(|facts| facts.issued != Some(false));
            if !speaks || told {
                continue;
            }
            let outcome = self.under(place.address, way, [name; 2]);
            let of_first = match outcome {
                Ok(_) => self.under(place.address, way, [self.host(), name]),
                Err(_) => Ok(None),
            };
            found.push(NameFacts {
                name: name.cloned(),
                way,
                issued: outcome.as_ref().ok().map(Option::is_some),
                own: outcome.as_ref().ok().copied().flatten(),
                of_first: of_first.ok().flatten(),
                failure: outcome.err(),
            });
        }
        found
    }

    /// Returns what most was found of the sessions of one name under another, in a few tries.
    fn under(&mut self, address: SocketAddr, way: Way, names: [Option<&Host>; 2]) -> Outcome {
        // A server without tickets may have some under another name.
        self.tickets.remove(&address);
        let mut best = self.once_under(address, way, names);
        for _ in 1..TRIES {
            if rank(&best) >= LAST {
                break;
            }
            let next = self.once_under(address, way, names);
            best = if rank(&next) > rank(&best) { next } else { best };
        }
        best
    }

    fn once_under(&mut self, address: SocketAddr, way: Way, names: [Option<&Host>; 2]) -> Outcome {
        let [first, then] = names;
        let made = self.connect(address, mode(way), first, None)?;
        let Some(token) = session(way, made) else { return Ok(None) };
        let made = self.connect(address, mode(way), then, Some(&token))?;
        Ok(Some(made.is_resumed))
    }
}

/// The least rank of an outcome after which nothing more can be learned.
const LAST: u8 = 3;

/// Returns how much an outcome tells, against others of the same names.
fn rank(outcome: &Outcome) -> u8 {
    match outcome {
        Err(failure) if failure.is_end() => LAST,
        Err(_) => 0,
        Ok(None) => 1,
        Ok(Some(false)) => 2,
        Ok(Some(true)) => 4,
    }
}
