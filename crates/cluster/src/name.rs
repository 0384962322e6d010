//! The names of a cluster and of its sites.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A site's name: 1 to 64 letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SiteName(Box<str>);

/// A cluster's name: 1 to 64 letters, digits, `.`, `_` and `-`. All of the cluster's keys in Valkey contain it in
/// braces, as their hash tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClusterName(Box<str>);

impl ClusterName {
    /// The longest name, in bytes.
    pub const LONGEST: usize = 64;

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of a key of this cluster in Valkey.
    pub(crate) fn valkey_key(&self, what: &str) -> String {
        format!("rejoin:{{{self}}}:{what}")
    }
}

impl FromStr for ClusterName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        checked(name).map(Self)
    }
}

impl FromStr for SiteName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        checked(name).map(Self)
    }
}

fn checked(name: &str) -> Result<Box<str>, Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=ClusterName::LONGEST).contains(&name.len()) && name.bytes().all(allowed) {
        Ok(name.into())
    } else {
        Err(Error::BadName { name: name.into() })
    }
}

impl SiteName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["a", "shop.example_eu-1", &"x".repeat(64)] {
            let name: ClusterName = good.parse().expect("a name");
            assert_eq!(name.valkey_key("ring"), format!("rejoin:{{{good}}}:ring"));
        }
        for bad in ["", "a b", "a}", "{a", "ä", "a\n", &"x".repeat(65)] {
            assert!(matches!(bad.parse::<ClusterName>(), Err(Error::BadName { .. })), "{bad:?}");
        }
    }
}
