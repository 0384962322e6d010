//! Temporary folders.

use std::fs::{self, DirBuilder};
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder that only its owner may enter, removed with all that is in it when dropped.
///
/// It dereferences to its path, which is short: a Unix socket's path has at most 107 bytes.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A folder in the system's temporary folder.
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// A folder in `parent`.
    pub fn below(parent: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("rejoin-test-{}-{number}", std::process::id()));
        // An earlier process may have had this id, and been killed.
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).expect("a new folder");
        Self { path }
    }

    /// Removes the folders that a process which was killed has left, in memory and in the system's temporary folder.
    pub fn remove_all_of(pid: u32) {
        let prefix = format!("rejoin-test-{pid}-");
        for parent in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
            let entries = fs::read_dir(parent).into_iter().flatten().flatten();
            let is_its = |entry: &fs::DirEntry| {
                entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix))
            };
            for entry in entries.filter(is_its) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it, as text.
    pub fn file(&self, name: &str) -> String {
        self.path.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Writes a file into it. Returns its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, contents).expect("a file");
        path
    }

    /// The names of all that is in it, in order.
    pub fn file_names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).expect("the folder is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
