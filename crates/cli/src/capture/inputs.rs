//! The sources of captures: files, folders, standard input, an interface, a folder that is followed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use anyhow::Context;
use indicatif::ProgressBar;
use rejoin_sim::Progress;
use rejoin_trace::grouped;
use walkdir::WalkDir;

use super::follow::Follow;
use super::live::Live;
use super::programs::Programs;
use super::{Arguments, misuse};
use crate::arguments::Misuse;
use crate::beside::resolved;
use crate::stoppable::Stoppable;
use crate::terminal;

/// All inputs, ordered by name.
pub(super) struct Inputs {
    list: Vec<Input>,
    follow: Option<Follow>,
    applications: HashMap<String, String>,
    bytes: u64,
}

/// A capture and its name.
pub(super) struct Input {
    /// True if nothing says that this file of a folder is a capture: if it is none, nothing is amiss.
    pub(super) may_be_other: bool,
    /// The name, relative to the folder if one folder is the only argument.
    pub(super) name: String,
    from: From,
}

enum From {
    File(PathBuf),
    StandardInput,
    Interface(Live),
    /// A capture that cannot be read, and the reason.
    Nowhere(String),
}

impl Inputs {
    pub(super) fn find(arguments: &Arguments) -> anyhow::Result<Self> {
        let duration_ms = arguments.duration.map(|time| time.ms);
        let outputs: Vec<PathBuf> = arguments.outputs().map(|path| resolved(&path)).collect();
        let mut list = Vec::new();
        if arguments.follow {
            let [folder] = arguments.files.as_slice() else {
                return Err(Misuse("--follow takes one folder".to_owned()).into());
            };
            let follow = Some(Follow::open(folder, duration_ms, outputs)?);
            return Ok(Self { list, follow, applications: HashMap::new(), bytes: 0 });
        }
        if let Some(interface) = &arguments.interface {
            let live = Live::open(interface, duration_ms)?;
            list.push(Input::new(interface.clone(), From::Interface(live)));
        }
        let is_only = arguments.files.len() == 1;
        for path in &arguments.files {
            match fs::metadata(path) {
                _ if path.as_os_str() == "-" => {
                    list.push(Input::new("-".to_owned(), From::StandardInput));
                }
                Ok(found) if found.is_dir() => list.extend(in_folder(path, is_only, &outputs)),
                Ok(_) => list.push(Input::file(path.display().to_string(), path)),
                Err(error) => {
                    list.push(Input::nowhere(path.display().to_string(), error.to_string()))
                }
            }
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        let size = |input: &Input| match &input.from {
            From::File(path) => fs::metadata(path).map_or(0, |found| found.len()),
            _ => 0,
        };
        let bytes = list.iter().map(size).sum();
        let applications = arguments.app_map.as_deref().map(|path| applications(path, &list));
        let applications = applications.transpose()?.unwrap_or_default();
        Ok(Self { list, follow: None, applications, bytes })
    }

    /// Returns the folder that is followed.
    pub(super) fn follow(&self) -> Option<&Follow> {
        self.follow.as_ref()
    }

    /// Returns the application of the capture of this name.
    pub(super) fn application<'a>(&'a self, name: &'a str) -> &'a str {
        self.applications.get(name).map_or(name, String::as_str)
    }

    /// Returns the number of captures, such as `459 captures`.
    pub(super) fn counted(&self) -> String {
        let count = self.follow().map_or(self.list.len(), Follow::count);
        format!("{} {}", grouped(count as u64), if count == 1 { "capture" } else { "captures" })
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.list.iter().filter_map(|input| match &input.from {
            From::File(path) => Some(path.as_path()),
            _ => None,
        })
    }

    /// Returns true if standard input is read from this file.
    pub(super) fn reads_from(&self, file: &Path) -> bool {
        let is_read = self.list.iter().any(|input| matches!(input.from, From::StandardInput));
        let same = |found: Metadata| {
            let input = rustix::fs::fstat(io::stdin()).ok()?;
            Some((input.st_dev, input.st_ino) == (found.dev(), found.ino()))
        };
        is_read && fs::metadata(file).ok().and_then(same).unwrap_or(false)
    }

    /// Returns true if an input may still grow while it is read.
    pub(super) fn is_live(&self) -> bool {
        self.follow.is_some() || self.list.iter().any(Input::is_live)
    }

    /// Returns a bar over the bytes of all files, which shows on a terminal.
    pub(super) fn bar(&self) -> ProgressBar {
        if self.bytes == 0 {
            return ProgressBar::hidden();
        }
        let style = "reading {bar:30} {percent:>3} %  {bytes_per_sec}, {eta_precise} left";
        terminal::bar(self.bytes, style)
    }

    /// Returns the programs at the ends of a live capture's connections.
    pub(super) fn programs(&self) -> Option<&Programs> {
        self.list.iter().find_map(|input| match &input.from {
            From::Interface(live) => live.programs(),
            _ => None,
        })
    }

    /// Returns the number of packets that a live capture has lost so far, which another thread may read.
    pub(super) fn lost(&self) -> Arc<AtomicU32> {
        let mut lives = self.list.iter().filter_map(|input| match &input.from {
            From::Interface(live) => Some(live.lost()),
            _ => None,
        });
        lives.next().unwrap_or_default()
    }
}

impl<'a> IntoIterator for &'a Inputs {
    type Item = &'a Input;
    type IntoIter = std::slice::Iter<'a, Input>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl Input {
    fn new(name: String, from: From) -> Self {
        Self { name, may_be_other: false, from }
    }

