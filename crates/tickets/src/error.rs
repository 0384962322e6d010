//! What can go wrong with settings, and with rings that come from elsewhere.

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
        /// How long a ticket may be used.
        ticket_lifetime_s: u64,
        /// How often keys rotate.
        rotate_every_s: u64,
        /// Keys that would be alive at once.
        keys: u64,
        /// What a ring holds.
        most: usize,
    },
    /// Every place is taken by a key whose tickets are still alive.
    #[error("all {most} keys of the ring are in use: retire one, or wait until one expires")]
    RingFull {
        /// What a ring holds.
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
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A page of a later version of this library.
    #[error("ring of ticket keys in version {version}, and only version {known} is known: upgrade")]
    UnknownVersion {
        /// What the page says.
        version: u32,
        /// What can be read.
        known: u32,
    },
}
