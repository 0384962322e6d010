//! Why a shared cache cannot be had. The caller goes on without.

use std::io;
use std::path::PathBuf;

use crate::CacheName;

/// A shared cache that cannot be opened, made or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not the name of a cache.
    #[error(
        "{name:?} is no name of a cache: give 1 to 64 of A-Z a-z 0-9 . _ -, the first not a dot"
    )]
    BadName {
        /// What was given.
        name: String,
    },
    /// There is none, and no settings were given to make it with.
    #[error("no cache {name} in {folder}: start the server that makes it", folder = folder.display())]
    NotFound {
        /// Its name.
        name: CacheName,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The folder has less room than the cache takes.
    #[error("no room for {bytes} bytes in {folder}: give a smaller capacity, or free some",
        folder = folder.display())]
    NoRoom {
        /// What the cache would take.
        bytes: u64,
        /// Where.
        folder: PathBuf,
    },
    /// A file that others may have written, or no file.
    #[error("{path} {objection}: {remedy}", path = path.display(), remedy = objection.remedy())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        objection: Objection,
    },
    /// Made by another version of Rejoin.
    #[error(
        "cache {name} was made by another version: run `rejoin store remove {name}` and restart \
         its servers"
    )]
    OtherVersion {
        /// Its name.
        name: CacheName,
    },
    /// Made with other settings.
    #[error(
        "cache {name} was made with another {setting}: it has {theirs}, and {ours} is asked for; give \
         the same, or run `rejoin store remove {name}` and restart its servers"
    )]
    OtherSettings {
        /// Its name.
        name: CacheName,
        /// The first setting that differs.
        setting: &'static str,
        /// Its value in the file.
        theirs: String,
        /// Its value as given.
        ours: String,
    },
    /// Made by servers of their own, or for another cluster.
    #[error(
        "cache {name} is not this cluster's: run `rejoin store remove {name}`, start the agent, and then \
         the servers"
    )]
    OtherCluster {
        /// Its name.
        name: CacheName,
    },
    /// The ticket keys are those of a cluster.
    #[error("the ticket keys of cache {name} are its cluster's: use --cluster instead of the name")]
    OfCluster {
        /// Its name.
        name: CacheName,
    },
    /// A file whose first page is not what was written to it.
    #[error("cache {name} is damaged: run `rejoin store remove {name}` and restart its servers")]
    Damaged {
        /// Its name.
        name: CacheName,
    },
    /// A file shorter or longer than what it says that it holds.
    #[error(
        "cache {name} has {bytes} bytes, not {needed_bytes}: run `rejoin store remove {name}` \
         and restart its servers"
    )]
    BadSize {
        /// Its name.
        name: CacheName,
        /// As it is.
        bytes: u64,
        /// As it should be.
        needed_bytes: u64,
    },
    /// Others make and remove it at the same time, again and again.
    #[error("cache {name} is being made or removed by others: try again")]
    Busy {
        /// Its name.
        name: CacheName,
    },
    /// The ticket keys cannot be looked at.
    #[error(
        "the ticket keys of cache {name} are locked: another process has them, or somebody wrote over \
         the lock; try again, or run `rejoin store remove {name}` and restart its servers"
    )]
    KeysLocked {
        /// The cache's name.
        name: CacheName,
    },
    /// Every place is taken by a key whose tickets are still alive, but for the one that is kept.
    #[error(
        "{keys} ticket keys are in use, and the last place is for the next one by schedule: retire \
         one, or wait until one expires"
    )]
    TooManyKeys {
        /// How many there are.
        keys: usize,
    },
    /// A file of ticket keys that holds something else.
    #[error("{path}: {cause}; remove it, or name another", path = path.display())]
    BadKeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: rejoin_tickets::Error,
    },
    /// What the ring of ticket keys does not allow.
    #[error(transparent)]
    Keys(#[from] rejoin_tickets::Error),
    /// Settings that make no cache.
    #[error("no cache can be made with these settings: {0}")]
    Settings(rejoin_cache::Error),
    /// The operating system refused.
    #[error("cannot {action} {path}: {cause}", path = path.display())]
    Refused {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

impl Error {
    /// The cache that its line names, which need not be said once more.
    pub fn cache(&self) -> Option<&CacheName> {
        match self {
            Self::NotFound { name, .. }
            | Self::OtherVersion { name }
            | Self::OtherSettings { name, .. }
            | Self::Damaged { name }
            | Self::BadSize { name, .. }
            | Self::Busy { name }
            | Self::KeysLocked { name } => Some(name),
            _ => None,
        }
    }
}

/// Its line is in ours: it is no source, or it would be told twice.
impl From<rejoin_cache::Error> for Error {
    fn from(error: rejoin_cache::Error) -> Self {
        Self::Settings(error)
    }
}

/// What is wrong with a file that bears the name of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Objection {
    /// A link could lead to any file.
    #[error("is a symbolic link")]
    SymbolicLink,
    /// A folder, a device, a pipe.
    #[error("is not a regular file")]
    NotRegular,
    /// Neither this process's user's nor root's.
    #[error("belongs to user {uid}")]
    Owner {
        /// Whose it is.
        uid: u32,
    },
    /// Its group, or everybody, may write to it.
    #[error("may be written by others (mode {mode:03o})")]
    Writable {
        /// The nine bits of its mode.
        mode: u32,
    },
    /// The group, or everybody, may put another file in its place.
    #[error("lies in a folder that may be written by others (mode {mode:03o})")]
    Folder {
        /// The nine bits of the folder's mode.
        mode: u32,
    },
    /// Its group, or everybody, may do something with it: too much for keys.
    #[error("is open to others (mode {mode:03o}, not 600)")]
    Readable {
        /// The nine bits of its mode.
        mode: u32,
    },
}

impl Objection {
    fn remedy(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "give it a folder of its own, of mode 700",
            _ => "remove it, or use another folder",
        }
    }
}
