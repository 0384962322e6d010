//! The folder of the files, and what is done there so that no two processes are in each other's way.
//!
//! A file gets its name when it is complete, and not if there is one of that name. It loses its
//! name only to somebody who has it locked (`flock(2)`) and has seen that the name is still its.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::fs::{fallocate, fchmod, flock, fstat, linkat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::Objection;
use crate::{CacheName, Error};

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    directory: OwnedFd,
    path: PathBuf,
}

/// A file without a name, which loses the one that it has when it is dropped.
#[derive(Debug)]
pub(crate) struct Unfinished<'a> {
    folder: &'a Folder,
    name: String,
    pub(crate) file: File,
}

/// How long to wait for others between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// Attempts at what others may be doing at the same time.
pub(crate) const ATTEMPTS: u32 = 50;

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|cause| refused("open the folder", path, cause))?;
        Ok(Self { directory, path: path.into() })
    }

    pub(crate) fn path_of(&self, name: &CacheName) -> PathBuf {
        self.path.join(name.file_name())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A cache's file, if there is one, and nobody else can have written to it.
    pub(crate) fn file(&self, name: &CacheName) -> Result<Option<File>, Error> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let not_ours = |objection| Error::NotOurs { path: self.path_of(name), objection };
        match openat(&self.directory, name.file_name(), flags, Mode::empty()) {
            Ok(file) => {
                let stat = fstat(&file).map_err(|cause| self.unseen(name, cause))?;
                let file = File::from(file);
                objection(&stat).map_or(Ok(Some(file)), |objection| Err(not_ours(objection)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) => Err(not_ours(Objection::SymbolicLink)),
            Err(Errno::ISDIR | Errno::NXIO) => Err(not_ours(Objection::NotRegular)),
            Err(cause) => Err(refused("open", &self.path_of(name), cause)),
        }
    }

    /// What is wrong with what bears a cache's name, without opening it.
    pub(crate) fn objection(&self, name: &CacheName) -> Result<Option<Objection>, Error> {
        match statat(&self.directory, name.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(objection(&stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(self.unseen(name, cause)),
        }
    }

    /// A new file, without the name yet, that has all its room.
    pub(crate) fn unfinished(&self, name: &CacheName, bytes: u64) -> Result<Unfinished<'_>, Error> {
        // Beyond this limit the kernel would not only refuse, but send a signal (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|longest| longest < bytes) {
            return Err(self.no_room_or(bytes, "make a file in", Errno::FBIG));
        }
        let mut number = [0; 8];
        fill_at_random(&mut number)?;
        let unfinished = name.unfinished_file_name(u64::from_ne_bytes(number));
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.directory, &unfinished, flags, mode)
            .map_err(|cause| self.no_room_or(bytes, "make a file in", cause))?;
        let unfinished = Unfinished { folder: self, name: unfinished, file: file.into() };
        fchmod(&unfinished.file, mode)
            .and_then(|()| fallocate(&unfinished.file, FallocateFlags::empty(), 0, bytes))
            .map_err(|cause| self.no_room_or(bytes, "reserve room in", cause))?;
        Ok(unfinished)
    }

    fn no_room_or(&self, bytes: u64, action: &'static str, cause: Errno) -> Error {
        match cause {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
                Error::NoRoom { bytes, folder: self.path.clone() }
            }
            _ => refused(action, &self.path, cause),
        }
    }

    /// Locks a file against others who would take its name, and says whether it still has it.
    pub(crate) fn lock_name(&self, file: &File, name: &CacheName) -> Result<bool, Error> {
        for _ in 0..ATTEMPTS {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return self.is_named(file, name),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                Err(cause) => return Err(refused("lock", &self.path_of(name), cause)),
            }
        }
        Err(Error::Busy { name: name.clone() })
    }

    /// Whether a file is the one of this name.
    pub(crate) fn is_named(&self, file: &File, name: &CacheName) -> Result<bool, Error> {
        let of_file = fstat(file).map_err(|cause| self.unseen(name, cause))?;
        match statat(&self.directory, name.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(of_name) => Ok((of_name.st_dev, of_name.st_ino) == (of_file.st_dev, of_file.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(cause) => Err(self.unseen(name, cause)),
        }
    }

    fn unseen(&self, name: &CacheName, cause: Errno) -> Error {
        refused("look at", &self.path_of(name), cause)
    }

    /// Takes the name from the file that has it, which is locked.
    pub(crate) fn unname(&self, name: &CacheName) -> Result<(), Error> {
        unlinkat(&self.directory, name.file_name(), AtFlags::empty())
            .map_err(|cause| refused("remove", &self.path_of(name), cause))
    }

    /// Removes what those left who died while they made this cache.
    pub(crate) fn sweep(&self, name: &CacheName) -> Result<(), Error> {
        let prefix = name.unfinished_prefix();
        for file_name in self.file_names()?.iter().filter(|of| of.starts_with(&prefix)) {
            // Somebody may have finished it, or swept it: it is gone then.
            let _ = unlinkat(&self.directory, file_name, AtFlags::empty());
        }
        Ok(())
    }

    /// The names of all files that have one in UTF-8.
    pub(crate) fn file_names(&self) -> Result<Vec<String>, Error> {
        let refused = |cause| Error::Refused { action: "list", path: self.path.clone(), cause };
        let entries = std::fs::read_dir(&self.path).map_err(refused)?;
        let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
        let names: io::Result<Vec<_>> = names.collect();
        Ok(names.map_err(refused)?.into_iter().flatten().collect())
    }
}

impl Unfinished<'_> {
    /// Gives the file its name. `None`: another file has it.
    pub(crate) fn finish(&self, name: &CacheName) -> Result<Option<()>, Error> {
        let directory = &self.folder.directory;
        let flags = AtFlags::empty();
        match linkat(directory, &self.name, directory, name.file_name(), flags) {
            Ok(()) => Ok(Some(())),
            // Not there: somebody removed the cache, and what was unfinished with it.
            Err(Errno::EXIST | Errno::NOENT) => Ok(None),
            Err(cause) => Err(refused("name", &self.folder.path_of(name), cause)),
        }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // A file that cannot be removed is swept when the cache is.
        let _ = unlinkat(&self.folder.directory, &self.name, AtFlags::empty());
    }
}

/// Writes zeros over a whole file.
pub(crate) fn wipe(file: &File, path: &Path) -> Result<(), Error> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let refused = |cause| Error::Refused { action: "wipe", path: path.into(), cause };
    let bytes = file.metadata().map_err(refused)?.len();
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..length as usize], at).map_err(refused)?;
        at += length;
    }
    Ok(())
}

pub(crate) fn fill_at_random(bytes: &mut [u8]) -> Result<(), Error> {
    // So few are never cut short (getrandom(2)).
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())
        .map(|_| ())
        .map_err(|cause| refused("read", Path::new("random numbers"), cause))
}

fn objection(stat: &Stat) -> Option<Objection> {
    let mode = Mode::from_raw_mode(stat.st_mode);
    let ours = [0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid);
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        Some(Objection::NotRegular)
    } else if !ours {
        Some(Objection::Owner { uid: stat.st_uid })
    } else if mode.intersects(Mode::WGRP | Mode::WOTH) {
        Some(Objection::Writable { mode: mode.bits() & 0o777 })
    } else {
        None
    }
}

fn refused(action: &'static str, path: &Path, cause: Errno) -> Error {
    Error::Refused { action, path: path.into(), cause: cause.into() }
}
