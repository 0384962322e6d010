//! The name of a cache, which is part of the name of its file.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A name of 1 to 64 of the characters `A-Z a-z 0-9 . _ -`, the first not a dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheName(String);

impl CacheName {
    /// Characters of the longest name.
    pub const LONGEST: usize = 64;
    const PREFIX: &str = "rejoin-";

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of its file in a folder.
    pub fn file_name(&self) -> String {
        format!("{}{self}", Self::PREFIX)
    }

    /// Returns the cache whose file has this name.
    pub(crate) fn of_file(file_name: &str) -> Option<Self> {
        file_name.strip_prefix(Self::PREFIX)?.parse().ok()
    }

    /// Returns the cache whose file has this name, or had it until it was complete: who made it sees it there for ever.
    pub fn of_mapped_file(file_name: &str) -> Option<Self> {
        let unfinished = file_name.strip_prefix('.').and_then(|rest| rest.split_once('~'));
        Self::of_file(unfinished.map_or(file_name, |(name, _)| name))
    }

    /// Returns the name of a file that is not complete yet. No cache's name contains the `~` that follows it here.
    pub(crate) fn unfinished_file_name(&self, number: u64) -> String {
        format!("{}{number:016x}", self.unfinished_prefix())
    }

    /// Returns the common beginning of the names of incomplete files.
    pub(crate) fn unfinished_prefix(&self) -> String {
        format!(".{}{self}~", Self::PREFIX)
    }
}

impl FromStr for CacheName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let length = (1..=Self::LONGEST).contains(&name.len());
        if length && name.bytes().all(allowed) && !name.starts_with('.') {
            Ok(Self(name.into()))
        } else {
            Err(Error::BadName { name: name.into() })
        }
    }
}

impl fmt::Display for CacheName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_few_characters() {
        for name in ["a", "nginx", "a.b_C-9", &"x".repeat(64)] {
            let parsed: CacheName = name.parse().expect(name);
            assert_eq!(CacheName::of_file(&parsed.file_name()), Some(parsed));
        }
        for name in ["", ".a", "a/b", "a b", "a~b", "ä", "a\0", &"x".repeat(65)] {
            assert!(name.parse::<CacheName>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_unfinished_file_is_no_cache_nor_of_another() {
        let name: CacheName = "a.b".parse().expect("a name");
        let shorter: CacheName = "a".parse().expect("a name");
        let unfinished = name.unfinished_file_name(7);
        assert_eq!(CacheName::of_file(&unfinished), None);
        assert_eq!(CacheName::of_mapped_file(&unfinished).as_ref(), Some(&name));
        assert_eq!(CacheName::of_mapped_file(&name.file_name()).as_ref(), Some(&name));
        assert!(unfinished.starts_with(&name.unfinished_prefix()));
        assert!(!unfinished.starts_with(&shorter.unfinished_prefix()));
    }
}
