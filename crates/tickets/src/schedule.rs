//! The times at which keys are made, used and wiped.
//!
//! ```text
//! made        encrypts                     opens only                                    wiped
//!  |-- lead --|-- rotate_every --|-- ticket_lifetime + 2 CLOCK_TOLERANCE --|
//! ```
//! The next key is made a *lead* before it encrypts, so that every server has it when the first
//! begins to use it. After its turn it opens tickets until the last one that it sealed expires.
//!
//! Each clock may be [`CLOCK_TOLERANCE_S`] off, ahead or behind, so two may be [`CLOCKS_APART_S`]
//! apart: the server that is behind may seal the last ticket of a turn, and the one
//! that is ahead may open it. Also, the server that is ahead uses a new key of the one that is behind that much
//! earlier than a lead after it was made. Where servers have clocks of their own, the lead must be longer than that
//! difference plus the interval at which they look for keys. On one machine all have the same clock, and any lead
//! works.

use crate::error::Error;

/// The most keys in a ring.
pub(crate) const MOST_KEYS: usize = 16;

/// The greatest error of a server's clock, ahead or behind, at which servers still open each other's tickets.
pub const CLOCK_TOLERANCE_S: u64 = 60;

/// The greatest difference of two servers' clocks that follows from it.
pub const CLOCKS_APART_S: u64 = 2 * CLOCK_TOLERANCE_S;

/// RFC 8446, section 4.6.1: servers must not use a lifetime of more than seven days.
pub const LONGEST_TICKET_LIFETIME_S: u64 = 7 * 24 * HOUR_S;

/// The longest turn of a key: 30 days. RFC 9325, section 3.3, recommends to change keys weekly.
const LONGEST_TURN_S: u64 = 30 * 24 * HOUR_S;

const HOUR_S: u64 = 3_600;

/// The schedule of a ring's keys. It is part of the ring, so all servers that share a ring have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    rotate_every_s: u64,
    ticket_lifetime_s: u64,
    lead_s: u64,
}

/// The use of a key at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// It opens tickets of a server whose clock is ahead, and will be the next to encrypt.
    Upcoming,
    /// It seals new tickets, and opens them. Exactly one key of a ring is in this state.
    Encrypting,
    /// It opens tickets from its turn.
    Opening,
    /// It has no use, and is to be wiped.
    Expired,
}

impl Schedule {
    /// Makes a schedule: a new key begins to encrypt every `rotate_every_s`, and is made `lead_s` before; a ticket can
    /// be used for `ticket_lifetime_s`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a ticket lifetime of none or more than seven days, a turn of more
    /// than thirty, a lead shorter than [`CLOCK_TOLERANCE_S`], or one as long as the turn. Servers
    /// whose clocks differ need a longer one: see the module's documentation.
    /// [`Error::TooManyKeys`] when a ring could not hold all keys that are alive at once.
    pub fn new(rotate_every_s: u64, ticket_lifetime_s: u64, lead_s: u64) -> Result<Self, Error> {
        const SHORTEST_TURN_S: u64 = CLOCK_TOLERANCE_S + 1;
        Error::in_range("ticket_lifetime_s", ticket_lifetime_s, 1, LONGEST_TICKET_LIFETIME_S)?;
        Error::in_range("rotate_every_s", rotate_every_s, SHORTEST_TURN_S, LONGEST_TURN_S)?;
        Error::in_range("lead_s", lead_s, CLOCK_TOLERANCE_S, rotate_every_s - 1)?;
        let schedule = Self { rotate_every_s, ticket_lifetime_s, lead_s };
        let (keys, most) = (schedule.most_keys(), MOST_KEYS);
        if keys > most as u64 {
            return Err(Error::TooManyKeys { ticket_lifetime_s, rotate_every_s, keys, most });
        }
        Ok(schedule)
    }

    /// Makes a schedule with the usual lead: an hour, or half a turn if that is shorter.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn with_usual_lead(rotate_every_s: u64, ticket_lifetime_s: u64) -> Result<Self, Error> {
        let lead_s = (rotate_every_s / 2).clamp(CLOCK_TOLERANCE_S, HOUR_S);
        Self::new(rotate_every_s, ticket_lifetime_s, lead_s)
    }

    /// The length of a key's turn, in seconds: 12 hours by default.
    pub fn rotate_every_s(&self) -> u64 {
        self.rotate_every_s
    }

    /// The lifetime of a ticket, in seconds: 24 hours by default.
    pub fn ticket_lifetime_s(&self) -> u64 {
        self.ticket_lifetime_s
    }

    /// The time from a key's making to its turn, in seconds: an hour by default.
    pub fn lead_s(&self) -> u64 {
        self.lead_s
    }

    /// The time after its turn in which a key opens tickets, in seconds.
    pub(crate) fn opens_for_s(&self) -> u64 {
        self.ticket_lifetime_s + CLOCKS_APART_S
    }

    /// The number of keys whose tickets are alive, with the one that encrypts, and the next.
    fn most_keys(&self) -> u64 {
        self.opens_for_s().div_ceil(self.rotate_every_s) + 2
    }
}

