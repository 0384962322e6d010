//! The tests of the cache in shared memory, each thing in a module.

mod capacity;
mod files;
mod foreign;
mod keys;
mod locks;
mod mailbox;
mod processes;
mod replaced;
mod session;

use std::path::Path;

use rejoin_store::{CacheName, Store};
use rejoin_testkit::folder::Folder;

/// The name of the tests' caches.
fn name() -> CacheName {
    "test".parse().expect("a name")
}

/// A folder in memory, where caches are.
fn folder() -> Folder {
    Folder::below(Path::new(Store::FOLDER))
}
