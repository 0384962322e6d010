//! Early data and its copies, at each address.

use std::net::SocketAddr;

use super::{MISSES, Place, Probe, Study, TRIES};
use crate::connection::{Failure, Tickets, Wanted};
use crate::facts::{Replay, Way};
use crate::heard::{Mode, Token};
use crate::replay::{Fate, Flight};

/// The copies of a first flight to the address that answered it, at least.
const COPIES: u32 = 4;

impl Probe<'_> {
    /// Sends early data to each address whose sessions allow it, and copies to all.
    pub(super) fn replays(&mut self, places: &mut [Place]) {
        let mut addresses: Vec<SocketAddr> = places.iter().map(|place| place.address).collect();
        for place in places {
            let tls13 = place.study(Way::Tls13);
            let bytes = tls13.and_then(|facts| {
                if facts.spoken == Some(false) { Some(0) } else { facts.early_data_bytes }
            });
            place.facts.replay = match bytes {
                Some(0) => Some(Replay::default()),
                Some(_) => self.replay(&addresses),
                None => None,
            };
            // The place's own address comes first.
            addresses.rotate_left(1);
        }
    }

    /// Sends early data to the first address until it is answered, and copies of it to all. `None`: no session came.
    ///
    /// A session that is not taken is offered again, and copies come once more to the machine that answered, where so many
    /// take turns.
    fn replay(&mut self, addresses: &[SocketAddr]) -> Option<Replay> {
        let (own, mut scratch) = (*addresses.first()?, Study::new(Way::Tls13));
        let (mut found, mut kept) = (Replay::default(), None);
        while found.sent < TRIES && found.untaken < MISSES {
            let Some(token) = kept.take().or_else(|| self.full(own, &mut scratch)) else { break };
            let Ok(fate) = self.send_early(own, &token) else { break };
            if matches!(fate, Fate::Untaken) {
                found.untaken += 1;
                kept = Some(token);
                continue;
            }
            found.sent += 1;
            found.accepted += u32::from(!matches!(fate, Fate::Rejected));
            match fate {
                Fate::Untaken | Fate::Rejected => continue,
                Fate::Unanswered => {}
                Fate::TooEarly => found.too_early += 1,
                Fate::Answered(flight) => {
                    found.answered += 1;
                    self.copies(&flight, addresses, &mut found);
                }
            }
            break;
        }
        (found != Replay::default()).then_some(found)
    }

    fn send_early(&mut self, address: SocketAddr, token: &Token) -> Result<Fate, Failure> {
        self.spend(address)?;
        let wanted = Wanted {
            address,
            context: &self.contexts[&Mode::Tls13],
            name: self.host(),
            token: Some(token),
            deadline: self.settings.deadline,
            stop: self.watch.stop,
            tickets: Tickets::None,
        };
        wanted.send_early()
    }

    /// Sends a flight again, most often to the address where it was answered.
    fn copies(&mut self, flight: &Flight, addresses: &[SocketAddr], found: &mut Replay) {
        let count = COPIES.max(found.untaken + 1) as usize;
        let own = addresses.iter().take(1).cycle().take(count - 1);
        for address in own.chain(addresses) {
            if self.spend(*address).is_err() {
                break;
            }
            let (deadline, stop) = (self.settings.deadline, self.watch.stop);
            if let Ok(is_answered) = flight.is_answered_again(*address, deadline, stop) {
                found.copies += 1;
                found.copies_answered += u32::from(is_answered);
            }
        }
    }
}
