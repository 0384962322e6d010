//! The errors of this crate.

use std::fmt;
use std::io;
use std::path::PathBuf;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::link::is_denied;
use crate::{ClusterName, MachineName, NodeAddress, RekeyStep, SiteName};

/// An error of a cluster. None of them fails a handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Valkey is unreachable, or returned an error.
    #[error("Valkey: {}{}", .0, remedy(.0))]
    Valkey(#[from] RedisError),

    /// Valkey answers, and refuses to store sessions or to find them: it is full, or something else wrote to the cluster's keys.
    #[error("Valkey {what}: {cause}{}", remedy(cause))]
    Refused {
        /// The words for what it does not do.
        what: &'static str,
        /// Its answer.
        cause: RedisError,
    },

    /// Two servers say that they are the primary, and one of them is in use.
    #[error(
        "{used} and {other} both say that they are the primary: {used} stays in use here, and agents and commands that \
         start now use neither; make {other} a replica (REPLICAOF), unless it is to be the primary"
    )]
    TwoPrimaries {
        /// The one in use.
        used: NodeAddress,
        /// The other one.
        other: NodeAddress,
    },

    /// Valkey did not answer in time.
    #[error("Valkey did not answer in time")]
    NoAnswer,

    /// An error of another site's Valkey.
    #[error("site {site}: {cause}")]
    AtSite {
        /// The site.
        site: SiteName,
        /// The error.
        cause: Box<Self>,
    },

    /// Another agent serves the machine's cache.
    #[error("another agent serves cache {name}: stop it first")]
    OtherAgent {
        /// The cache's name.
        name: rejoin_store::CacheName,
    },

    /// The machine's cache was removed.
    #[error("cache {name} was removed: restart the agent, then the servers")]
    CacheRemoved {
        /// The cache's name.
        name: rejoin_store::CacheName,
    },

    /// The file of the machine's cache was cut short.
    #[error(
        "the file of cache {name} was cut short: remove it with `rejoin store remove`, then restart the agent and the servers"
    )]
    CacheCutShort {
        /// The cache's name.
        name: rejoin_store::CacheName,
    },

    /// Invalid settings.
    #[error("{}: {what}", path.display())]
    BadSettings {
        /// The settings file.
        path: PathBuf,
        /// The problem.
        what: String,
    },

    /// The machine's cache cannot be used.
    #[error("{0}")]
    Store(#[from] rejoin_store::Error),

    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
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

    /// The ring has no key yet.
    #[error("the ring has no ticket key yet")]
    NoKey,

    /// A name that no cluster, site or machine can have.
    #[error(
        "{name:?} is not the name of a cluster, site or machine: give 1 to 64 of A-Z a-z 0-9 . _ -"
    )]
    BadName {
        /// The name.
        name: String,
    },

    /// A file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },

    /// A key file that has replaced that of another cluster, or of this one before all of its keys were replaced.
    #[error(
        "{} has the secret of another cluster: copy it again from a machine of this one; to begin with a new secret, stop \
         the servers, remove their cache and restart the agent",
        path.display()
    )]
    OtherSecret {
        /// The file.
        path: PathBuf,
    },

    /// A step in the replacement of the cluster's key that is not due.
    #[error(
        "{due} comes before {step}: each step must reach all machines before the next one begins"
    )]
    OutOfTurn {
        /// The step.
        step: RekeyStep,
        /// The step that is due.
        due: RekeyStep,
    },

    /// A file that is not a safe or valid key file.
    #[error("{} {fault}: {}", path.display(), fault.remedy())]
    BadKeyFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        fault: KeyFileFault,
    },

    /// The system provides no random numbers.
    #[error("cannot obtain random numbers: {cause}")]
    NoRandomNumbers {
        /// The reason.
        cause: io::Error,
    },

    /// A schedule in which a server could use a key before all others have it.
    #[error(
        "keys are created {lead_s} s before use, but a cluster needs {least_s} s, because its servers' \
         clocks may differ by two minutes: rotate less often"
    )]
    ShortLead {
        /// The schedule's lead.
        lead_s: u64,
        /// The shortest lead allowed.
        least_s: u64,
    },

    /// The ring of ticket keys in Valkey was not encrypted with this cluster's key.
    #[error(
        "{key} in Valkey cannot be decrypted with this cluster's key: use the same key file on all machines (while the \
         key is replaced, that of the step before or after); if they have it, delete {key}, and they will restore it"
    )]
    Unopened {
        /// Its key in Valkey.
        key: String,
    },

    /// This machine's clock and Valkey's are too far apart for a key to be made.
    #[error(
        "this machine's clock is {} s {} Valkey's: set whichever is wrong, because ticket keys begin and end by the clock",
        ahead_s.unsigned_abs(),
        if *ahead_s < 0 { "behind" } else { "ahead of" }
    )]
    ClocksApart {
        /// The seconds by which it is ahead; negative if it is behind.
        ahead_s: i64,
    },

    /// The ring of ticket keys in Valkey differs from the last one seen, and is not newer. The last one seen
    /// stays in use, and replaces it.
    #[error(
        "{key} in Valkey has version {found}, although version {seen} was seen before: Valkey lost \
         writes, or an old ring was restored; it is replaced"
    )]
    RolledBack {
        /// Its key in Valkey.
        key: String,
        /// The version found.
        found: u64,
        /// The version seen last.
        seen: u64,
    },

    /// The ring of ticket keys in Valkey is older than one that this machine has seen, and this machine has no newer
    /// one to replace it with.
    #[error(
        "{key} in Valkey has version {found}, but this machine has seen version {seen}: an older ring was restored, \
         which may hold revoked keys, and is refused; if no other machine's agent replaces it, delete {key} to begin \
         with new keys, or start once with --accept-older-ring"
    )]
    OlderRing {
        /// Its key in Valkey.
        key: String,
        /// The version found.
        found: u64,
        /// The highest version seen.
        seen: u64,
    },

    /// So many machines have reported that this one's report finds no room.
    #[error(
        "{most} machines have reported, which is the most: this one is not shown by rejoin cluster status"
    )]
    TooManyMachines {
        /// The most machines that are shown.
        most: usize,
    },

    /// Another agent reports under the name of this machine.
    #[error(
        "another agent reports as machine {machine}, so rejoin cluster status shows one of the two: set machine = in the \
         settings of one of them"
    )]
    SharedName {
        /// The name.
        machine: MachineName,
    },

    /// Other servers keep changing the ring of ticket keys, or it was restored a moment ago.
    #[error(
        "other servers are changing the ticket keys of cluster {name}: try again in a minute; if that lasts, something else \
         has written to the cluster's keys: delete {} in Valkey",
        name.valkey_key("lease")
    )]
    Busy {
        /// The cluster's name.
        name: ClusterName,
    },

    /// A change that the ring of ticket keys does not allow.
    #[error("{0}")]
    Ring(#[from] rejoin_tickets::Error),
}