/// A change of a ring's schedule: the figures that are given. The others stay the ring's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reschedule {
    rotate_every_s: Option<u64>,
    ticket_lifetime_s: Option<u64>,
    lead_s: Option<u64>,
}

impl Reschedule {
    /// Changes these figures. A turn of another length has the usual lead.
    pub fn new(rotate_every_s: Option<u64>, ticket_lifetime_s: Option<u64>) -> Self {
        Self { rotate_every_s, ticket_lifetime_s, lead_s: None }
    }

    /// Checks the figures that are given. Together with a ring's own they may still not fit.
    ///
    /// # Errors
    /// Those of [`Schedule::new`], if the figures fit no ring.
    pub fn check(&self) -> Result<(), Error> {
        let widest = Self {
            rotate_every_s: self.rotate_every_s.or(Some(LONGEST_TURN_S)),
            ticket_lifetime_s: self.ticket_lifetime_s.or(Some(1)),
            lead_s: self.lead_s,
        };
        widest.of(&Schedule::default()).map(drop)
    }

    /// Returns the schedule with the change.
    ///
    /// # Errors
    /// Those of [`Schedule::new`].
    pub fn of(&self, schedule: &Schedule) -> Result<Schedule, Error> {
        let rotate_every_s = self.rotate_every_s.unwrap_or(schedule.rotate_every_s);
        let lifetime_s = self.ticket_lifetime_s.unwrap_or(schedule.ticket_lifetime_s);
        match self.lead_s {
            Some(lead_s) => Schedule::new(rotate_every_s, lifetime_s, lead_s),
            None if rotate_every_s == schedule.rotate_every_s => {
                Schedule::new(rotate_every_s, lifetime_s, schedule.lead_s)
            }
            None => Schedule::with_usual_lead(rotate_every_s, lifetime_s),
        }
    }
}

impl From<Schedule> for Reschedule {
    fn from(schedule: Schedule) -> Self {
        let Schedule { rotate_every_s, ticket_lifetime_s, lead_s } = schedule;
        Self {
            rotate_every_s: Some(rotate_every_s),
            ticket_lifetime_s: Some(ticket_lifetime_s),
            lead_s: Some(lead_s),
        }
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self { rotate_every_s: 12 * HOUR_S, ticket_lifetime_s: 24 * HOUR_S, lead_s: HOUR_S }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        let default = Schedule::default();
        assert_eq!(Schedule::new(12 * HOUR_S, 24 * HOUR_S, HOUR_S), Ok(default));
        let refused = |rotate, lifetime, lead| match Schedule::new(rotate, lifetime, lead) {
            Err(Error::OutOfRange { name, .. }) => name,
            Err(Error::TooManyKeys { .. }) => "keys",
            _ => "nothing",
        };
        assert_eq!(refused(HOUR_S, LONGEST_TICKET_LIFETIME_S + 1, 60), "ticket_lifetime_s");
        assert_eq!(refused(HOUR_S, 0, 60), "ticket_lifetime_s");
        assert_eq!(refused(60, 60, 60), "rotate_every_s");
        assert_eq!(refused(u64::MAX, 60, 60), "rotate_every_s");
        assert_eq!(refused(HOUR_S, HOUR_S, HOUR_S), "lead_s");
        assert_eq!(refused(HOUR_S, HOUR_S, 59), "lead_s");
        assert_eq!(refused(HOUR_S, 14 * HOUR_S, 60), "keys");
        assert_eq!(refused(HOUR_S, 13 * HOUR_S, 60), "nothing");
        assert_eq!(refused(12 * HOUR_S + 60, LONGEST_TICKET_LIFETIME_S, HOUR_S), "nothing");
    }

    #[test]
    fn a_figure_alone_is_refused_if_it_fits_no_ring() {
        let turn = |turn_s| Reschedule::new(Some(turn_s), None).check().is_ok();
        assert_eq!(
            [60, 61, LONGEST_TURN_S, LONGEST_TURN_S + 1].map(turn),
            [false, true, true, false]
        );
        let lifetime = |lifetime_s| Reschedule::new(None, Some(lifetime_s)).check().is_ok();
        let longest_s = LONGEST_TICKET_LIFETIME_S;
        assert_eq!([0, 1, longest_s, longest_s + 1].map(lifetime), [false, true, true, false]);
        let both = |turn_s, lifetime_s| Reschedule::new(Some(turn_s), Some(lifetime_s)).check();
        assert!(both(HOUR_S, 13 * HOUR_S).is_ok() && both(HOUR_S, 14 * HOUR_S).is_err());
        assert!(Reschedule::default().check().is_ok());
    }
}
