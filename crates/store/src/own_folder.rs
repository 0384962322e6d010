//! Folders of files that hold secrets.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, Uid, fchown, fstat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::{Error, Objection};

/// An open folder that only its owner writes to, so that nobody else can replace a file in it.
#[derive(Debug)]
pub struct OwnFolder {
    directory: OwnedFd,
    owner: u32,
}

impl OwnFolder {
    /// Opens the folder that a file is in. `None` if there is no such folder.
    ///
    /// # Errors
    /// Others may write to it, or it cannot be opened.
    pub fn of(file: &Path) -> Result<Option<Self>, Error> {
        let path = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // The folder need not be readable.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(cause) => return Err(Error::refused("open the folder of", file, cause)),
        };
        let stat = fstat(&directory);
        let stat = stat.map_err(|cause| Error::refused("look at the folder of", file, cause))?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        if mode.intersects(Mode::WGRP | Mode::WOTH) {
            let objection = Objection::Folder { mode: mode.bits() & 0o777 };
            return Err(Error::NotOurs {
                path: file.into(),
                objection,
                owner: None,
                cache: None,
                is_to_be_made: false,
            });
        }
        Ok(Some(Self { directory, owner: stat.st_uid }))
    }

    /// The folder, for files in it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The user id of its owner.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// Gives a file that root made to the owner of the one that it replaces, or else of the folder: whose file it is must be
    /// able to go on reading it.
    pub(crate) fn give_to_owner(&self, made: &File, replaced: Option<&OsStr>) -> io::Result<()> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let there = replaced.map(|name| statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW));
        let before = there.and_then(Result::ok).map(|file| file.st_uid);
        // Of other users nothing is read there, either.
        let owner = before.filter(|uid| *uid == 0).unwrap_or(self.owner);
        let stat = fstat(made)?;
        // A second name could be that of any file of root's.
        if stat.st_uid != owner && stat.st_nlink == 1 {
            match fchown(made, Some(Uid::from_raw(owner)), None) {
                // Root may lack the right to, as in a container. Then the file is root's, as before.
                Ok(()) | Err(Errno::PERM) => {}
                Err(cause) => return Err(cause.into()),
            }
        }
        Ok(())
    }
}
