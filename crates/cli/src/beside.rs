//! Files that commands write, which appear complete or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::arguments::Misuse;

/// A file that is written under a temporary name beside its target, and renamed when it is complete.
/// If it is dropped before, the temporary file is removed.
#[derive(Debug)]
pub(crate) struct Beside {
    /// The path as given.
    path: PathBuf,
    /// The path with links resolved.
    target: PathBuf,
    beside: PathBuf,
    /// The temporary file; `None` once it is renamed.
    file: Option<File>,
}

impl Beside {
    /// Creates the temporary file. Called early, this reports a missing folder before the work starts.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let target = resolved(path);
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned());
        // The rename would replace a device or a pipe.
        let free = target.is_file() || !target.exists();
        let name = name.filter(|_| free).ok_or_else(|| {
            Misuse(format!("{}: not the name of a file to write", path.display()))
        })?;
        let beside = target.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&beside);
        let file = file.with_context(|| format!("{}: cannot be written", path.display()))?;
        Ok(Self { path: path.to_owned(), target, beside, file: Some(file) })
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

    pub(crate) fn write(mut self, text: &str) -> anyhow::Result<()> {
        let written = self.file.as_mut().map(|file| file.write_all(text.as_bytes()));
        written.unwrap_or(Ok(())).with_context(|| self.failed())?;
        self.finish()
    }

    /// Returns the file to write to, for content that is too long for one text.
    pub(crate) fn file(&self) -> anyhow::Result<File> {
        self.file.as_ref().context("closed").and_then(|file| Ok(file.try_clone()?))
    }

    /// Renames the complete file to its target.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        fs::rename(&self.beside, &self.target).with_context(|| self.failed())?;
        self.file = None;
        Ok(())
    }

    fn failed(&self) -> String {
        format!("{}: cannot be written", self.path.display())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.file.is_some() {
            // A file that cannot be removed has a name that explains it.
            let _ = fs::remove_file(&self.beside);
        }
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
