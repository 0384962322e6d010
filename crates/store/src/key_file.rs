//! A ring of ticket keys in a file, for those who want tickets to outlive the machine's memory.
//!
//! It is a page as [`rejoin_tickets::KeyRing::to_page`] writes it, of mode 0600, replaced as a whole.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use rejoin_tickets::{KeyRing, PAGE_BYTES};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat};
use zeroize::Zeroizing;

use crate::error::Objection;
use crate::folder::{ATTEMPTS, PAUSE, fill_at_random};
use crate::{Error, Page};

/// Where the ring is kept.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.into() }
    }

    /// The ring, if there is a file.
    pub(crate) fn read(&self) -> Result<Option<KeyRing>, Error> {
        let Some(page) = self.page()? else { return Ok(None) };
        let bad = |cause| Error::BadKeyFile { path: self.path.clone(), cause };
        KeyRing::from_page(&page).map(Some).map_err(bad)
    }

    /// Writes what `page` gives, unless it is there already. Of several who do so at a time, one after
    /// the other does, so that the last has what was last.
    pub(crate) fn write(
        &self,
        page: impl FnOnce() -> Result<Zeroizing<Page>, Error>,
    ) -> Result<(), Error> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = self.on("open the folder of", File::open(folder))?;
        self.lock(&folder)?;
        let page = page()?;
        // What cannot be read is replaced.
        if self.page().ok().flatten().is_some_and(|there| *there == *page) {
            return Ok(());
        }
        let mut number = [0; 8];
        fill_at_random(&mut number)?;
        let number = u64::from_ne_bytes(number);
        let mut unfinished = self.path.clone().into_os_string();
        unfinished.push(format!(".{number:016x}"));
        let unfinished = PathBuf::from(unfinished);
        let written = self.replace(&unfinished, &page, &folder);
        if written.is_err() {
            // It may not have been made.
            let _ = std::fs::remove_file(&unfinished);
        }
        written
    }

    fn replace(&self, unfinished: &Path, page: &Page, folder: &File) -> Result<(), Error> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::open(unfinished, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(self.on("make a file beside", made)?);
        self.on("write", file.write_all(page).and_then(|()| file.sync_all()))?;
        self.on("replace", std::fs::rename(unfinished, &self.path))?;
        self.on("keep", folder.sync_all())
    }

    fn lock(&self, folder: &File) -> Result<(), Error> {
        for _ in 1..ATTEMPTS {
            match flock(folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        self.on("lock the folder of", flock(folder, FlockOperation::NonBlockingLockExclusive))
    }

    fn page(&self) -> Result<Option<Zeroizing<Page>>, Error> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(cause) => return self.on("open", Err(cause)),
        };
        if let Some(objection) = self.on("look at", objection(&file))? {
            return Err(Error::NotOurs { path: self.path.clone(), objection });
        }
        let mut page = Zeroizing::new([0; PAGE_BYTES]);
        match file.read_exact(&mut *page) {
            // What is too short is no ring, which the checksum says.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
            read => self.on("read", read)?,
        }
        Ok(Some(page))
    }

    fn on<T, E: Into<std::io::Error>>(
        &self,
        action: &'static str,
        done: Result<T, E>,
    ) -> Result<T, Error> {
        let refused =
            |cause: E| Error::Refused { action, path: self.path.clone(), cause: cause.into() };
        done.map_err(refused)
    }
}

/// Root may read a worker's; everybody else reads their own and root's.
fn objection(file: &File) -> Result<Option<Objection>, rustix::io::Errno> {
    let stat = fstat(file)?;
    let (user, mode) = (rustix::process::geteuid(), Mode::from_raw_mode(stat.st_mode));
    let ours = user.is_root() || [0, user.as_raw()].contains(&stat.st_uid);
    Ok(if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        Some(Objection::NotRegular)
    } else if !ours {
        Some(Objection::Owner { uid: stat.st_uid })
    } else if mode.intersects(Mode::RWXG | Mode::RWXO) {
        Some(Objection::Readable { mode: mode.bits() & 0o777 })
    } else {
        None
    })
}
