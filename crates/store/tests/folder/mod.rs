//! A folder in memory that goes when the test is over.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rejoin_store::Store;

pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-of-rejoin-{}-{number}", std::process::id());
        let path = Path::new(Store::FOLDER).join(name);
        DirBuilder::new().mode(0o700).create(&path).expect("a new folder");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("there");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("read").file_name();
        entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is found by whoever looks into the folder above.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
