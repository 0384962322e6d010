//! A folder in which a capturing program begins a new file now and then, such as `tcpdump -G 60 -w %s.pcap` or `-C 100`.
//!
//! The files are parts of one capture, in the order in which they were written last. The newest is still being written,
//! so that its end is waited for; it is over as soon as there is a newer one, or once it is begun anew itself. One program
//! writes there.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use indicatif::ProgressBar;
use rejoin_sim::Progress;

use super::inputs::may_be_other;
use super::misuse;
use crate::beside::resolved;

/// The pause between two looks at a folder or a file that may grow.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The endings of compressed files.
const COMPRESSED: [&str; 2] = ["gz", "zst"];

/// The bytes at the beginning of a capture that tell it from another one: with a packet's time in pcap, and with what the
/// program says of itself in pcapng.
const BEGINNING_BYTES: usize = 64;

/// Device and inode.
type FileId = (u64, u64);

/// A folder of captures that is followed.
pub(super) struct Follow {
    folder: PathBuf,
    /// Files that this command writes.
    outputs: Vec<PathBuf>,
    until: Option<Instant>,
    read: RefCell<HashMap<FileId, Left>>,
    /// The files that were begun. Those that are gone are forgotten now and then, and so are their [`Self::read`].
    names: RefCell<HashSet<PathBuf>>,
    count: Cell<usize>,
    /// The file that was begun last. It may still be written.
    last: Cell<Option<FileId>>,
    is_over: Cell<bool>,
}

/// A file that was read.
enum Left {
    /// A capture, and when it had been written last. One that was written since is a new one: some programs begin their
    /// oldest file anew.
    Capture(SystemTime),
    /// No capture: it may be written again and again. A file of another name or time of creation is another one.
    Other(PathBuf, Option<SystemTime>),
}

impl Left {
    fn is_it(&self, path: &Path, found: &Metadata, modified: SystemTime) -> bool {
        match self {
            Self::Capture(left) => modified <= *left,
            Self::Other(left, created) => left == path && *created == found.created().ok(),
        }
    }
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
            count: Cell::default(),
            last: Cell::default(),
            is_over: Cell::new(false),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of files that were begun.
    pub(super) fn count(&self) -> usize {
        self.count.get()
    }

    /// Returns the number of captures that were not begun.
    pub(super) fn unread_count(&self) -> usize {
        let others = self.all_unread(self.last.get());
        others.iter().filter(|part| !part.may_be_other()).count()
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
                self.last.set(Some(part.id));
                if self.names.borrow_mut().insert(part.path.clone()) {
                    self.count.set(self.count.get() + 1);
                }
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
        let (position, beginning) = (0, Vec::new());
        Ok(Reader {
            follow: self,
            part,
            file,
            stop,
            bar,
            position,
            beginning,
            is_left: false,
            is_anew: false,
        })
    }

    /// Notes that a file is no capture.
    pub(super) fn ignore(&self, part: &Part) {
        let created = fs::metadata(&part.path).and_then(|found| found.created()).ok();
        self.read.borrow_mut().insert(part.id, Left::Other(part.path.clone(), created));
    }

    fn leave(&self, part: &Part, modified: SystemTime) {
        self.read.borrow_mut().insert(part.id, Left::Capture(modified));
    }

    fn ends(&self, stop: &Progress) -> bool {
        let ends = stop.stopped() || self.until.is_some_and(|until| Instant::now() >= until);
        self.is_over.set(ends);
        ends
    }

    /// Finds the file that was not read and was written before all others, except the one that is being read.
    fn unread(&self, reading: Option<FileId>) -> Option<Part> {
        self.all_unread(reading).into_iter().min_by(|a, b| a.order().cmp(&b.order()))
    }

    fn all_unread(&self, reading: Option<FileId>) -> Vec<Part> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let (mut unread, mut ids) = (Vec::new(), HashSet::new());
        for entry in entries.filter_map(Result::ok) {
            let (path, Ok(found)) = (entry.path(), entry.metadata()) else { continue };
            let (id, Ok(modified)) = ((found.dev(), found.ino()), found.modified()) else {
                continue;
            };
            ids.insert(id);
            let read = self.read.borrow();
            let was_read = read.get(&id).is_some_and(|left| left.is_it(&path, &found, modified));
            let is_capture = found.is_file() && !self.is_copy(&path) && !self.is_output(&path);
            if is_capture && !was_read && reading != Some(id) {
                unread.push(Part { path, id, modified });
            }
        }
        self.forget_others(&ids);
        unread
    }

    /// Forgets the files that are gone, if they are many. A file that is being renamed may seem to be.
    fn forget_others(&self, there: &HashSet<FileId>) {
        const MOST_GONE: usize = 1 << 10;
        let most = 2 * there.len() + MOST_GONE;
        let (mut read, mut names) = (self.read.borrow_mut(), self.names.borrow_mut());
        if read.len() > most {
            read.retain(|id, _| there.contains(id));
        }
        if names.len() > most {
            let copies = |path: &Path| COMPRESSED.map(|ending| with_ending(path, ending));
            names.retain(|path| path.exists() || copies(path).iter().any(|copy| copy.exists()));
        }
    }

    /// Returns true if a file was read before it was compressed under this name.
    fn is_copy(&self, path: &Path) -> bool {
        let ending = path.extension().and_then(OsStr::to_str);
        let is_compressed = ending.is_some_and(|ending| COMPRESSED.contains(&ending));
        is_compressed && self.names.borrow().contains(&path.with_extension(""))
    }

    /// Returns true for a file that this command writes; until it is complete its name begins with a dot.
    fn is_output(&self, path: &Path) -> bool {
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        is_hidden || !self.outputs.is_empty() && self.outputs.contains(&resolved(path))
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

struct Reader<'a> {
    follow: &'a Follow,
    part: &'a Part,
    file: File,
    stop: &'a Progress,
    bar: &'a ProgressBar,
    /// The bytes that were read, and the first of them.
    position: u64,
    beginning: Vec<u8>,
    /// True once there is a newer file: nothing more is written to this one.
    is_left: bool,
    /// True once it is begun anew: it is the next part, too.
    is_anew: bool,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_begun_anew()? {
                self.is_anew = true;
                let what = "it was begun anew while it was read, and what was written before may be missing";
                return Err(io::Error::other(what));
            }
            let length = self.file.read(buffer)?;
            self.note(&buffer[..length]);
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

impl Reader<'_> {
    fn note(&mut self, bytes: &[u8]) {
        let missing = BEGINNING_BYTES.saturating_sub(self.beginning.len());
        self.beginning.extend_from_slice(bytes.get(..missing).unwrap_or(bytes));
        self.position += bytes.len() as u64;
    }

    /// Returns true if the file is shorter than what was read of it, or begins with other bytes.
    fn is_begun_anew(&self) -> io::Result<bool> {
        if self.file.metadata()?.len() < self.position {
            return Ok(true);
        }
        let mut beginning = [0; BEGINNING_BYTES];
        let beginning = &mut beginning[..self.beginning.len()];
        let length = self.file.read_at(beginning, 0)?;
        Ok(beginning[..length] != self.beginning[..length])
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if self.is_anew {
            self.follow.read.borrow_mut().remove(&self.part.id);
            return;
        }
        let modified = self.file.metadata().and_then(|found| found.modified());
        self.follow.leave(self.part, modified.unwrap_or(self.part.modified));
    }
}
