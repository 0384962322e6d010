//! The schedule of ticket keys, as several commands take it.

use rejoin_store::Store;
use rejoin_tickets::Reschedule;

use crate::arguments::Misuse;
use crate::terminal;
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
    ///
    /// # Errors
    /// The figures fit no ring.
    pub(crate) fn change(&self) -> Result<Reschedule, Misuse> {
        let seconds = |given: Option<Time>| given.map(|time| time.ms / 1_000);
        let [rotate_every_s, lifetime_s] = [self.rotate_every, self.ticket_lifetime].map(seconds);
        let change = Reschedule::new(rotate_every_s, lifetime_s);
        let refused = |error| Misuse(format!("--rotate-every, --ticket-lifetime: {error}"));
        change.check().map_err(refused)?;
        Ok(change)
    }
}

/// Says that a change is for nothing if the cache is a cluster's.
pub(crate) fn tell_of_cluster(store: &Store, change: Reschedule) {
    if store.mailbox().is_some() && change != Reschedule::default() {
        terminal::complain(&format!(
            "cache {} is a cluster's, whose settings have its schedule: --rotate-every and --ticket-lifetime change nothing",
            store.name()
        ));
    }
}
