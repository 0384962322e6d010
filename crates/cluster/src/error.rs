//! What can go wrong.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::ClusterName;

/// Each names the cause; nothing here fails a handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Valkey does not answer, or says no.
    #[error("Valkey: {0}")]
    Valkey(#[from] redis::RedisError),

    /// Valkey did not answer in time.
    #[error("Valkey does not answer")]
    NoAnswer,

    /// Another agent serves the machine's cache.
    #[error("another agent serves cache {name}: end it first")]
    OtherAgent {
        /// The cache's name.
        name: rejoin_store::CacheName,
    },

    /// The machine's cache was removed.
    #[error("cache {name} was removed: start the agent again, and then the servers")]
    CacheRemoved {
        /// The cache's name.
        name: rejoin_store::CacheName,
    },

    /// Settings that make no sense.
    #[error("{}: {what}", path.display())]
    BadSettings {
        /// The file they are in.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },

    /// The machine's cache cannot be had.
    #[error("{0}")]
    Store(#[from] rejoin_store::Error),

    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
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

    /// Not the name of a cluster.
    #[error("{name:?} is no name of a cluster: give 1 to 64 of A-Z a-z 0-9 . _ -")]
    BadName {
        /// What was given.
        name: String,
    },

    /// A file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Unwritable {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },

    /// A file that does not keep the cluster's key.
    #[error("{} {fault}: {}", path.display(), fault.remedy())]
    BadKeyFile {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        fault: KeyFileFault,
    },

    /// The system gives no random numbers.
    #[error("no random numbers: {cause}")]
    NoRandomNumbers {
        /// Why not.
        cause: io::Error,
    },

    /// Servers could use a key before all others have it.
    #[error(
        "keys are made {lead_s} s before they are used, and servers of a cluster need {least_s} s, as \
         their clocks may differ by two minutes: rotate less often"
    )]
    ShortLead {
        /// As it was given.
        lead_s: u64,
        /// The shortest.
        least_s: u64,
    },

    /// What is in Valkey as the ring of ticket keys was not wrapped for it.
    #[error(
        "{key} in Valkey does not open with this cluster's key: give all machines the same key file; \
         if they have it, remove {key}, and they put it back"
    )]
    Unopened {
        /// What it is called there.
        key: String,
    },

    /// A ring of ticket keys that is not newer than the last one seen, and another. The last one seen
    /// stays, and is put in its place.
    #[error(
        "{key} in Valkey is another one, of version {found}, after version {seen} was seen: Valkey lost \
         writes, or somebody put an old one back; it is replaced"
    )]
    RolledBack {
        /// What it is called there.
        key: String,
        /// Its version.
        found: u64,
        /// Ours.
        seen: u64,
    },

    /// Others change the ring of ticket keys at the same time, again and again, or it was put back
    /// just now.
    #[error("the ticket keys of cluster {name} are being changed by others: try again in a minute")]
    Busy {
        /// The cluster's.
        name: ClusterName,
    },

    /// What the ring of ticket keys does not allow.
    #[error("{0}")]
    Ring(#[from] rejoin_tickets::Error),
}

impl Error {
    /// Whether Valkey cannot be reached, rather than says no.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::NoAnswer => true,
            Self::Valkey(error) => error.is_io_error() || error.is_timeout(),
            _ => false,
        }
    }
}

/// Why a file is not taken as the one of the cluster's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFileFault {
    /// A symbolic link, or no file.
    NotRegular,
    /// It is somebody else's.
    Owner {
        /// Whose.
        uid: u32,
    },
    /// Others may read or write it.
    Mode {
        /// As it is.
        mode: u32,
    },
    /// Others may replace it.
    Folder {
        /// Its folder's mode.
        mode: u32,
    },
    /// It holds something else.
    NoKey,
}

impl KeyFileFault {
    fn remedy(self) -> &'static str {
        match self {
            Self::NotRegular => "name the file itself",
            Self::Owner { .. } => "let it belong to root, or to who runs this",
            Self::Mode { .. } => "give it mode 600",
            Self::Folder { .. } => "put it in a folder that only its owner writes to",
            Self::NoKey => "copy it again from another machine of the cluster",
        }
    }
}

impl fmt::Display for KeyFileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegular => f.write_str("is no regular file"),
            Self::Owner { uid } => write!(f, "belongs to user {uid}"),
            Self::Mode { mode } => write!(f, "has mode {mode:o}: others may read or write it"),
            Self::Folder { mode } => {
                write!(f, "is in a folder of mode {mode:o}: others may replace it")
            }
            Self::NoKey => f.write_str("does not hold 64 hexadecimal digits"),
        }
    }
}
