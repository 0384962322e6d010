//! What commands write: files that are whole or not there.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::arguments::Misuse;

/// A file that gets its name when it is whole: until then it lies beside, and nothing of it stays
/// behind if it never is.
#[derive(Debug)]
pub(crate) struct Beside {
    /// As it was named.
    path: PathBuf,
    /// Where that leads.
    target: PathBuf,
    beside: PathBuf,
    /// `None` once it has its name.
    file: Option<File>,
}

impl Beside {
    /// Made before there is anything to write, so that a folder that is not there shows early.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let target = resolved(path);
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned());
        // A device or a pipe would be replaced by a file.
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

    /// Complains if it is one of these files, which have another use.
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

    /// Where to write what is too long for one text.
    pub(crate) fn file(&self) -> anyhow::Result<File> {
        self.file.as_ref().context("closed").and_then(|file| Ok(file.try_clone()?))
    }

    /// It is whole.
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
            // What cannot be removed has a name that says what it is.
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// Where a name leads: through links, which stay what they are, whether the file is there or not.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let in_folder = || {
        let folder = fs::canonicalize(folder.unwrap_or_else(|| Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    fs::canonicalize(path).ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}
