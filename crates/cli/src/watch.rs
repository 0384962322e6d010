//! Trouble with a cache that a command keeps open: whoever attaches it to a server logs the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rejoin_store::{Store, Trouble};

use crate::terminal;

/// The state of a cache that is kept open.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    is_cut_short: Arc<AtomicBool>,
}

/// The reason why no other process shares a cache any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It has lost its name, or another one has it.
    Removed,
    /// Its file was cut short, and this process has nothing of it.
    CutShort,
}

impl Watch {
    /// Listens from now on, for a command that goes on without the cache, and says each trouble once. Must be called before
    /// the cache is used.
    pub(crate) fn over(store: &Store) -> Self {
        Self::telling(store, |_| true)
    }

    /// Listens like [`Self::over`], for a command that ends once the cache is [`Self::lost`], and says so itself.
    pub(crate) fn until_lost(store: &Store) -> Self {
        Self::telling(store, |trouble| trouble != Trouble::CutShort)
    }

    fn telling(store: &Store, is_told: fn(Trouble) -> bool) -> Self {
        let is_cut_short = Arc::<AtomicBool>::default();
        let (name, is_cut) = (store.name().clone(), Arc::clone(&is_cut_short));
        store.on_trouble(move |trouble| {
            is_cut.fetch_or(trouble == Trouble::CutShort, Ordering::Relaxed);
            if is_told(trouble) {
                terminal::complain(&format!("cache {name}: {trouble}"));
            }
        });
        Self { is_cut_short }
    }

    /// Looks whether other processes still share the cache. `None`: they do.
    pub(crate) fn lost(&self, store: &Store) -> Option<Lost> {
        // It notices a cut, too.
        let is_named = store.facts().is_named;
        match self.is_cut_short.load(Ordering::Relaxed) {
            true => Some(Lost::CutShort),
            false => (!is_named).then_some(Lost::Removed),
        }
    }
}

impl Lost {
    /// Says it of a cache, and that this part of the command ends because of it.
    pub(crate) fn ends(self, part: &str, store: &Store) -> String {
        let name = store.name();
        match self {
            Self::Removed => format!("cache {name} was removed or replaced; the {part} ends"),
            Self::CutShort => format!(
                "cache {name} was cut short; the {part} ends (run `rejoin store remove {name}` and restart the cache's servers)"
            ),
        }
    }
}
