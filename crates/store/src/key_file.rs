//! A ring of ticket keys in a file, for servers whose tickets must survive a restart of the machine.
//!
//! It is a page as [`rejoin_tickets::KeyRing::to_page`] writes it, of mode 0600, replaced as a whole, in
//! a folder that only its owner writes to. There is no lock, because any process that can open one could keep
//! servers from starting.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use rejoin_tickets::{KeyRing, PAGE_BYTES};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::Error;
use crate::error::Objection;
use crate::new_file::NewFile;
use crate::own_folder::OwnFolder;

/// The page that ticket keys are on.
pub(crate) type Page = [u8; PAGE_BYTES];

/// The file that holds the ring.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// The most attempts to write a ring that changes meanwhile. No real ring changes so often.
    const MOST_WRITES: u32 = 5;

    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.into() }
    }

    /// Reads the ring, if there is a file.
    pub(crate) fn read(&self) -> Result<Option<KeyRing>, Error> {
        let Some(folder) = self.folder()? else { return Ok(None) };
        let Some(page) = self.page(&folder)? else { return Ok(None) };
        let bad = |cause| Error::BadKeyFile { path: self.path.clone(), cause };
        KeyRing::from_page(&page).map(Some).map_err(bad)
    }

    /// Looks whether the file can be replaced, and be read if it is there. Leaves nothing behind.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let folder = self.needed_folder()?;
        self.page(&folder)?;
        self.new_file(&folder).map(drop)
    }

    /// Writes the page that `copy_page` copies, unless the file has it already, and again until the page stays the same.
    /// If several processes write at the same time, the last to read the page also writes last.
    pub(crate) fn write(
        &self,
        copy_page: impl Fn(&mut Page) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let folder = self.needed_folder()?;
        let [mut newest, mut written] = [(); 2].map(|()| Zeroizing::new([0; PAGE_BYTES]));
        copy_page(&mut newest)?;
        for _ in 0..Self::MOST_WRITES {
            self.write_page(&folder, &newest)?;
            written.copy_from_slice(&*newest);
            copy_page(&mut newest)?;
            if *newest == *written {
                break;
            }
        }
        // A process that still changes the ring writes it, too.
        Ok(())
    }

    fn write_page(&self, folder: &OwnFolder, page: &Page) -> Result<(), Error> {
        // A file that cannot be read is replaced.
        if self.page(folder).ok().flatten().is_some_and(|there| *there == *page) {
            return Ok(());
        }
        let (name, new) = (self.file_name()?, self.new_file(folder)?);
        self.on("keep the owner of", folder.give_to_owner(new.file(), Some(name)))?;
        self.on("write", new.file().write_all(page).and_then(|()| new.file().sync_all()))?;
        self.on("replace", new.finish())
    }

    /// Makes a file that can replace this one.
    fn new_file(&self, folder: &OwnFolder) -> Result<NewFile, Error> {
        let name = self.file_name()?;
        let directory = folder.descriptor().try_clone_to_owned();
        let new = directory.and_then(|directory| NewFile::within(directory, name, 0o600));
        self.on("make a file beside", new)
    }

    fn folder(&self) -> Result<Option<OwnFolder>, Error> {
        OwnFolder::of(&self.path)
    }

    fn needed_folder(&self) -> Result<OwnFolder, Error> {
        self.folder()?.ok_or_else(|| self.refused("find the folder of", Errno::NOENT))
    }

    fn page(&self, folder: &OwnFolder) -> Result<Option<Zeroizing<Page>>, Error> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = match openat(folder.descriptor(), self.file_name()?, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(self.not_ours(Objection::SymbolicLink)),
            Err(cause) => return Err(self.refused("open", cause)),
        };
        let stat = self.on("look at", fstat(&file))?;
        // Root's file is read, our own, and that of the folder's owner. So root reads a worker's, where the operator
        // gave the workers a folder, and no other user's.
        let objection = Objection::to(&stat, &[folder.owner()]);
        objection.map_or(Ok(()), |why| Err(self.not_ours(why)))?;
        let mut page = Zeroizing::new([0; PAGE_BYTES]);
        match file.read_exact(&mut *page) {
            // The checksum refuses a page that is too short.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
            read => self.on("read", read)?,
        }
        Ok(Some(page))
    }

    fn file_name(&self) -> Result<&OsStr, Error> {
        self.path.file_name().ok_or_else(|| self.refused("name a file", Errno::ISDIR))
    }

    fn not_ours(&self, objection: Objection) -> Error {
        Error::NotOurs {
            path: self.path.clone(),
            objection,
            owner: None,
            cache: None,
            is_to_be_made: false,
        }
    }

    fn refused(&self, action: &'static str, cause: impl Into<std::io::Error>) -> Error {
        Error::refused(action, &self.path, cause)
    }

    fn on<T, E: Into<std::io::Error>>(
        &self,
        action: &'static str,
        done: Result<T, E>,
    ) -> Result<T, Error> {
        done.map_err(|cause| self.refused(action, cause))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::DirBuilderExt;

    use super::*;

    /// Writes pages of 0, 1, 2 and so on up to the last, as other processes change the ring. Returns the page in the
    /// file and the number of pages that were asked for.
    fn written(last: u8) -> (Option<u8>, u8) {
        let name = format!("test-of-rejoin-key-file-{}-{last}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("a new folder");
        let (file, asked) = (KeyFile::new(&folder.join("keys")), Cell::new(0));
        let copy_page = |page: &mut Page| {
            page.fill(asked.replace(asked.get() + 1).min(last));
            Ok(())
        };
        file.write(copy_page).expect("written");
        let found = std::fs::read_dir(&folder).expect("there").count();
        assert_eq!(found, 1, "something is left beside it");
        let inside = file.folder().and_then(|there| file.page(&there.expect("a folder")));
        std::fs::remove_dir_all(&folder).expect("there");
        (inside.expect("ours").map(|page| page[0]), asked.get())
    }

    #[test]
    fn what_changes_while_it_is_written_is_written_again() {
        assert_eq!(written(0), (Some(0), 2));
        assert_eq!(written(1), (Some(1), 3));
        assert_eq!(written(3), (Some(3), 5));
    }

    #[test]
    fn what_never_stays_as_it_is_stops_nobody() {
        assert_eq!(written(u8::MAX), (Some(4), 6));
    }
}
