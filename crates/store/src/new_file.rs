//! Files that appear complete or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::random::random_number;

/// A file with a temporary name beside its target, which it replaces once it is complete.
///
/// Its temporary name cannot be guessed, and the file is always new: neither a file nor a link that another user put
/// there is opened. If it is dropped unfinished, it is removed.
#[derive(Debug)]
pub struct NewFile {
    directory: OwnedFd,
    temporary: OsString,
    target: OsString,
    file: File,
    is_finished: bool,
}

impl NewFile {
    /// Creates the temporary file beside `target`, with this mode less the process's mask.
    ///
    /// # Errors
    /// The path names no file, its folder cannot be opened or written to, or there are no random numbers.
    pub fn beside(target: &Path, mode: u32) -> io::Result<Self> {
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        // The folder need not be readable.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let directory = rustix::fs::open(folder, flags, Mode::empty())?;
        Self::within(directory, target.file_name().ok_or(Errno::ISDIR)?, mode)
    }

    /// Creates the temporary file in an open folder, for a target there.
    ///
    /// # Errors
    /// Those of [`Self::beside`].
    pub fn within(directory: OwnedFd, target: &OsStr, mode: u32) -> io::Result<Self> {
        let number = random_number().map_err(io::Error::other)?;
        let mut temporary = OsString::from(".");
        temporary.push(target);
        temporary.push(format!(".{number:016x}.part"));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&directory, &temporary, flags, Mode::from_raw_mode(mode))?;
        let (target, file) = (target.to_owned(), File::from(file));
        Ok(Self { directory, temporary, target, file, is_finished: false })
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the complete file its target's name, and so replaces the target.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn finish(mut self) -> io::Result<()> {
        renameat(&self.directory, &self.temporary, &self.directory, &self.target)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // A file that cannot be removed has a name that explains it.
            let _ = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn it_is_new_and_unguessable_and_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("rejoin-new-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let target = folder.join("target");
        let names = || -> Vec<_> {
            let entries = std::fs::read_dir(&folder).expect("a folder");
            entries.map(|entry| entry.expect("an entry").file_name()).collect()
        };
        let [one, other] = [0, 1].map(|_| NewFile::beside(&target, 0o600).expect("a file"));
        assert_ne!(one.temporary, other.temporary);
        assert_eq!(names().len(), 2);
        drop(other);
        one.file().write_all(b"complete").expect("written");
        one.finish().expect("replaced");
        assert_eq!(names(), ["target"]);
        assert_eq!(std::fs::read(&target).expect("there"), b"complete");
        std::fs::remove_dir_all(&folder).expect("there");
    }
}
