//! Why there is no connection.

use std::io;
use std::path::PathBuf;

use crate::protocol::{EarlyData, ErrorKind, Malformed, Problem};

/// Why the manager gave no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens.
    #[error("{} {}: {}: {source}", unreached(source).0, socket.display(), unreached(source).1)]
    NotRunning {
        /// Where.
        socket: PathBuf,
        /// As the system says it.
        source: io::Error,
    },
    /// The manager says why.
    #[error("{}; {}{}", .0.detail, .0.remedy, left_early(.0))]
    Refused(Problem),
    /// The manager went away, or does not answer.
    #[error("the manager does not answer: look whether `rejoin manager` still runs: {0}")]
    Silent(#[from] io::Error),
    /// The request or the answer is none.
    #[error("the message to or from the manager is wrong: {0}")]
    Malformed(#[from] Malformed),
    /// An answer to something else.
    #[error("the manager answered something else: it is of another version than this program")]
    OtherAnswer,
}

impl Error {
    /// Whether 0-RTT data may have reached the server nevertheless: sending it again may have it act
    /// twice.
    pub fn early_data_may_have_left(&self) -> bool {
        match self {
            Self::NotRunning { .. } | Self::Malformed(_) => false,
            Self::Refused(problem) => problem.early_data == Some(EarlyData::Sent),
            Self::Silent(_) | Self::OtherAnswer => true,
        }
    }

    /// Whether the manager itself failed the program, so that a direct connection may do.
    pub fn is_the_managers(&self) -> bool {
        match self {
            Self::NotRunning { .. } | Self::Silent(_) | Self::OtherAnswer => true,
            Self::Malformed(_) => false,
            Self::Refused(problem) => matches!(
                problem.kind,
                ErrorKind::Busy
                    | ErrorKind::ShuttingDown
                    | ErrorKind::UnsupportedVersion
                    | ErrorKind::NotPermitted
                    | ErrorKind::NoSession
            ),
        }
    }
}

/// Why nobody was reached, and what helps.
fn unreached(source: &io::Error) -> (&'static str, &'static str) {
    match source.kind() {
        io::ErrorKind::PermissionDenied => (
            "`rejoin manager` does not let this user in at",
            "ask for its group, or connect directly",
        ),
        _ => {
            ("`rejoin manager` is not running: nobody listens at", "start it, or connect directly")
        }
    }
}

fn left_early(problem: &Problem) -> &'static str {
    match problem.early_data {
        Some(EarlyData::Sent) => "; 0-RTT data had been sent, and the server may have it",
        _ => "",
    }
}
