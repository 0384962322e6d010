//! The errors of this crate.

use std::io;
use std::path::PathBuf;

use crate::protocol::{EarlyData, ErrorKind, Malformed, Problem};

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No manager listens.
    #[error("{} {}: {}: {source}", unreached(source).0, socket.display(), unreached(source).1)]
    NotRunning {
        /// The first socket that was tried.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The program does not believe who listens, and has said nothing.
    #[error(
        "the manager at {} is not believed: {why}; start one as this user or as root, name its user in {}, or connect \
         directly", socket.display(), crate::CLIENT_SETTINGS
    )]
    Untrusted {
        /// The first socket that was tried.
        socket: PathBuf,
        /// The reason.
        why: String,
    },
    /// The manager refused the request.
    #[error("{}; {}{}", .0.detail, .0.remedy, left_early(.0))]
    Refused(Problem),
    /// The manager has ended, or does not answer.
    #[error("the manager does not answer: look whether `rejoin manager` still runs: {0}")]
    Silent(#[from] io::Error),
    /// The request or the answer is malformed.
    #[error("the message to or from the manager is wrong: {0}")]
    Malformed(#[from] Malformed),
    /// The socket that the program passes is none, or is closed. Nothing was asked for.
    #[error("the socket cannot be passed to the manager: {0}")]
    Unpassable(io::Error),
    /// The answer is of another kind than the request.
    #[error("the manager answered something else: it is of another version than this program")]
    OtherAnswer,
}

impl Error {
    /// Returns true if 0-RTT data may have reached the server nevertheless. The server may then act twice if it is sent
    /// again.
    pub fn early_data_may_have_left(&self) -> bool {
        match self {
            Self::NotRunning { .. }
            | Self::Untrusted { .. }
            | Self::Malformed(_)
            | Self::Unpassable(_) => false,
            Self::Refused(problem) => problem.early_data == Some(EarlyData::Sent),
            Self::Silent(_) | Self::OtherAnswer => true,
        }
    }

    /// Returns true if the manager itself failed, so that a direct connection may succeed.
    pub fn is_the_managers(&self) -> bool {
        match self {
            Self::NotRunning { .. }
            | Self::Untrusted { .. }
            | Self::Silent(_)
            | Self::OtherAnswer => true,
            Self::Malformed(_) | Self::Unpassable(_) => false,
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

/// Returns the reason why no manager was reached, and the remedy.
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
