//! Which places' certificates may be for a name: by the names in them, so that nobody looks at all
//! places for it.

use std::collections::HashMap;

use super::stored::{CacheKey, Family};
use crate::protocol::Label;

/// Of one user's places. What is missing is a trial less.
#[derive(Debug, Default)]
pub(super) struct Covers {
    by_name: HashMap<Name, Vec<CacheKey>>,
    /// Places under all names.
    all: usize,
}

/// A name as certificates have it, perhaps with `*.`, within what sessions never leave.
type Name = (u16, Label, String);

impl Covers {
    /// Names of one certificate that are noted.
    const NAMES: usize = 32;
    /// Places noted under a name, the last that came.
    const PLACES: usize = 32;

    /// A place got sessions of this family. With `most` places noted all are forgotten: they are
    /// noted anew as programs come.
    pub(super) fn note(&mut self, cache_key: &CacheKey, family: &Family, most: usize) {
        if !cache_key.may_cross_names() {
            return;
        }
        for name in family.chain.names().take(Self::NAMES) {
            if self.all >= most {
                (self.by_name, self.all) = (HashMap::new(), 0);
            }
            let noted =
                self.by_name.entry(within(cache_key, name.to_ascii_lowercase())).or_default();
            if noted.contains(cache_key) {
                continue;
            }
            if noted.len() >= Self::PLACES {
                noted.remove(0);
                self.all -= 1;
            }
            noted.push(cache_key.clone());
            self.all += 1;
        }
    }

    /// The places whose certificates may be for this one's name. Some may be gone.
    pub(super) fn of(&self, cache_key: &CacheKey) -> impl Iterator<Item = &CacheKey> {
        let host = cache_key.host.as_str();
        let parent = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let names = [Some(host.to_owned()), parent].into_iter().flatten();
        let noted = names.filter_map(|name| self.by_name.get(&within(cache_key, name)));
        noted.flatten().filter(|other| other.is_beside(cache_key))
    }

    /// Those that are gone make room.
    pub(super) fn retain(&mut self, stays: impl Fn(&CacheKey) -> bool) {
        self.by_name.retain(|_, noted| {
            noted.retain(&stays);
            !noted.is_empty()
        });
        self.all = self.by_name.values().map(Vec::len).sum();
    }
}

fn within(cache_key: &CacheKey, name: String) -> Name {
    (cache_key.port, cache_key.partition.label.clone(), name)
}
