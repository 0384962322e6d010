//! Errors of settings, and of rings that come from elsewhere.

/// A schedule, label or ring that cannot be as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting outside its range.
    #[error("{name} is {value}: it must be between {least} and {most}")]
    OutOfRange {
        /// The setting's name.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The smallest allowed.
        least: u64,
        /// The largest allowed.
        most: u64,
    },
    /// Keys would be made faster than they may be forgotten.
    #[error(
        "tickets of {ticket_lifetime_s} s under keys that rotate every {rotate_every_s} s need \
         {keys} keys at a time, and a ring holds {most}: rotate less often"
    )]
    TooManyKeys {
        /// The lifetime of a ticket.
        ticket_lifetime_s: u64,
        /// The length of a key's turn.
        rotate_every_s: u64,
        /// Keys that would be alive at once.
        keys: u64,
        /// The most keys in a ring.
        most: usize,
    },
    /// Every place is taken by a key whose tickets are still alive.
    #[error("all {most} keys of the ring are in use: retire one, or wait until one expires")]
    RingFull {
        /// The most keys in a ring.
        most: usize,
    },
    /// The new key's secret is all zeros.
    #[error("the secret is all zeros: fill it from a random source for every rotation")]
    NoSecret,
    /// The new key's secret is in the ring.
    #[error("the secret is already in the ring: fill it from a random source for every rotation")]
    KnownSecret,
    /// Bytes that are not the name of a context.
    #[error("label of {length} bytes: between 1 and {longest}")]
    BadLabel {
        /// Its length.
        length: usize,
        /// The longest allowed.
        longest: usize,
    },
    /// A page that no ring was written to.
    #[error("not a ring of ticket keys: {reason}; write the page again")]
    BadPage {
        /// The reason.
        reason: &'static str,
    },
    /// A page of a later version of this library.
    #[error("ring of ticket keys in version {version}, and only version {known} is known: upgrade")]
    UnknownVersion {
        /// The version of the page.
        version: u32,
        /// The version that can be read.
        known: u32,
    },
}

impl Error {
    /// Refuses a value outside its range.
    ///
    /// # Errors
    /// [`Self::OutOfRange`].
    pub fn in_range(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), Self> {
        if (least..=most).contains(&value) {
            Ok(())
        } else {
            Err(Self::OutOfRange { name, value, least, most })
        }
    }
}
