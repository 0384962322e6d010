//! Errors of making a cache, and reasons for not storing a session.

/// The reason why a cache cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Less memory than one session needs.
    #[error(
        "capacity of {capacity_bytes} bytes cannot hold one session: give at least {needed_bytes} bytes"
    )]
    CapacityTooSmall {
        /// The capacity that was asked for.
        capacity_bytes: u64,
        /// The smallest capacity that works with these settings.
        needed_bytes: u64,
    },
    /// A capacity of no session at all.
    #[error("capacity of 0 sessions: give at least 1")]
    NoSessions,
    /// More sessions than a shard can address.
    #[error("{sessions} sessions in one shard: at most {limit}; use more shards")]
    ShardTooLarge {
        /// Sessions one shard would hold.
        sessions: u64,
        /// The most sessions that a shard can hold.
        limit: u64,
    },
    /// Memory that the operating system refused.
    #[error("no memory for a cache of {bytes} bytes: give a smaller capacity")]
    OutOfMemory {
        /// The size that one shard asked for.
        bytes: u64,
    },
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
    /// Bytes that are not a session id.
    #[error("session id of {length} bytes: TLS allows 1 to 32")]
    BadSessionId {
        /// Its length.
        length: usize,
    },
}

/// The reason why a session was not stored. Nothing fails: the client makes a full handshake next
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Every stored session returns sooner (Algorithm 1, line 9).
    #[error("every stored session returns sooner")]
    ReturnsLater,
    /// Its source has its share of the shard ([`Fairness`](crate::Fairness)), and no session of that source is worth less.
    #[error("its source has its share, and no session of that source is worth less")]
    SourceHasItsShare,
    /// The value is larger than the limit, or than the shard.
    #[error("the session is larger than allowed")]
    TooLarge,
    /// Its lifetime was over before it was stored.
    #[error("the session had expired before it was stored")]
    Expired,
    /// Its shard could not be locked in time.
    #[error("the shard could not be locked in time")]
    Unavailable,
}
