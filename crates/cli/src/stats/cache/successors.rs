//! The cache of a name that `--watch` shows, and those that take its place.

use std::path::PathBuf;

use rejoin_store::{Error, Store};

use crate::terminal;
use crate::watch::{Lost, Watch};

/// The newest cache of a name.
pub(super) struct Successors {
    folder: PathBuf,
    store: Store,
    watch: Watch,
    /// The number of caches that were replaced.
    pub(super) replaced: usize,
    /// The last trouble that was told of the newest one.
    told: Option<String>,
}

impl Successors {
    pub(super) fn new(folder: PathBuf, store: Store) -> Self {
        let watch = Watch::over(&store);
        Self { folder, store, watch, replaced: 0, told: None }
    }

    /// Returns the newest cache. One that was lost stays until another can be opened: servers may go on with it.
    pub(super) fn newest(&mut self) -> &Store {
        if let Some(lost) = self.watch.lost(&self.store) {
            self.reopen(lost);
        }
        &self.store
    }

    fn reopen(&mut self, lost: Lost) {
        let name = self.store.name().clone();
        let opened = Store::open(&self.folder, &name, None);
        let lost = match lost {
            Lost::Removed => "was removed or replaced",
            Lost::CutShort => "was cut short",
        };
        let goes_on = match &opened {
            Ok(_) => "another one has its name, and is shown from now on",
            Err(Error::NotFound { .. }) => "another one is shown once it has its name",
            Err(error) => &error.to_string(),
        };
        let line = format!("cache {name} {lost}: {goes_on}");
        if self.told.as_ref() != Some(&line) {
            terminal::complain(&line);
        }
        self.told = Some(line);
        if let Ok(store) = opened {
            self.watch = Watch::over(&store);
            (self.store, self.told, self.replaced) = (store, None, self.replaced + 1);
        }
    }
}
