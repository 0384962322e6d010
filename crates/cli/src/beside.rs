//! Files that commands write, which appear complete or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rejoin_store::NewFile;

use crate::arguments::Misuse;

/// A file that is written under a temporary name beside its target, and renamed when it is complete.
/// If it is dropped before, the temporary file is removed.
#[derive(Debug)]
pub(crate) struct Beside {
    /// The path as given.
    path: PathBuf,
    /// The path with links resolved.
    target: PathBuf,
    new: NewFile,
}

impl Beside {
    /// Creates the temporary file. Called early, this reports a missing folder before the work starts.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let target = resolved(path);
        // The rename would replace a device or a pipe.
        let free = target.is_file() || !target.exists();
        if !free || target.file_name().is_none() {
            let text = format!("{}: not the name of a file to write", path.display());
            return Err(Misuse(text).into());
        }
        let new = NewFile::beside(&target, 0o666);
        let new = new.with_context(|| format!("{}: cannot be written", path.display()))?;
        Ok(Self { path: path.to_owned(), target, new })
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Returns an error if the target is one of these files, which have another use.
    pub(crate) fn differs_from(&self, others: &[PathBuf]) -> Result<(), Misuse> {
        let what = "already read or written by this command: give another name";
        match others.contains(&self.target) {
            true => Err(Misuse(format!("{}: {what}", self.path.display()))),
            false => Ok(()),
        }
    }

    pub(crate) fn write(self, text: &str) -> anyhow::Result<()> {
        self.new.file().write_all(text.as_bytes()).with_context(|| self.failed())?;
        self.finish()
    }

    /// Returns the file to write to, for content that is too long for one text.
    pub(crate) fn file(&self) -> anyhow::Result<File> {
        Ok(self.new.file().try_clone()?)
    }

    /// Renames the complete file to its target.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let failed = self.failed();
        self.new.finish().context(failed)
    }

    fn failed(&self) -> String {
        format!("{}: cannot be written", self.path.display())
    }
}

/// Resolves the links of a path, whether the file exists or not.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let in_folder = || {
        let folder = fs::canonicalize(folder.unwrap_or_else(|| Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    fs::canonicalize(path).ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}
