//! The schedule of ticket keys, as several commands take it.

use rejoin_tickets::{Reschedule, Schedule};

use crate::arguments::Misuse;
use crate::units::Time;

/// `--rotate-every` and `--ticket-lifetime`.
#[derive(Debug, clap::Args)]
pub(crate) struct Turns {
    /// The time for which a ticket key encrypts [default: the ring's own, or 12h for a new one]
    #[arg(long, value_name = "TIME")]
    rotate_every: Option<Time>,
    /// The time for which a ticket can be used [default: the ring's own, or 24h for a new one]
    #[arg(long, value_name = "TIME")]
    ticket_lifetime: Option<Time>,
}

impl Turns {
    /// Returns what is given. The rest stays the ring's own.
    pub(crate) fn change(&self) -> Result<Reschedule, Misuse> {
        let seconds = |given: Option<Time>| given.map(|time| time.ms / 1_000);
        let [rotate_every_s, lifetime_s] = [self.rotate_every, self.ticket_lifetime].map(seconds);
        let change = Reschedule::new(rotate_every_s, lifetime_s);
        // One alone may fit the ring's own figures where it does not fit the usual ones.
        if rotate_every_s.is_some() && lifetime_s.is_some() {
            let refused = |error| Misuse(format!("--rotate-every, --ticket-lifetime: {error}"));
            change.of(&Schedule::default()).map_err(refused)?;
        }
        Ok(change)
    }
}
