//! The folder of the files, and the rules that keep two processes from disturbing each other there.
//!
//! A file gets its name when it is complete, and only if no other file has that name. Only a process that holds a
//! lock on the file (`flock(2)`), and has checked that the name is still the file's, takes the name away.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, Stat};
use rustix::fs::{
    fallocate, fchmod, flock, fstat, fstatvfs, linkat, openat, renameat, seek, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};

use crate::division::Division;
use crate::error::Objection;
use crate::mapping::Mapping;
use crate::random::random_number;
use crate::{CacheName, Error};

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    directory: OwnedFd,
    path: PathBuf,
}

/// A file without the cache's name yet. Its temporary name is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Unfinished<'a> {
    folder: &'a Folder,
    name: String,
    pub(crate) file: File,
}

/// The wait for other processes between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// Attempts at an operation that other processes may be doing at the same time.
pub(crate) const ATTEMPTS: u32 = 50;

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|cause| Error::refused("open the folder", path, cause))?;
        Ok(Self { directory, path: path.into() })
    }

    pub(crate) fn path_of(&self, name: &CacheName) -> PathBuf {
        self.path.join(name.file_name())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a cache's file, if there is one. Refuses a file that another user can have read or written.
    pub(crate) fn file(&self, name: &CacheName) -> Result<Option<File>, Error> {
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        let mut stat = fstat(&file).map_err(|cause| self.unseen(name, cause))?;
        if stat.st_nlink > 1 {
            // It has its temporary name, too, for a moment, or for longer if its maker died then.
            self.sweep(name)?;
            stat = fstat(&file).map_err(|cause| self.unseen(name, cause))?;
        }
        objection(&stat).map_or(Ok(Some(file)), |why| Err(self.not_ours(name, why, &stat)))
    }

    /// Opens what has a cache's name, whoever may have written to it.
    pub(crate) fn open_file(&self, name: &CacheName) -> Result<Option<File>, Error> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match openat(&self.directory, name.file_name(), flags, Mode::empty()) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => match self.look(name)? {
                Some((stat, Some(why))) => Err(self.not_ours(name, why, &stat)),
                Some((stat, None)) if cause == Errno::ACCESS && !is_own(&stat) => {
                    Err(self.not_ours(name, Objection::Owner { uid: stat.st_uid }, &stat))
                }
                _ => Err(Error::refused("open", &self.path_of(name), cause)),
            },
        }
    }

    /// Checks what has a cache's name, without opening it.
    pub(crate) fn objection(&self, name: &CacheName) -> Result<Option<Objection>, Error> {
        Ok(self.look(name)?.and_then(|(_, why)| why))
    }

    fn look(&self, name: &CacheName) -> Result<Option<(Stat, Option<Objection>)>, Error> {
        match statat(&self.directory, name.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((stat, objection(&stat)))),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(self.unseen(name, cause)),
        }
    }

    fn not_ours(&self, name: &CacheName, objection: Objection, stat: &Stat) -> Error {
        let is_known = matches!(objection, Objection::Owner { .. } | Objection::Readable { .. });
        let owner = (!is_known).then_some(stat.st_uid);
        let (path, cache) = (self.path_of(name), Some(name.clone()));
        Error::NotOurs { path, objection, owner, cache, is_to_be_made: true }
    }

    /// Returns the error for a file that is no cache.
    pub(crate) fn no_cache(&self, name: &CacheName, file: &File) -> Error {
        match fstat(file) {
            Ok(stat) => self.not_ours(name, Objection::NoCache, &stat),
            Err(cause) => self.unseen(name, cause),
        }
    }

    /// Makes a new file, without the cache's name yet, and reserves all its room.
    pub(crate) fn unfinished(&self, name: &CacheName, bytes: u64) -> Result<Unfinished<'_>, Error> {
        // Beyond this limit the kernel would not only refuse, but send a signal (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|longest| longest < bytes) {
            return Err(self.no_room_or(bytes, "make a file in", Errno::FBIG));
        }
        let unfinished = name.unfinished_file_name(random_number()?);
        let file = make(&self.directory, OsStr::new(&unfinished))
            .map_err(|cause| self.no_room_or(bytes, "make a file in", cause))?;
        let unfinished = Unfinished { folder: self, name: unfinished, file };
        fchmod(&unfinished.file, Mode::RUSR | Mode::WUSR)
            .and_then(|()| reserve(&unfinished.file, FallocateFlags::empty(), bytes))
            .map_err(|cause| self.no_room_or(bytes, "reserve room in", cause))?;
        Ok(unfinished)
    }

    /// Returns true if the folder has room for a file of so many bytes once nobody has this one any more.
    pub(crate) fn has_room_without(&self, file: &File, bytes: u64) -> bool {
        let is_allowed = getrlimit(Resource::Fsize).current.is_none_or(|longest| longest >= bytes);
        is_allowed && has_room(&self.directory, file, bytes) == Ok(true)
    }

    fn no_room_or(&self, bytes: u64, action: &'static str, cause: Errno) -> Error {
        match cause {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
                Error::NoRoom { bytes, folder: self.path.clone() }
            }
            _ => Error::refused(action, &self.path, cause),
        }
    }

    /// Locks a file against other processes that would take its name. Returns true if it still has the name.
    pub(crate) fn lock_name(&self, file: &File, name: &CacheName) -> Result<bool, Error> {
        for _ in 0..ATTEMPTS {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return self.is_named(file, name),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                Err(cause) => return Err(Error::refused("lock", &self.path_of(name), cause)),
            }
        }
        Err(Error::Busy { name: name.clone() })
    }

    /// Returns true if the file is the one of this name.
    pub(crate) fn is_named(&self, file: &File, name: &CacheName) -> Result<bool, Error> {
        let of_file = fstat(file).map_err(|cause| self.unseen(name, cause))?;
        match statat(&self.directory, name.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(of_name) => Ok((of_name.st_dev, of_name.st_ino) == (of_file.st_dev, of_file.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(cause) => Err(self.unseen(name, cause)),
        }
    }

    fn unseen(&self, name: &CacheName, cause: Errno) -> Error {
        Error::refused("look at", &self.path_of(name), cause)
    }

    /// Removes the name of a file, which is locked if it is a cache's.
    pub(crate) fn unname(&self, name: &CacheName) -> Result<(), Error> {
        let unname = |flags| unlinkat(&self.directory, name.file_name(), flags);
        unname(AtFlags::empty())
            .or_else(|cause| match cause {
                Errno::ISDIR => unname(AtFlags::REMOVEDIR),
                _ => Err(cause),
            })
            .map_err(|cause| Error::refused("remove", &self.path_of(name), cause))
    }

    /// Removes the files of processes that died while they made this cache.
    pub(crate) fn sweep(&self, name: &CacheName) -> Result<(), Error> {
        let prefix = name.unfinished_prefix();
        for file_name in self.file_names()?.iter().filter(|of| of.starts_with(&prefix)) {
            // Another process may have finished or removed it meanwhile.
            let _ = unlinkat(&self.directory, file_name, AtFlags::empty());
        }
        Ok(())
    }

    /// Returns the names of all files, except names that are not UTF-8.
    pub(crate) fn file_names(&self) -> Result<Vec<String>, Error> {
        let refused = |cause| Error::Refused { action: "list", path: self.path.clone(), cause };
        let entries = std::fs::read_dir(&self.path).map_err(refused)?;
        let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
        let names: io::Result<Vec<_>> = names.collect();
        Ok(names.map_err(refused)?.into_iter().flatten().collect())
    }
}

impl Unfinished<'_> {
    /// Gives the file its name. If another file has it, `None` is returned; or the other file, which the caller has
    /// locked, loses it to this one if it `replaces` that.
    pub(crate) fn finish(&self, name: &CacheName, replaces: bool) -> Result<Option<()>, Error> {
        let directory = &self.folder.directory;
        let given = match replaces {
            true => renameat(directory, &self.name, directory, name.file_name()),
            false => linkat(directory, &self.name, directory, name.file_name(), AtFlags::empty()),
        };
        match given {
            Ok(()) => Ok(Some(())),
            // The temporary name is gone if another process removed the cache, with its unfinished files.
            Err(Errno::EXIST | Errno::NOENT) => Ok(None),
            Err(cause) => Err(Error::refused("name", &self.folder.path_of(name), cause)),
        }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // A file that cannot be removed is swept when the cache is.
        let _ = unlinkat(&self.folder.directory, &self.name, AtFlags::empty());
    }
}

