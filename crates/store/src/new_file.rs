//! Files that appear complete or not at all.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::random::random_number;

/// A file with a temporary name beside its target, which it replaces once it is complete.
///
/// Its temporary name cannot be guessed, and the file is always new: neither a file nor a link that another user put
/// there is opened. If it is dropped unfinished, it is removed. If the process is killed, the next one that replaces the same
/// target by [`Self::within`] removes it, because it may hold secrets that were wiped since.
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
        // Others' are left alone: such a file may stay open for hours before it is written.
        Self::made(directory, target.file_name().ok_or(Errno::ISDIR)?, mode)
    }

    /// Creates the temporary file in an open folder, for a target there. Removes those that others have left unfinished a
    /// minute ago or longer, so that it is for files that are written at once.
    ///
    /// # Errors
    /// Those of [`Self::beside`].
    pub fn within(directory: OwnedFd, target: &OsStr, mode: u32) -> io::Result<Self> {
        remove_unfinished(directory.as_fd(), target);
        Self::made(directory, target, mode)
    }

    fn made(directory: OwnedFd, target: &OsStr, mode: u32) -> io::Result<Self> {
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

/// The age of a file that nobody writes any more: several times what a disk takes to keep it.
const UNFINISHED_FOR: Duration = Duration::from_secs(60);
/// The most names of a folder that are looked at.
const MOST_NAMES: usize = 100_000;

/// Removes what processes that were killed have left of a target. What cannot be looked at or removed stays: it keeps nobody
/// from writing the target.
fn remove_unfinished(directory: BorrowedFd<'_>, target: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listed) = openat(directory, ".", flags, Mode::empty()) else { return };
    let Ok(entries) = Dir::new(listed) else { return };
    for entry in entries.take(MOST_NAMES).map_while(Result::ok) {
        let name = entry.file_name();
        if is_unfinished(name.to_bytes(), target) && is_old(directory, name) {
            let _ = unlinkat(directory, name, AtFlags::empty());
        }
    }
}

/// Returns true for the temporary names of a target.
fn is_unfinished(name: &[u8], target: &OsStr) -> bool {
    let name = name.strip_prefix(b".").and_then(|name| name.strip_prefix(target.as_bytes()));
    let number = name.and_then(|name| name.strip_prefix(b"."));
    let number = number.and_then(|name| name.strip_suffix(b".part"));
    number.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Returns true for a file that was last written to a while ago. A time in the future tells nothing.
fn is_old(directory: BorrowedFd<'_>, name: &CStr) -> bool {
    let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let written = u64::try_from(stat.st_mtime).map(Duration::from_secs);
    let now = SystemTime::UNIX_EPOCH.elapsed();
    let age = now.ok().zip(written.ok()).and_then(|(now, written)| now.checked_sub(written));
    is_file && age.is_some_and(|age| age > UNFINISHED_FOR)
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

    /// They may hold keys that were wiped since.
    #[test]
    fn what_was_left_unfinished_is_removed_by_the_next_one() {
        let name = format!("rejoin-unfinished-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let plant = |name: &str, age_s| {
            let file = File::create(folder.join(name)).expect("a file");
            let written = SystemTime::now() - Duration::from_secs(age_s);
            file.set_modified(written).expect("ours");
        };
        let stays = [
            (".ring.0123456789abcde0.part", 30),
            (".other.0123456789abcdef.part", 3_600),
            (".ring.0123456789abcdef.part.x", 3_600),
            (".ring.notes.part", 3_600),
            ("ring.0123456789abcdef.part", 3_600),
        ];
        stays.into_iter().for_each(|(name, age_s)| plant(name, age_s));
        plant(".ring.0123456789abcdef.part", 90);
        let beside = NewFile::beside(&folder.join("ring"), 0o600).expect("a file");
        drop(beside);
        assert!(folder.join(".ring.0123456789abcdef.part").exists(), "somebody may still write it");
        let at = File::open(&folder).expect("a folder");
        let new = NewFile::within(at.into(), OsStr::new("ring"), 0o600).expect("a file");
        new.finish().expect("replaced");
        let entries = std::fs::read_dir(&folder).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut left: Vec<_> = names.map(|name| name.into_string().expect("text")).collect();
        let mut expected: Vec<_> = stays.map(|(name, _)| name).to_vec();
        expected.push("ring");
        left.sort_unstable();
        expected.sort_unstable();
        assert_eq!(left, expected);
        std::fs::remove_dir_all(&folder).expect("there");
    }
}
