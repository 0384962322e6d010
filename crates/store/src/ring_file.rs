//! A ring of ticket keys that has no cache: a file, which the processes of one user share.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rejoin_tickets::{KeyId, KeyRing, Reschedule, Schedule};
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
    change: Reschedule,
    /// True once the change is in the ring. Whoever changes the schedule after that is not overruled: two that follow one ring
    /// would change it back and forth.
    is_rescheduled: AtomicBool,
}

impl RingFile {
    const ATTEMPTS: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(50);

    /// Names the file. Keys that are made from the first look on follow `schedule`, or else the ring's own, until another process
    /// changes that. Nothing is read yet.
    pub fn new(path: &Path, schedule: Option<Schedule>) -> Self {
        Self::rescheduled(path, schedule.map(Reschedule::from).unwrap_or_default())
    }

    /// Names the file as [`Self::new`] does, with a change of some figures of its schedule.
    pub fn rescheduled(path: &Path, change: Reschedule) -> Self {
        let is_rescheduled = AtomicBool::new(false);
        Self { path: path.into(), file: KeyFile::new(path), change, is_rescheduled }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the ring as it is, or `None` if there is no file. Nothing is written.
    ///
    /// # Errors
    /// The file or its folder is open to others, holds something else, or cannot be read.
    pub fn read(&self) -> Result<Option<KeyRing>, Error> {
        self.file.read()
    }

    /// Returns the ring. Makes the next key first if it is due, and the file if there is none.
    ///
    /// # Errors
    /// Those of [`Self::read`]; the file cannot be written; another process has it locked for a second; the figures of
    /// [`Self::rescheduled`] do not fit the ring's.
    pub fn look(&self, now_s: u64) -> Result<KeyRing, Error> {
        if let Some(ring) = self.file.read()? {
            let is_settled = *ring.schedule() == self.schedule_of(&ring)?;
            if is_settled && !ring.due(now_s) {
                self.is_rescheduled.store(true, Ordering::Relaxed);
                return Ok(ring);
            }
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
        let mut ring = match self.file.read()? {
            Some(mut ring) => {
                ring.reschedule(self.schedule_of(&ring)?);
                ring
            }
            None => KeyRing::new(self.change.of(&Schedule::default())?),
        };
        let result = change(&mut ring)?;
        self.file.write(|page| {
            ring.to_page(page);
            Ok(())
        })?;
        self.is_rescheduled.store(true, Ordering::Relaxed);
        Ok(result)
    }

    /// Returns the schedule that a ring is to have: its own, once it was changed.
    fn schedule_of(&self, ring: &KeyRing) -> Result<Schedule, Error> {
        match self.is_rescheduled.load(Ordering::Relaxed) {
            true => Ok(*ring.schedule()),
            false => Ok(self.change.of(ring.schedule())?),
        }
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
