//! A folder in which a capturing program begins a new file now and then, such as `tcpdump -G 60 -w %s.pcap` or `-C 100`.
//!
//! The files are parts of one capture, in the order in which they were written last. The newest is still being written,
//! so that its end is waited for; it is over as soon as there is a newer one. One program writes there.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use indicatif::ProgressBar;
use rejoin_sim::Progress;

use super::inputs::may_be_other;
use super::misuse;
use crate::beside::resolved;

/// The pause between two looks at a folder or a file that may grow.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Device and inode.
type FileId = (u64, u64);

/// A folder of captures that is followed.
pub(super) struct Follow {
    folder: PathBuf,
    /// Files that this command writes.
    outputs: Vec<PathBuf>,
    until: Option<Instant>,
    /// When the files that were read had been written last. A file that was written since is a new one: some programs
    /// begin their oldest file anew. `None` is no capture.
    read: RefCell<HashMap<FileId, Option<SystemTime>>>,
    names: RefCell<HashSet<PathBuf>>,
    is_over: Cell<bool>,
}

/// A file in the folder.
pub(super) struct Part {
    path: PathBuf,
    id: FileId,
    modified: SystemTime,
}

impl Part {
    /// Returns true if it may be something else than a capture.
    pub(super) fn may_be_other(&self) -> bool {
        may_be_other(&self.path)
    }

    /// Returns its name within the folder.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Files that were written in the same moment have names that end in a growing number.
    fn order(&self) -> (SystemTime, usize, &Path) {
        (self.modified, self.path.as_os_str().len(), &self.path)
    }
}

impl Follow {
    pub(super) fn open(
        folder: &Path,
        duration_ms: Option<u64>,
        outputs: Vec<PathBuf>,
    ) -> anyhow::Result<Self> {
        fs::read_dir(folder).map_err(|error| misuse(folder, &error))?;
        Ok(Self {
            folder: folder.to_owned(),
            outputs,
            until: duration_ms.map(|ms| Instant::now() + Duration::from_millis(ms)),
            read: RefCell::default(),
            names: RefCell::default(),
            is_over: Cell::new(false),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of files that were begun.
    pub(super) fn count(&self) -> usize {
        self.names.borrow().len()
    }

    /// Returns true once Ctrl-C or the end of the time has ended the last file.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Waits for the next file. `None` at Ctrl-C or at the end of the time.
    pub(super) fn next(&self, stop: &Progress) -> Option<Part> {
        loop {
            if self.ends(stop) {
                return None;
            }
            if let Some(part) = self.unread(None) {
                self.names.borrow_mut().insert(part.path.clone());
                return Some(part);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns a reader of a file, which ends when there is a newer one.
    pub(super) fn reader<'a>(
        &'a self,
        part: &'a Part,
        stop: &'a Progress,
        bar: &'a ProgressBar,
    ) -> io::Result<impl Read + 'a> {
        let file = File::open(&part.path).inspect_err(|_| self.leave(part, part.modified))?;
        Ok(Reader { follow: self, part, file, stop, bar, is_left: false })
    }

    /// Notes that a file is no capture: it may be written again and again.
    pub(super) fn ignore(&self, part: &Part) {
        self.read.borrow_mut().insert(part.id, None);
    }

    fn leave(&self, part: &Part, modified: SystemTime) {
        self.read.borrow_mut().insert(part.id, Some(modified));
    }

    fn ends(&self, stop: &Progress) -> bool {
        let ends = stop.stopped() || self.until.is_some_and(|until| Instant::now() >= until);
        self.is_over.set(ends);
        ends
    }

    /// Finds the file that was not read and was written before all others, except the one that is being read.
    fn unread(&self, reading: Option<FileId>) -> Option<Part> {
        let read = self.read.borrow();
        let entries = fs::read_dir(&self.folder).ok()?.filter_map(Result::ok);
        let parts = entries.filter_map(|entry| {
            let (path, found) = (entry.path(), entry.metadata().ok()?);
            let (id, modified) = ((found.dev(), found.ino()), found.modified().ok()?);
            let is_later = |left: &Option<SystemTime>| left.is_some_and(|left| modified > left);
            let is_new = read.get(&id).is_none_or(is_later) && reading != Some(id);
            let is_capture = found.is_file() && !self.is_copy(&path) && !self.is_output(&path);
            (is_new && is_capture).then_some(Part { path, id, modified })
        });
        parts.min_by(|a, b| a.order().cmp(&b.order()))
    }

    /// Returns true if a file was read before it was compressed under this name.
    fn is_copy(&self, path: &Path) -> bool {
        let is_compressed =
            path.extension().is_some_and(|ending| ending == "gz" || ending == "zst");
        is_compressed && self.names.borrow().contains(&path.with_extension(""))
    }

    /// Returns true for a file that this command writes; until it is complete its name begins with a dot.
    fn is_output(&self, path: &Path) -> bool {
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        is_hidden || !self.outputs.is_empty() && self.outputs.contains(&resolved(path))
    }
}

struct Reader<'a> {
    follow: &'a Follow,
    part: &'a Part,
    file: File,
    stop: &'a Progress,
    bar: &'a ProgressBar,
    /// True once there is a newer file: nothing more is written to this one.
    is_left: bool,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let length = self.file.read(buffer)?;
            if length > 0 || self.is_left || buffer.is_empty() {
                self.bar.inc(length as u64);
                return Ok(length);
            }
            if self.follow.ends(self.stop) {
                return Ok(0);
            }
            match self.follow.unread(Some(self.part.id)) {
                // What was written to the end of this one before the other one began.
                Some(_) => self.is_left = true,
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let modified = self.file.metadata().and_then(|found| found.modified());
        self.follow.leave(self.part, modified.unwrap_or(self.part.modified));
    }
}
