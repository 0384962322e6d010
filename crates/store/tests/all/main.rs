//! The tests of the cache in shared memory, each thing in a module.

mod files;
mod keys;
mod mailbox;
mod processes;
mod replaced;
mod session;

use std::path::Path;

use rejoin_store::Store;
use rejoin_testkit::folder::Folder;

/// A folder in memory, where caches are.
fn folder() -> Folder {
    Folder::below(Path::new(Store::FOLDER))
}
