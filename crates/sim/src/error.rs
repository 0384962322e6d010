//! Why a simulation cannot be run.

use crate::policy::UnknownPolicy;
use crate::subject::Subject;

/// A plan that makes no sense, or arrivals that cannot be read. One line each; the caller knows
/// the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No policy has this name.
    #[error(transparent)]
    UnknownPolicy(#[from] UnknownPolicy),
    /// Text that is no TOML, or has keys or types that no plan has.
    #[error("line {line}: {what}")]
    BadPlan {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A value that is well-formed and cannot be.
    #[error("{key}: {what}")]
    BadValue {
        /// Where it is in the plan.
        key: String,
        /// What is wrong with it, and what would be right.
        what: String,
    },
    /// A group of clients that cannot be.
    #[error("group {name:?}: {cause}")]
    BadGroup {
        /// The group's name.
        name: String,
        /// What is wrong with it.
        cause: rejoin_trace::Error,
    },
    /// A cache that cannot be made.
    #[error("{policy} with {capacity} sessions: {cause}")]
    Cache {
        /// The policy.
        policy: Subject,
        /// Its capacity.
        capacity: u32,
        /// What is wrong with it.
        cause: rejoin_cache::Error,
    },
    /// More clients than can be told apart.
    #[error("more than {most} clients: take a part of the trace")]
    TooManyClients {
        /// As many as there may be.
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
    /// The arrivals cannot be opened.
    #[error("cannot be opened: {0}")]
    Open(std::io::Error),
    /// The arrivals cannot be read.
    #[error(transparent)]
    Trace(#[from] rejoin_trace::Error),
    /// A thread of the simulation ended in a panic, which is a fault of this program.
    #[error("a thread of the simulation panicked: please report it")]
    Panicked,
}

impl Error {
    /// Whether what was asked for is wrong, and not what happened.
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
