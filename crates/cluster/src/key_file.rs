//! The file of the cluster's secret, which only root and the agent's user can read.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rejoin_store::NewFile;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fchown, fstat, linkat, openat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use zeroize::Zeroizing;

use crate::error::KeyFileFault;
use crate::wrapping_key::fill_at_random;
use crate::{ClusterSecret, Error, RekeyStep};

/// A key file, and the secret that it had when it was read last.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// The user to whom the file may belong, besides root and this user.
    owner: Option<u32>,
    secret: ClusterSecret,
    /// The file from which it was read.
    stamp: Option<Stamp>,
    /// The last reason why a changed file was not read.
    told: Option<String>,
}

/// The marks that tell a file from the one that replaces it, and from itself before it was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl KeyFile {
    /// Reads a file, which may also belong to `owner`.
    ///
    /// # Errors
    /// Those of [`ClusterSecret::read`].
    pub fn open(path: &Path, owner: Option<u32>) -> Result<Self, Error> {
        // Before it is read: what changes later is noticed.
        let stamp = Stamp::of(path).ok();
        let secret = read(path, owner)?.0;
        Ok(Self { path: path.into(), owner, secret, stamp, told: None })
    }

    /// The secret that is in use.
    pub fn secret(&self) -> &ClusterSecret {
        &self.secret
    }

    /// Looks whether the file has changed, and reads it again if so. Returns true if it has another secret, which is used
    /// from now on. The last one stays in use otherwise.
    ///
    /// # Errors
    /// Those of [`ClusterSecret::read`], and [`Error::OtherSecret`]. The same one is returned once until the file can be
    /// read.
    pub fn renew(&mut self) -> Result<bool, Error> {
        let renewed = self.read_changed();
        match &renewed {
            Ok(_) => self.told = None,
            Err(error) => {
                let reason = Some(error.to_string());
                if self.told == reason {
                    return Ok(false);
                }
                self.told = reason;
            }
        }
        renewed
    }

    fn read_changed(&mut self) -> Result<bool, Error> {
        let unreadable = |cause| Error::Unreadable { path: self.path.clone(), cause };
        let stamp = Stamp::of(&self.path).map_err(unreadable)?;
        if self.stamp == Some(stamp) {
            return Ok(false);
        }
        let (secret, _) = read(&self.path, self.owner)?;
        if secret.ids() != self.secret.ids() {
            return Err(Error::OtherSecret { path: self.path.clone() });
        }
        let is_other = secret != self.secret;
        (self.secret, self.stamp) = (secret, Some(stamp));
        Ok(is_other)
    }
}

impl ClusterSecret {
    /// Writes the secret of a new cluster to a new file that only its owner can read: 64 hexadecimal digits and a line
    /// feed. Copy it to every machine of the cluster. The file appears complete or not at all.
    ///
    /// # Errors
    /// The file exists or cannot be written, other users may write to its folder, or there are no random numbers.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let secret = Self::random()?;
        let refused = |cause| Error::Unwritable { path: path.into(), cause };
        let (folder, name) = (folder(path)?, file_name(path)?);
        let mut number = [0; 8];
        fill_at_random(&mut number)?;
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{:016x}.part", u64::from_ne_bytes(number)));
        let made = make(&folder, &temporary, &secret.to_text());
        let named = made.and_then(|()| name_new(&folder, &temporary, name));
        if named.is_err() {
            let _ = unlinkat(&folder, &temporary, AtFlags::empty());
        }
        named.map_err(refused)?;
        Ok(secret)
    }

    /// Reads the secret from a file.
    ///
    /// # Errors
    /// The file cannot be read; other users may read or write it, or write to its folder;
    /// its owner is neither root nor this user; or it does not contain a secret.
    pub fn read(path: &Path) -> Result<Self, Error> {
        read(path, None).map(|(secret, _)| secret)
    }

    /// Takes a step in the replacement of the key, in a file that may also belong to `owner`. The file is replaced as a
    /// whole, by one of the same owner that only this can read. Returns the new contents.
    ///
    /// # Errors
    /// Those of [`Self::read`], [`Error::OutOfTurn`], and the file cannot be written.
    pub fn rekey(path: &Path, owner: Option<u32>, step: RekeyStep) -> Result<Self, Error> {
        let (secret, before) = read(path, owner)?;
        let secret = secret.rekeyed(step)?;
        let refused = |cause| Error::Unwritable { path: path.into(), cause };
        let new = NewFile::within(folder(path)?, file_name(path)?, 0o600).map_err(refused)?;
        replace(new, &before, &secret.to_text()).map_err(refused)?;
        Ok(secret)
    }
}