/// Reserves the first `bytes` of a file, with [`FallocateFlags::KEEP_SIZE`] only as far as it goes.
pub(crate) fn reserve(file: impl AsFd, flags: FallocateFlags, bytes: u64) -> Result<(), Errno> {
    let has_room = || has_room(&file, &file, bytes);
    in_spite_of_signals(bytes, has_room, |start, length| fallocate(&file, flags, start, length))
}

/// Reserves room by `reserve`, which a signal may interrupt (`fallocate(2)`): in memory, older versions of Linux stop at any
/// signal, and give back all that the call had reserved. A whole cache may take longer than it is from one signal to the
/// next, as where a profiler measures the program. Then it is reserved piece by piece.
///
/// In memory a call that fails gives back what it had reserved, so the whole is tried first. Pieces would stay, in the way of
/// other files; they cannot be punched out again, because other processes may use the file. So none is reserved if not all
/// have room. A file that takes the room meanwhile leaves them there.
fn in_spite_of_signals(
    bytes: u64,
    has_room: impl FnOnce() -> Result<bool, Errno>,
    mut reserve: impl FnMut(u64, u64) -> Result<(), Errno>,
) -> Result<(), Errno> {
    const PIECE_BYTES: u64 = 1 << 20;
    const MOST_INTERRUPTIONS: u32 = 10_000;
    match reserve(0, bytes) {
        Err(Errno::INTR) if has_room()? => {}
        Err(Errno::INTR) => return Err(Errno::NOSPC),
        ended => return ended,
    }
    let (mut start, mut interruptions) = (0, 0);
    while start < bytes {
        let length = (bytes - start).min(PIECE_BYTES);
        match reserve(start, length) {
            Ok(()) => start += length,
            Err(Errno::INTR) if interruptions < MOST_INTERRUPTIONS => interruptions += 1,
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Returns true if a file system has room for so many bytes, together with the room that a file has there.
fn has_room(file_system: impl AsFd, file: impl AsFd, bytes: u64) -> Result<bool, Errno> {
    let (all, there) = (fstatvfs(file_system)?, fstat(file)?);
    let of_file = u64::try_from(there.st_blocks).unwrap_or_default() * 512;
    // A folder in memory without a limit says that it has no blocks at all.
    let is_unlimited = all.f_blocks == 0;
    Ok(is_unlimited || all.f_bavail * all.f_frsize + of_file >= bytes)
}

/// Writes zeros over a whole file, except its mark: for those who have it open, it was not cut short. A page that has no
/// bytes, and no room for any, is left.
pub(crate) fn wipe(file: &File, path: &Path) -> Result<(), Error> {
    static ZEROS: [u8; Division::PAGE_BYTES] = [0; Division::PAGE_BYTES];
    let refused = |cause| Error::Refused { action: "wipe", path: path.into(), cause };
    let mut bytes = file.metadata().map_err(refused)?.len();
    let (mut last, mark) = ([0; Mapping::MARK_BYTES], Mapping::MARK.to_ne_bytes());
    let mark_at = bytes.saturating_sub(mark.len() as u64);
    if file.read_exact_at(&mut last, mark_at).is_ok() && last == mark {
        bytes = mark_at;
    }
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(ZEROS.len() as u64);
        match file.write_all_at(&ZEROS[..length as usize], at) {
            Err(cause) if !is_hole(file, at, length) => return Err(refused(cause)),
            _ => at += length,
        }
    }
    Ok(())
}

/// Returns true if a part of a file has no bytes.
fn is_hole(file: &File, start: u64, bytes: u64) -> bool {
    match seek(file, SeekFrom::Data(start)) {
        Ok(data) => data >= start + bytes,
        Err(cause) => cause == Errno::NXIO,
    }
}

/// Makes a file of a new name, which only its owner may open.
pub(crate) fn make(directory: &OwnedFd, name: &OsStr) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

fn is_own(file: &Stat) -> bool {
    file.st_uid == geteuid().as_raw()
}

fn objection(file: &Stat) -> Option<Objection> {
    Objection::to(file, &[]).or_else(|| (file.st_nlink > 1).then_some(Objection::Linked))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reserves room in a system that a signal interrupts whenever so many bytes were reserved.
    fn reserved(bytes: u64, every: u64) -> (Result<(), Errno>, u64) {
        let (mut until_signal, mut end) = (every, 0);
        let reserve = |start, length| {
            assert_eq!(start, end, "neither twice nor with a gap");
            if until_signal < length {
                until_signal = every;
                return Err(Errno::INTR);
            }
            until_signal -= length;
            end += length;
            Ok(())
        };
        let done = in_spite_of_signals(bytes, || Ok(true), reserve);
        (done, end)
    }

    #[test]
    fn room_is_reserved_whatever_signals_come() {
        for bytes in [0, 1, 4_096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 300 << 20] {
            for every in [u64::MAX, 50 << 20, 1 << 20] {
                assert_eq!(reserved(bytes, every), (Ok(()), bytes), "{bytes} {every}");
            }
        }
        // A system that does nothing but interrupt is left in the end.
        assert_eq!(reserved(2 << 20, 0), (Err(Errno::INTR), 0));
    }

    #[test]
    fn a_lack_of_room_is_told_and_leaves_no_pieces() {
        const BYTES: u64 = 10 << 20;
        let calls = |answers: &[Result<(), Errno>], has_room| {
            let (mut calls, mut answers) = (Vec::new(), answers.iter());
            let reserve = |start, length| {
                calls.push((start, length));
                *answers.next().expect("no more calls")
            };
            (in_spite_of_signals(BYTES, || has_room, reserve), calls)
        };
        let (interrupted, full) = (Err(Errno::INTR), Err(Errno::NOSPC));
        let whole = vec![(0, BYTES)];
        assert_eq!(calls(&[full], Ok(true)), (full, whole.clone()));
        assert_eq!(calls(&[interrupted], Ok(false)), (full, whole.clone()));
        assert_eq!(calls(&[interrupted], Err(Errno::NOSYS)), (Err(Errno::NOSYS), whole));
        // Another file has taken the room meanwhile.
        let (done, called) = calls(&[interrupted, Ok(()), Ok(()), full], Ok(true));
        assert_eq!((done, called.len()), (full, 4));
    }

    #[test]
    fn room_is_looked_for_where_the_file_is() {
        let folder = rejoin_testkit::folder::Folder::new();
        let file = File::create_new(folder.join("file")).expect("made");
        assert_eq!(has_room(&file, &file, 1 << 20), Ok(true));
        assert_eq!(has_room(&file, &file, 1 << 60), Ok(false));
    }
}