impl Error {
    /// Returns true if a Valkey, of this site or another, refuses sessions.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused { .. } => true,
            Self::AtSite { cause, .. } => cause.is_refusal(),
            _ => false,
        }
    }

    /// Returns true if Valkey is unreachable, or cannot serve anybody now, as opposed to returning an error.
    pub(crate) fn is_away(&self) -> bool {
        use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
        let Self::Valkey(error) = self else { return matches!(self, Self::NoAnswer) };
        match error.kind() {
            ErrorKind::Io | ErrorKind::AuthenticationFailed => true,
            ErrorKind::ClusterConnectionNotFound => true,
            ErrorKind::Server(kind) => {
                matches!(kind, BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain)
            }
            _ => matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) || takes_no_changes(error),
        }
    }
}

/// Returns true if it is a primary that has lost its replicas (`min-replicas-to-write`) or its disk (`stop-writes-on-bgsave-error`), where that
/// stops it. No session can be taken from it, so that none is certain until it has been back for a while.
pub(crate) fn takes_no_changes(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOREPLICAS" | "MISCONF"))
}

/// Returns a text without its numbers, by which errors of one cause are told apart from others: some tell the time. Addresses
/// stay.
pub fn without_numbers(text: &str) -> String {
    let is_number = |word: &&str| {
        let word = word.trim_matches(|sign: char| !sign.is_alphanumeric());
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
    };
    let words = text.split_whitespace().filter(|word| !is_number(word));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns what to do about an error of Valkey, if that is known.
fn remedy(error: &RedisError) -> &'static str {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved) => {
            "; the server is a node of a Valkey cluster: set clustered = true"
        }
        _ if text.contains("cluster support disabled") => {
            "; the server is no node of a Valkey cluster: set clustered = false"
        }
        _ if error.code() == Some("OOM") => {
            "; it is full: give it more memory (maxmemory), or lower [sessions] bytes on all machines"
        }
        _ if text.contains("WRONGTYPE") => {
            "; something else has written to the cluster's keys: delete the key that is not what Rejoin makes of it"
        }
        _ if is_denied(error) => "; the user's rules are too narrow: set those of docs/cluster.md",
        _ => "",
    }
}

/// A reason for refusing a key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFileFault {
    /// It is a symbolic link, or not a regular file.
    NotRegular,
    /// It belongs to another user.
    Owner {
        /// Its owner.
        uid: u32,
    },
    /// Other users may read or write it.
    Mode {
        /// Its mode.
        mode: u32,
    },
    /// Other users may replace it.
    Folder {
        /// The mode of its folder.
        mode: u32,
    },
    /// It does not begin with a key.
    NoKey,
    /// A line after the first is not what it must be.
    BadLine {
        /// Its number.
        line: u8,
    },
    /// It has the same key twice.
    SameKeys,
}

impl KeyFileFault {
    fn remedy(self) -> &'static str {
        match self {
            Self::NotRegular => "give the path of the file itself",
            Self::Owner { .. } => "change its owner to root, or to the user that runs this",
            Self::Mode { .. } => "give it mode 600",
            Self::Folder { .. } => "move it to a folder that only its owner can write to",
            Self::NoKey | Self::BadLine { .. } | Self::SameKeys => {
                "copy it again from another machine of the cluster"
            }
        }
    }
}

impl fmt::Display for KeyFileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegular => f.write_str("is no regular file"),
            Self::Owner { uid } => write!(f, "belongs to user {uid}"),
            Self::Mode { mode } => write!(f, "has mode {mode:o}: other users may read or write it"),
            Self::Folder { mode } => {
                write!(f, "is in a folder of mode {mode:o}: other users may replace it")
            }
            Self::NoKey => f.write_str("does not begin with 64 hexadecimal digits"),
            Self::BadLine { line } => write!(f, "has no such line {line} as a key file has"),
            Self::SameKeys => f.write_str("has the same key twice"),
        }
    }
}
