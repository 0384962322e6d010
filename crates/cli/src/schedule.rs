//! The schedule of ticket keys, as several commands take it.

use rejoin_tickets::Schedule;

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
    /// Returns the schedule, if any of it is given.
    pub(crate) fn schedule(&self) -> Result<Option<Schedule>, Misuse> {
        let Self { rotate_every, ticket_lifetime } = self;
        if rotate_every.is_none() && ticket_lifetime.is_none() {
            return Ok(None);
        }
        let usual = Schedule::default();
        let seconds = |given: &Option<Time>, usual_s| given.map_or(usual_s, |time| time.ms / 1_000);
        let rotate_every_s = seconds(rotate_every, usual.rotate_every_s());
        let lifetime_s = seconds(ticket_lifetime, usual.ticket_lifetime_s());
        let schedule = Schedule::with_usual_lead(rotate_every_s, lifetime_s);
        schedule
            .map(Some)
            .map_err(|error| Misuse(format!("--rotate-every, --ticket-lifetime: {error}")))
    }
}
