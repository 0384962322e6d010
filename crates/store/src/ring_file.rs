//! A ring of ticket keys that has no cache: a file, which the processes of one user share.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rejoin_tickets::{KeyId, KeyRing, Schedule};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;

use crate::key_file::KeyFile;
use crate::keys::{rotate, rotate_if_due};
use crate::own_folder::OwnFolder;
use crate::{Error, Objection};

/// The ring in a file, for servers that get their keys without a cache. It is the file that servers with
/// `ticket_keys_file` keep theirs in.
///
/// Processes change it one after another: a file beside it, which only its owner can open, is locked meanwhile.
#[derive(Debug)]
pub struct RingFile {
    path: PathBuf,
    file: KeyFile,
    schedule: Option<Schedule>,
}

impl RingFile {
    const ATTEMPTS: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(50);

    /// Names the file. Keys that are made from now on follow `schedule`, or else the ring's own. Nothing is read yet.
    pub fn new(path: &Path, schedule: Option<Schedule>) -> Self {
        Self { path: path.into(), file: KeyFile::new(path), schedule }
    }

    /// Returns the ring. Makes the next key first if it is due, and the file if there is none.
    ///
    /// # Errors
    /// The file or its folder is open to others, holds something else, or cannot be read or written; another process
    /// has it locked for a second.
    pub fn look(&self, now_s: u64) -> Result<KeyRing, Error> {
        let is_settled = |ring: &KeyRing| {
            let scheduled = self.schedule.is_none_or(|schedule| *ring.schedule() == schedule);
            scheduled && !ring.due(now_s)
        };
        if let Some(ring) = self.file.read()?.filter(is_settled) {
            return Ok(ring);
        }
        self.change(|ring| rotate_if_due(ring, now_s).map(|()| ring.clone()))
    }

    /// Makes a key, whose turn begins after the schedule's lead.
    ///
    /// # Errors
    /// Those of [`Self::look`], and a ring that is full.
    pub fn rotate(&self, now_s: u64) -> Result<KeyId, Error> {
        self.change(|ring| rotate(ring, now_s))
    }

    /// Removes a key. Returns true if it was there.
    ///
    /// # Errors
    /// Those of [`Self::look`].
    pub fn retire(&self, id: &KeyId) -> Result<bool, Error> {
        self.change(|ring| Ok(ring.retire(id)))
    }

    fn change<T>(&self, change: impl FnOnce(&mut KeyRing) -> Result<T, Error>) -> Result<T, Error> {
        let _lock = self.lock()?;
        let default = || KeyRing::new(self.schedule.unwrap_or_default());
        let mut ring = self.file.read()?.unwrap_or_else(default);
        self.schedule.into_iter().for_each(|schedule| ring.reschedule(schedule));
        let result = change(&mut ring)?;
        self.file.write(|page| {
            ring.to_page(page);
            Ok(())
        })?;
        Ok(result)
    }

    /// Locks the file beside the ring, for as long as the result lives.
    fn lock(&self) -> Result<File, Error> {
        let refused = |cause: Errno| Error::refused("lock", &self.path, cause);
        let folder = OwnFolder::of(&self.path)?.ok_or_else(|| refused(Errno::NOENT))?;
        let mut name = OsString::from(".");
        name.push(self.path.file_name().ok_or_else(|| refused(Errno::ISDIR))?);
        name.push(".lock");
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let lock = openat(folder.descriptor(), &name, flags, Mode::RUSR | Mode::WUSR);
        let lock = File::from(lock.map_err(refused)?);
        let given = folder.give_to_owner(&lock, None);
        given.map_err(|cause| refused(Errno::from_io_error(&cause).unwrap_or(Errno::IO)))?;
        let objection = Objection::to(&fstat(&lock).map_err(refused)?, &[folder.owner()]);
        if let Some(objection) = objection {
            let path = self.path.with_file_name(name);
            return Err(Error::NotOurs {
                path,
                objection,
                owner: None,
                cache: None,
                is_to_be_made: false,
            });
        }
        for _ in 1..Self::ATTEMPTS {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => std::thread::sleep(Self::PAUSE),
                locked => return locked.map(|()| lock).map_err(refused),
            }
        }
        let last = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        last.map(|()| lock).map_err(refused)
    }
}
