//! An index of origins by the names in their certificates, which finds origins whose certificates may cover a name
//! without a search through all of them.

use std::collections::HashMap;

use super::stored::{CacheKey, Family};
use crate::protocol::Label;

/// The index of one user's origins. A missing entry only costs a trial across names.
#[derive(Debug, Default)]
pub(super) struct Covers {
    by_name: HashMap<Name, Vec<CacheKey>>,
    /// The entries under all names.
    all: usize,
}

/// A name as in certificates, possibly with `*.`, within a port and label, which sessions never leave.
type Name = (u16, Label, String);

impl Covers {
    /// The names of one certificate that are noted, at most.
    const NAMES: usize = 32;
    /// The origins noted under one name, at most: the newest ones.
    const PLACES: usize = 32;

    /// Notes that an origin has sessions of this family. When `most` entries are reached, all are forgotten; they are
    /// noted again as programs connect.
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

    /// Returns the origins whose certificates may cover this one's name. Some may be gone.
    pub(super) fn of(&self, cache_key: &CacheKey) -> impl Iterator<Item = &CacheKey> {
        let host = cache_key.host.as_str();
        let parent = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let names = [Some(host.to_owned()), parent].into_iter().flatten();
        let noted = names.filter_map(|name| self.by_name.get(&within(cache_key, name)));
        noted.flatten().filter(|other| other.is_beside(cache_key))
    }

    /// Removes entries that are gone.
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
