//! The errors of simulations.

use crate::policy::UnknownPolicy;
use crate::subject::Subject;

/// An invalid plan, or arrivals that cannot be read. Each message has one line; the caller knows the
/// file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that no policy has.
    #[error(transparent)]
    UnknownPolicy(#[from] UnknownPolicy),
    /// Text that is no TOML, or has keys or types that no plan has.
    #[error("line {line}: {what}")]
    BadPlan {
        /// The line, counted from 1.
        line: usize,
        /// The fault.
        what: String,
    },
    /// A value that is well-formed but not allowed.
    #[error("{key}: {what}")]
    BadValue {
        /// Its place in the plan.
        key: String,
        /// The fault, and the remedy.
        what: String,
    },
    /// A group of clients whose settings are out of range.
    #[error("group {name:?}: {cause}")]
    BadGroup {
        /// The group's name.
        name: String,
        /// The fault.
        cause: rejoin_trace::Error,
    },
    /// A cache that cannot be made.
    #[error("{policy} with {capacity} sessions: {cause}")]
    Cache {
        /// The policy.
        policy: Subject,
        /// Its capacity.
        capacity: u32,
        /// The fault.
        cause: rejoin_cache::Error,
    },
    /// More clients than can be numbered.
    #[error("more than {most} clients: take a part of the trace")]
    TooManyClients {
        /// The most clients allowed.
        most: u32,
    },
    /// A time beyond those that the shipped cache can tell apart.
    #[error(
        "event {event} is at {time_ms} ms, more than 136 years: \
         give times in milliseconds, from the beginning of the trace"
    )]
    TooLate {
        /// The event, counted from 1.
        event: u64,
        /// Its time.
        time_ms: u64,
    },
    /// Arrivals that cannot be opened.
    #[error("cannot be opened: {0}")]
    Open(std::io::Error),
    /// Arrivals that cannot be read.
    #[error(transparent)]
    Trace(#[from] rejoin_trace::Error),
    /// A thread of the simulation that panicked, which is a fault of this program.
    #[error("a thread of the simulation panicked: please report it")]
    Panicked,
}

impl Error {
    /// Returns true if the request was wrong, rather than its execution.
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::UnknownPolicy(_)
            | Self::BadPlan { .. }
            | Self::BadValue { .. }
            | Self::BadGroup { .. } => true,
            Self::Cache { cause, .. } => !matches!(cause, rejoin_cache::Error::OutOfMemory { .. }),
            Self::TooManyClients { .. }
            | Self::TooLate { .. }
            | Self::Open(_)
            | Self::Trace(_)
            | Self::Panicked => false,
        }
    }
}
