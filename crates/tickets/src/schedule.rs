//! How long keys are made, used and kept.
//!
//! ```text
//! made        encrypts                     opens only                                    wiped
//!  |-- lead --|-- rotate_every --|-- ticket_lifetime + 2 CLOCK_TOLERANCE --|
//! ```
//! The next key is made a *lead* before it encrypts, so that every server has it when the first
//! begins to use it. After its turn it opens tickets until the last it sealed is over.
//!
//! Each clock may be [`CLOCK_TOLERANCE_S`] off, ahead or behind, so two may be [`CLOCKS_APART_S`]
//! apart: the last ticket of a turn may be sealed by the one that is behind, and opened by the one
//! that is ahead. And a key that the one behind made is used by the one ahead so much sooner than a
//! lead after: where servers have clocks of their own, the lead must be longer than that by what
//! it takes them to look. On one machine all have the same clock, and any lead will do.

use crate::error::Error;
use crate::ring::KeyRing;

/// How far the clock of a server may be off, ahead or behind, without it refusing what others sealed,
/// or others what it did.
pub const CLOCK_TOLERANCE_S: u64 = 60;

/// How far the clocks of two servers may be apart, then.
pub const CLOCKS_APART_S: u64 = 2 * CLOCK_TOLERANCE_S;

/// RFC 8446, section 4.6.1: servers must not use a lifetime of more than seven days.
pub const LONGEST_TICKET_LIFETIME_S: u64 = 7 * 24 * HOUR_S;

/// The longest turn of a key: 30 days. RFC 9325, section 3.3, would have them change weekly.
const LONGEST_TURN_S: u64 = 30 * 24 * HOUR_S;

const HOUR_S: u64 = 3_600;

/// See the module's documentation. All servers that share a ring have the same one, as it is part
/// of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    rotate_every_s: u64,
    ticket_lifetime_s: u64,
    lead_s: u64,
}

/// What a key is for at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// It opens what a server with a faster clock has sealed, and will be the next to encrypt.
    Upcoming,
    /// It seals new tickets, and opens them. Of the keys in a ring, always exactly one.
    Encrypting,
    /// It opens tickets from its turn.
    Opening,
    /// It is of no use, and to be wiped.
    Expired,
}

impl Schedule {
    /// A new key encrypts every `rotate_every_s`, and is made `lead_s` before; a ticket can be
    /// used for `ticket_lifetime_s`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a ticket lifetime of none or more than seven days, a turn of more
    /// than thirty, a lead shorter than [`CLOCK_TOLERANCE_S`], or one as long as the turn. Servers
    /// whose clocks differ need a longer one: see the module's documentation.
    /// [`Error::TooManyKeys`] when a ring could not hold all keys that are alive at once.
    pub fn new(rotate_every_s: u64, ticket_lifetime_s: u64, lead_s: u64) -> Result<Self, Error> {
        const SHORTEST_TURN_S: u64 = CLOCK_TOLERANCE_S + 1;
        within("ticket_lifetime_s", ticket_lifetime_s, 1, LONGEST_TICKET_LIFETIME_S)?;
        within("rotate_every_s", rotate_every_s, SHORTEST_TURN_S, LONGEST_TURN_S)?;
        within("lead_s", lead_s, CLOCK_TOLERANCE_S, rotate_every_s - 1)?;
        let schedule = Self { rotate_every_s, ticket_lifetime_s, lead_s };
        let (keys, most) = (schedule.most_keys(), KeyRing::MOST_KEYS);
        if keys > most as u64 {
            return Err(Error::TooManyKeys { ticket_lifetime_s, rotate_every_s, keys, most });
        }
        Ok(schedule)
    }

    /// How long one key encrypts, in seconds: 12 hours unless said otherwise.
    pub fn rotate_every_s(&self) -> u64 {
        self.rotate_every_s
    }

    /// How long a ticket may be used, in seconds: 24 hours unless said otherwise.
    pub fn ticket_lifetime_s(&self) -> u64 {
        self.ticket_lifetime_s
    }

    /// How long before its turn a key is made, in seconds: an hour unless said otherwise.
    pub fn lead_s(&self) -> u64 {
        self.lead_s
    }

    /// How long after its turn a key opens tickets, in seconds.
    pub(crate) fn opens_for_s(&self) -> u64 {
        self.ticket_lifetime_s + CLOCKS_APART_S
    }

    /// Those whose tickets are alive, the one that encrypts, and the next.
    fn most_keys(&self) -> u64 {
        self.opens_for_s().div_ceil(self.rotate_every_s) + 2
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self { rotate_every_s: 12 * HOUR_S, ticket_lifetime_s: 24 * HOUR_S, lead_s: HOUR_S }
    }
}

fn within(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Error::OutOfRange { name, value, least, most })
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
}
