//! The highest version of the ring that a machine has seen, in a file beside the key file.
//!
//! The machine's shared memory has the version of its ring, too, but loses it when the machine restarts.
//!
//! The file is one line, which is written in place through a descriptor that stays open: an agent that has given up
//! root cannot replace a file of root's. The line is authenticated under the cluster's key. A line that was torn, or
//! belongs to an earlier key, counts as none.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;

use crate::error::KeyFileFault;
use crate::wrapping_key::{fault, file_name, folder};
use crate::{ClusterName, Error, WrappingKey};

/// The record of one cluster on one machine. Several processes may have it open.
pub struct RingRecord {
    path: PathBuf,
    /// The open file; `None` if it cannot be written.
    file: Option<File>,
    mac: hmac::Key,
    seen: u64,
    trouble: Option<Error>,
}

impl RingRecord {
    const DIGITS: usize = 20;
    /// The version, a space, the digits of HMAC-SHA-256, and a line feed.
    const LINE_BYTES: usize = Self::DIGITS + 1 + 64 + 1;

    /// Opens the record beside the key file, or creates it. It need not be opened again, so the process may change to
    /// another user. A record that cannot be written is reported by [`Self::take_trouble`].
    ///
    /// # Errors
    /// Other users may read or write the file or write to its folder, or it cannot be read.
    pub fn open(key_file: &Path, key: &WrappingKey, name: &ClusterName) -> Result<Self, Error> {
        let mut path = key_file.as_os_str().to_owned();
        path.push(".seen");
        let path = PathBuf::from(path);
        let purpose = format!("rejoin cluster ring record {name}");
        let mac = hmac::Key::new(hmac::HMAC_SHA256, &*key.derive(purpose.as_bytes()));
        let mut record = Self { path, file: None, mac, seen: 0, trouble: None };
        match record.open_file(OFlags::RDWR) {
            Ok(file) => record.file = Some(record.checked(file)?),
            Err(Errno::NOENT) => {
                match record.open_file(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
                    Ok(file) => record.file = Some(file),
                    Err(cause) => record.trouble = Some(record.unwritable(cause)),
                }
            }
            Err(Errno::LOOP) => return Err(record.bad(KeyFileFault::NotRegular)),
            Err(cause) => {
                record.trouble = Some(record.unwritable(cause));
                let unreadable = |cause: Errno| Error::Unreadable {
                    path: record.path.clone(),
                    cause: cause.into(),
                };
                let file = record.open_file(OFlags::RDONLY).map_err(unreadable)?;
                record.seen = record.read(&record.checked(file)?);
            }
        }
        record.seen = record.file.as_ref().map_or(record.seen, |file| record.read(file));
        Ok(record)
    }

    /// Returns the highest version that was seen; 0 if none is recorded.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Records a version, unless a higher one is recorded. With `lower`, even then.
    pub(crate) fn keep(&mut self, version: u64, lower: bool) {
        if version == self.seen || version < self.seen && !lower {
            return;
        }
        self.seen = version;
        let Some(file) = &self.file else { return };
        if let Err(cause) = self.write(file, version, lower) {
            self.trouble = Some(Error::Unwritable { path: self.path.clone(), cause });
        }
    }

    /// Returns the reason why the record was not written, once.
    pub fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }

    fn write(&self, file: &File, version: u64, lower: bool) -> io::Result<()> {
        flock(file, FlockOperation::LockExclusive)?;
        let written = if lower || self.read(file) < version {
            file.write_all_at(self.line(version).as_bytes(), 0).and_then(|()| file.sync_data())
        } else {
            Ok(())
        };
        flock(file, FlockOperation::Unlock)?;
        written
    }

    fn read(&self, file: &File) -> u64 {
        let mut line = [0; Self::LINE_BYTES];
        let read = file.read_exact_at(&mut line, 0).ok().and_then(|()| str::from_utf8(&line).ok());
        let version = read.and_then(|line| line.get(..Self::DIGITS)?.parse().ok());
        version.filter(|version| Some(&*self.line(*version)) == read).unwrap_or(0)
    }

    fn line(&self, version: u64) -> String {
        let tag = hmac::sign(&self.mac, &version.to_be_bytes());
        let tag: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{version:0digits$} {tag}\n", digits = Self::DIGITS)
    }

    fn open_file(&self, flags: OFlags) -> Result<File, Errno> {
        let folder = folder(&self.path).map_err(|_| Errno::ACCESS)?;
        let name = file_name(&self.path).map_err(|_| Errno::ISDIR)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        openat(folder, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
    }

    fn checked(&self, file: File) -> Result<File, Error> {
        let stat = fstat(&file)
            .map_err(|cause| Error::Unreadable { path: self.path.clone(), cause: cause.into() })?;
        fault(&stat).map_or(Ok(file), |fault| Err(self.bad(fault)))
    }

    fn bad(&self, fault: KeyFileFault) -> Error {
        Error::BadKeyFile { path: self.path.clone(), fault }
    }

    fn unwritable(&self, cause: Errno) -> Error {
        Error::Unwritable { path: self.path.clone(), cause: cause.into() }
    }
}

impl fmt::Debug for RingRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingRecord")
            .field("path", &self.path)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