    fn file(name: String, path: &Path) -> Self {
        Self::new(name, From::File(path.to_owned()))
    }

    fn nowhere(name: String, reason: String) -> Self {
        Self::new(name, From::Nowhere(reason))
    }

    /// A file found in a folder.
    fn found(name: String, path: &Path) -> Self {
        Self { may_be_other: may_be_other(path), ..Self::file(name, path) }
    }

    /// Returns true if it may still grow while it is read.
    pub(super) fn is_live(&self) -> bool {
        use std::os::unix::fs::FileTypeExt;
        let is_pipe = |path: &Path| fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo());
        match &self.from {
            From::Interface(_) | From::StandardInput => true,
            From::File(path) => is_pipe(path),
            From::Nowhere(_) => false,
        }
    }

    /// Returns a reader of the capture, which ends with the capture or at Ctrl-C.
    pub(super) fn open<'a>(
        &'a self,
        stop: &'a Progress,
        bar: &'a ProgressBar,
    ) -> Result<Box<dyn Read + 'a>, String> {
        match &self.from {
            From::File(path) => {
                let opened = Stoppable::open(path, stop, |bytes| bar.inc(bytes));
                Ok(Box::new(opened.map_err(|error| error.to_string())?))
            }
            From::StandardInput => {
                let input = Stoppable::standard_input(stop, |bytes| bar.inc(bytes));
                Ok(Box::new(input.map_err(|error| error.to_string())?))
            }
            From::Interface(live) => Ok(Box::new(live.read(stop, bar))),
            From::Nowhere(reason) => Err(reason.clone()),
        }
    }
}

/// Returns true if a file of a folder of captures may be something else, such as a README.
pub(super) fn may_be_other(path: &Path) -> bool {
    const OTHER: [&str; 6] = ["md", "markdown", "rst", "html", "json", "tsv"];
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let is_readme = path.file_stem().is_some_and(|stem| stem.eq_ignore_ascii_case("readme"));
    is_readme || OTHER.contains(&extension)
}

/// Returns every file below a folder but the outputs. Names are relative to the folder if it is the
/// only argument.
fn in_folder(folder: &Path, is_only: bool, outputs: &[PathBuf]) -> Vec<Input> {
    let name = |path: &Path| {
        let from_folder = path.strip_prefix(folder).ok().filter(|_| is_only);
        from_folder.unwrap_or(path).display().to_string()
    };
    let found =
        WalkDir::new(folder).follow_links(true).into_iter().filter_map(|entry| match entry {
            Ok(entry)
                if entry.file_type().is_file() && !outputs.contains(&resolved(entry.path())) =>
            {
                Some(Input::found(name(entry.path()), entry.path()))
            }
            Ok(_) => None,
            Err(error) => {
                let path = error.path().unwrap_or(folder);
                // The system's message, without the names that walkdir adds.
                let reason = error
                    .io_error()
                    .map_or_else(|| "a loop of links".to_owned(), io::Error::to_string);
                Some(Input::nowhere(name(path), reason))
            }
        });
    found.collect()
}

/// Reads lines of file, tab, application, at least one of which must name a capture.
fn applications(path: &Path, inputs: &[Input]) -> anyhow::Result<HashMap<String, String>> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("{}: cannot be read", path.display()))?;
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let found: HashMap<String, String> = lines
        .map(|(at, line)| {
            let (file, application) = line.split_once('\t').ok_or_else(|| {
                misuse(path, &format!("line {}: write file, tab, application", at + 1))
            })?;
            Ok((file.to_owned(), application.to_owned()))
        })
        .collect::<anyhow::Result<_>>()?;
    if !inputs.iter().any(|input| found.contains_key(&input.name)) {
        let name = inputs.first().map_or("", |input| &input.name);
        let what =
            format!("names none of the captures: write names as they are listed, such as {name}");
        return Err(misuse(path, &what));
    }
    Ok(found)
}