/// Makes a file that only its owner can read.
fn make(folder: &OwnedFd, name: &OsStr, text: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text)?;
    file.sync_all()
}

/// Gives a complete file its name, unless another file has it.
fn name_new(folder: &OwnedFd, temporary: &OsStr, name: &OsStr) -> io::Result<()> {
    match renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
        // A file system that does not know how, as NFS.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            linkat(folder, temporary, folder, name, AtFlags::empty())?;
            Ok(unlinkat(folder, temporary, AtFlags::empty())?)
        }
        named => Ok(named?),
    }
}

fn replace(new: NewFile, before: &Stat, text: &[u8]) -> io::Result<()> {
    let made = fstat(new.file())?;
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid) {
        let (owner, group) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
        fchown(new.file(), Some(owner), Some(group))?;
    }
    new.file().write_all(text)?;
    new.file().sync_all()?;
    new.finish()
}

fn read(path: &Path, owner: Option<u32>) -> Result<(ClusterSecret, Stat), Error> {
    let bad = |fault| Error::BadKeyFile { path: path.into(), fault };
    let refused = |cause| Error::Unreadable { path: path.into(), cause };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat(folder(path)?, file_name(path)?, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err(bad(KeyFileFault::NotRegular)),
        Err(cause) => return Err(refused(cause.into())),
    };
    let stat = fstat(&file).map_err(|cause| refused(cause.into()))?;
    fault(&stat, owner).map_or(Ok(()), |fault| Err(bad(fault)))?;
    // One byte more shows that the file is too long. The buffer must not grow, because that would leave a copy.
    const MOST: usize = ClusterSecret::LONGEST + 1;
    let mut text = Zeroizing::new(Vec::with_capacity(MOST));
    file.take(MOST as u64).read_to_end(&mut text).map_err(refused)?;
    Ok((ClusterSecret::parse(&text).map_err(bad)?, stat))
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let file = fs::symlink_metadata(path)?;
        let modified = (file.mtime(), file.mtime_nsec());
        Ok(Self { device: file.dev(), inode: file.ino(), bytes: file.size(), modified })
    }
}

/// Opens the folder of a key file, which only its owner may write to.
pub(crate) fn folder(path: &Path) -> Result<OwnedFd, Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let unreadable = |cause: Errno| Error::Unreadable { path: folder.into(), cause: cause.into() };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(folder, flags, Mode::empty()).map_err(unreadable)?;
    let mode = Mode::from_raw_mode(fstat(&directory).map_err(unreadable)?.st_mode);
    if mode.intersects(Mode::WGRP | Mode::WOTH) {
        let fault = KeyFileFault::Folder { mode: mode.bits() & 0o777 };
        return Err(Error::BadKeyFile { path: path.into(), fault });
    }
    Ok(directory)
}

pub(crate) fn file_name(path: &Path) -> Result<&OsStr, Error> {
    let bad = || Error::BadKeyFile { path: path.into(), fault: KeyFileFault::NotRegular };
    path.file_name().ok_or_else(bad)
}

/// Returns the reason why a file is not safe. It may belong to root, to this user, and to `owner`.
pub(crate) fn fault(file: &Stat, owner: Option<u32>) -> Option<KeyFileFault> {
    let mode = Mode::from_raw_mode(file.st_mode);
    let owners = [Some(0), Some(geteuid().as_raw()), owner];
    if FileType::from_raw_mode(file.st_mode) != FileType::RegularFile {
        Some(KeyFileFault::NotRegular)
    } else if !owners.contains(&Some(file.st_uid)) {
        Some(KeyFileFault::Owner { uid: file.st_uid })
    } else if mode.intersects(Mode::RWXG | Mode::RWXO) {
        Some(KeyFileFault::Mode { mode: mode.bits() & 0o777 })
    } else {
        None
    }
}
