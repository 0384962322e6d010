//! Folders of files that hold secrets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;

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
}
