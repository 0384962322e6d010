//! Folders that exist only while an experiment runs.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::Error;

/// A folder for this process among the system's temporary ones, removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(study: &str) -> Result<Self, Error> {
        let name = format!("rejoin-{study}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        create(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Leftovers are harmless: keys of certificates that expire soon and that nobody trusts.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates a folder for its owner alone.
pub(crate) fn create(folder: &Path) -> Result<(), Error> {
    let created = DirBuilder::new().mode(0o700).create(folder);
    created.map_err(|source| Error::file(folder.to_owned(), source))
}
