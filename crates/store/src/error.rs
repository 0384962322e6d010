//! The reasons why a shared cache cannot be used. The caller goes on without.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, Stat};
use rustix::process::geteuid;

use crate::CacheName;

/// A shared cache that cannot be opened, made or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that no cache can have.
    #[error(
        "{name:?} is no name of a cache: give 1 to 64 of A-Z a-z 0-9 . _ -, the first not a dot"
    )]
    BadName {
        /// The name as given.
        name: String,
    },
    /// There is no such cache, and no settings were given to make it with.
    #[error("no cache {name} in {folder}: start the server that makes it", folder = folder.display())]
    NotFound {
        /// Its name.
        name: CacheName,
        /// The folder that was searched.
        folder: PathBuf,
    },
    /// The folder has less room than the cache takes.
    #[error("no room for {bytes} bytes in {folder}: give a smaller capacity, or free some",
        folder = folder.display())]
    NoRoom {
        /// The size of the cache.
        bytes: u64,
        /// The folder.
        folder: PathBuf,
    },
    /// A file that others may have read or written, or that is no cache.
    #[error("{path} {objection}{of}: {remedy}", path = path.display(), of = Belongs(*owner),
        remedy = remedy(cache.as_ref(), path, objection, *is_to_be_made))]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// The reason.
        objection: Objection,
        /// The user id of its owner, unless the reason names it or it does not matter.
        owner: Option<u32>,
        /// The cache that should be there.
        cache: Option<CacheName>,
        /// False if the cache was only to be opened, for which it must be there.
        is_to_be_made: bool,
    },
    /// Made by another version of Rejoin.
    #[error(
        "cache {name} was made by another version: run {removal} and restart its servers",
        removal = Removal(name, folder)
    )]
    OtherVersion {
        /// Its name.
        name: CacheName,
        /// Its folder.
        folder: PathBuf,
    },
    /// Made with other settings.
    #[error(
        "cache {name} was made with another {setting}: it has {theirs}, and {ours} is asked for; give \
         the same, or run {removal} and restart its servers",
        removal = Removal(name, folder)
    )]
    OtherSettings {
        /// Its name.
        name: CacheName,
        /// Its folder.
        folder: PathBuf,
        /// The first setting that differs.
        setting: &'static str,
        /// Its value in the file.
        theirs: String,
        /// Its value as given.
        ours: String,
    },
    /// Made by servers of their own, or for another cluster.
    #[error(
        "cache {name} is not this cluster's: run {removal}, start the agent, and then the servers",
        removal = Removal(name, folder)
    )]
    OtherCluster {
        /// Its name.
        name: CacheName,
        /// Its folder.
        folder: PathBuf,
    },
    /// The ticket keys are those of a cluster.
    #[error("the ticket keys of cache {name} are its cluster's: use --cluster instead of the name")]
    OfCluster {
        /// Its name.
        name: CacheName,
    },
    /// A file whose first page differs from what was written to it.
    #[error("cache {name} is damaged: run {removal} and restart its servers",
        removal = Removal(name, folder))]
    Damaged {
        /// Its name.
        name: CacheName,
        /// Its folder.
        folder: PathBuf,
    },
    /// A file whose size does not fit its contents.
    #[error(
        "cache {name} has {bytes} bytes, not {needed_bytes}: run {removal} and restart its servers",
        removal = Removal(name, folder)
    )]
    BadSize {
        /// Its name.
        name: CacheName,
        /// Its folder.
        folder: PathBuf,
        /// Its size.
        bytes: u64,
        /// The size that it should have.
        needed_bytes: u64,
    },
    /// Other processes make and remove the cache again and again.
    #[error("cache {name} is being made or removed by others: try again")]
    Busy {
        /// Its name.
        name: CacheName,
    },
    /// The ticket keys cannot be read.
    #[error(
        "the ticket keys of cache {name} are locked: another process has them, or somebody wrote over \
         the lock; try again, or run `rejoin store remove {name}`, with --folder if it is not in {shm}, and \
         restart its servers",
        shm = crate::Store::FOLDER
    )]
    KeysLocked {
        /// The cache's name.
        name: CacheName,
    },
    /// All places but the reserved one hold keys whose tickets are still alive.
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
        /// The reason.
        cause: rejoin_tickets::Error,
    },
    /// A file of ticket keys that has not the newest ones.
    #[error(
        "{0}; until it can be written, a restart of the machine brings back the keys in it, also those \
         retired since"
    )]
    NotKept(Box<Self>),
    /// A change that the ring of ticket keys does not allow.
    #[error(transparent)]
    Keys(#[from] rejoin_tickets::Error),
    /// Settings that make no cache.
    #[error("no cache can be made with these settings: {0}")]
    Settings(rejoin_cache::Error),
    /// The operating system refused.
    #[error("cannot {action} {path}: {cause}", path = path.display())]
    Refused {
        /// The action.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
}

impl Error {
    pub(crate) fn refused(action: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::Refused { action, path: path.into(), cause: cause.into() }
    }

    /// Returns the error for somebody who does not make the cache.
    pub(crate) fn of_opening(self) -> Self {
        match self {
            Self::NotOurs { path, objection, owner, cache, .. } => {
                Self::NotOurs { path, objection, owner, cache, is_to_be_made: false }
            }
            other => other,
        }
    }

    /// Returns the cache that the error's text names, so that the caller need not name it again.
    pub fn cache(&self) -> Option<&CacheName> {
        match self {
            Self::NotFound { name, .. }
            | Self::OtherVersion { name, .. }
            | Self::OtherSettings { name, .. }
            | Self::Damaged { name, .. }
            | Self::BadSize { name, .. }
            | Self::Busy { name }
            | Self::KeysLocked { name } => Some(name),
            Self::NotOurs { cache, .. } => cache.as_ref(),
            _ => None,
        }
    }
}

/// The text of the inner error is part of this one's, so it is not a source, or it would be printed twice.
impl From<rejoin_cache::Error> for Error {
    fn from(error: rejoin_cache::Error) -> Self {
        Self::Settings(error)
    }
}

/// The reason why a file with the name of a cache is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Objection {
    /// A link could lead to any file.
    #[error("is a symbolic link")]
    SymbolicLink,
    /// A directory, a device, a pipe, a socket.
    #[error("is {kind}, not a file")]
    NotRegular {
        /// The kind, with its article.
        kind: &'static str,
    },
    /// Its first bytes are not those of a cache.
    #[error("is no cache")]
    NoCache,
    /// A hard link leads to it, too: whatever is written to it is also written to another file.
    #[error("has another name, too,")]
    Linked,
    /// It belongs neither to this process's user nor to root.
    #[error("belongs to user {user}", user = User(*uid))]
    Owner {
        /// The owner's user id.
        uid: u32,
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
    /// Returns the objection to a file of secrets: it must be a regular one of root, this process's user or one of
    /// `owners`, and nobody else may do anything with it.
    pub fn to(file: &Stat, owners: &[u32]) -> Option<Self> {
        let (uid, mode) = (file.st_uid, Mode::from_raw_mode(file.st_mode));
        let is_owned = [0, geteuid().as_raw()].contains(&uid) || owners.contains(&uid);
        match FileType::from_raw_mode(file.st_mode) {
            FileType::RegularFile if !is_owned => Some(Self::Owner { uid }),
            FileType::RegularFile => mode
                .intersects(Mode::RWXG | Mode::RWXO)
                .then_some(Self::Readable { mode: mode.bits() & 0o777 }),
            FileType::Symlink => Some(Self::SymbolicLink),
            FileType::Directory => Some(Self::NotRegular { kind: "a directory" }),
            FileType::Fifo => Some(Self::NotRegular { kind: "a pipe" }),
            FileType::Socket => Some(Self::NotRegular { kind: "a socket" }),
            _ => Some(Self::NotRegular { kind: "a device" }),
        }
    }
}

/// The end of a message about a file: what the operator does about it.
fn remedy(
    cache: Option<&CacheName>,
    path: &Path,
    objection: &Objection,
    is_to_be_made: bool,
) -> String {
    let removal = cache.map(|name| Removal(name, path.parent().unwrap_or(path)));
    match (removal, objection) {
        // It may well be in use.
        (Some(_), Objection::Owner { .. }) if !is_to_be_made => "run this as that user".to_owned(),
        (Some(removal), Objection::Readable { .. } | Objection::Linked) => {
            format!("run {removal} and restart its servers")
        }
        (Some(removal), _) => {
            format!("run {removal} as root, or give the cache another name")
        }
        (None, Objection::Folder { .. }) => "give it a folder of its own, of mode 700".to_owned(),
        (None, _) => "remove it, or use another folder".to_owned(),
    }
}

/// The command that removes a cache, as an operator types it.
struct Removal<'a>(&'a CacheName, &'a Path);

impl fmt::Display for Removal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, folder) = self;
        let text = folder.display().to_string();
        let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:@".contains(letter);
        if folder == &Path::new(crate::Store::FOLDER) {
            write!(f, "`rejoin store remove {name}`")
        } else if text.chars().all(is_plain) {
            write!(f, "`rejoin store remove {name} --folder {text}`")
        } else {
            // As a shell reads it.
            write!(f, "`rejoin store remove {name} --folder '{}'`", text.replace('\'', r"'\''"))
        }
    }
}

/// The owner of a file in a message, if it is to be named.
struct Belongs(Option<u32>);

impl fmt::Display for Belongs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |uid| write!(f, " and belongs to user {}", User(uid)))
    }
}

/// A user in a message: the name, if this machine's list has it, and the id.
struct User(u32);

impl User {
    /// Looks in `/etc/passwd` only: a server must not wait for a directory service.
    fn name(&self) -> Option<String> {
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next()?, fields.nth(1)?);
            (uid.parse() == Ok(self.0)).then(|| name.escape_default().to_string())
        })
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}
