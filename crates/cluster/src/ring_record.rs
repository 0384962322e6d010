//! The highest version of the ring that a machine has seen, in a file beside the key file.
//!
//! The machine's shared memory has the version of its ring, too, but loses it when the machine restarts.
//!
//! The file has a line for each cluster whose key it is. Lines are written in place through a descriptor that stays open: an
//! agent that has given up root cannot replace a file of root's. A line is authenticated under the cluster's key and name.
//! One that was torn, or was written under a key that is not accepted, counts as none. One under a key that is accepted and
//! not used is written anew.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use rustix::fs::{FlockOperation, Mode, OFlags, Uid, fchown, flock, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::KeyFileFault;
use crate::key_file::{fault, file_name, folder};
use crate::{ClusterName, ClusterSecret, Error};

/// The record of one cluster on one machine. Several processes may have it open.
pub struct RingRecord {
    path: PathBuf,
    /// The open file; `None` if it cannot be written.
    file: Option<File>,
    name: ClusterName,
    /// One for each key that is accepted; the first is used.
    macs: Vec<hmac::Key>,
    /// The user to whom the key file belongs.
    owner: Option<u32>,
    seen: u64,
    trouble: Option<Error>,
}

impl RingRecord {
    const DIGITS: usize = 20;
    /// The version, a space, the digits of HMAC-SHA-256, and a line feed.
    const LINE_BYTES: usize = Self::DIGITS + 1 + 64 + 1;
    /// The most lines. A further one takes the place of the first.
    const MOST_LINES: usize = 16;

    /// Opens the record beside the key file, or creates it. It need not be opened again, so the process may change to
    /// another user. A record that cannot be written is reported by [`Self::take_trouble`].
    ///
    /// # Errors
    /// Other users may read or write the file or write to its folder, or it cannot be read.
    pub fn open(
        key_file: &Path,
        secret: &ClusterSecret,
        name: &ClusterName,
    ) -> Result<Self, Error> {
        let mut path = key_file.as_os_str().to_owned();
        path.push(".seen");
        let (path, macs) = (PathBuf::from(path), macs(secret, name));
        let owner = std::fs::symlink_metadata(key_file).ok().map(|file| file.uid());
        let (name, trouble) = (name.clone(), None);
        let mut record = Self { path, file: None, name, macs, owner, seen: 0, trouble };
        match record.open_file(OFlags::RDWR) {
            Ok(file) => record.file = Some(record.checked(file)?),
            Err(Errno::NOENT) => {
                match record.open_file(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
                    Ok(file) => record.file = Some(record.checked(file)?),
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
                record.seen = record.read(&record.checked(file)?).version;
            }
        }
        record.seen = record.file.as_ref().map_or(record.seen, |file| record.read(file).version);
        record.write_anew();
        Ok(record)
    }

    /// Uses the keys of this secret from now on.
    pub(crate) fn set_secret(&mut self, secret: &ClusterSecret) {
        self.macs = macs(secret, &self.name);
        self.write_anew();
    }

    /// Writes the line under the key in use, if it is under another one.
    fn write_anew(&mut self) {
        if self.seen > 0 {
            self.record(self.seen, false);
        }
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
        self.record(version, lower);
    }

    fn record(&mut self, version: u64, lower: bool) {
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
        let there = self.read(file);
        let version = if lower { version } else { version.max(there.version) };
        let written = if there.is_under_first && there.version == version {
            Ok(())
        } else {
            let (line, at) = (line(&self.macs[0], version), there.place * Self::LINE_BYTES);
            file.write_all_at(line.as_bytes(), at as u64).and_then(|()| file.sync_data())
        };
        flock(file, FlockOperation::Unlock)?;
        written
    }

    /// Reads the first line that one of the keys authenticates. Without one, it has version 0, and the place of a new line.
    fn read(&self, file: &File) -> Line {
        let mut bytes = [0; Self::MOST_LINES * Self::LINE_BYTES];
        let length = file.read_at(&mut bytes, 0).unwrap_or(0);
        let (lines, _) = bytes[..length].as_chunks::<{ Self::LINE_BYTES }>();
        let own = lines.iter().enumerate().find_map(|(place, bytes)| {
            let read = str::from_utf8(bytes).ok()?;
            let version = read.get(..Self::DIGITS)?.parse().ok()?;
            let key = self.macs.iter().position(|mac| line(mac, version) == read)?;
            Some(Line { version, is_under_first: key == 0, place })
        });
        let place = lines.len() % Self::MOST_LINES;
        own.unwrap_or(Line { version: 0, is_under_first: false, place })
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
        if let Some(fault) = fault(&stat, self.owner) {
            return Err(self.bad(fault));
        }
        // What root makes, or made, must not keep the key's owner from starting an agent. A second name could be that of any
        // file of root's.
        let is_to_give = geteuid().is_root() && stat.st_nlink == 1;
        let owner = self.owner.filter(|owner| is_to_give && stat.st_uid != *owner);
        if let Some(owner) = owner {
            // Root may lack the right to, as in a container. Then the file stays root's, as it was.
            let _ = fchown(&file, Some(Uid::from_raw(owner)), None);
        }
        Ok(file)
    }

    fn bad(&self, fault: KeyFileFault) -> Error {
        Error::BadKeyFile { path: self.path.clone(), fault }
    }

    fn unwritable(&self, cause: Errno) -> Error {
        Error::Unwritable { path: self.path.clone(), cause: cause.into() }
    }
}

/// A cluster's line in the file.
struct Line {
    version: u64,
    /// True if it is under the key in use.
    is_under_first: bool,
    /// The number of lines before it.
    place: usize,
}

fn macs(secret: &ClusterSecret, name: &ClusterName) -> Vec<hmac::Key> {
    let purpose = format!("rejoin cluster ring record {name}");
    let mac = |derived: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, derived);
    secret.keys().map(|key| mac(&*key.derive(purpose.as_bytes()))).collect()
}

fn line(mac: &hmac::Key, version: u64) -> String {
    let tag = hmac::sign(mac, &version.to_be_bytes());
    let tag: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{version:0digits$} {tag}\n", digits = RingRecord::DIGITS)
}

impl fmt::Debug for RingRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingRecord")
            .field("path", &self.path)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
