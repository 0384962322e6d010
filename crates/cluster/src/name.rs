//! The names of a cluster, of its sites and of its machines.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A cluster's name: 1 to 64 letters, digits, `.`, `_` and `-`. All of the cluster's keys in Valkey contain it in
/// braces, as their hash tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClusterName(Box<str>);

/// A site's name: 1 to 64 letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteName(Box<str>);

/// A machine's name: 1 to 64 letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MachineName(Box<str>);

impl ClusterName {
    /// The longest name, in bytes.
    pub const LONGEST: usize = 64;

    /// Returns the name of a key of this cluster in Valkey.
    pub(crate) fn valkey_key(&self, what: &str) -> String {
        format!("rejoin:{{{self}}}:{what}")
    }
}

impl MachineName {
    /// Returns the system's host name. Each character that no name has becomes `_`, and what is too long is left out.
    pub fn of_host() -> Self {
        fitted(&rustix::system::uname().nodename().to_string_lossy())
    }
}

fn fitted(host: &str) -> MachineName {
    let fit = |c: char| if u8::try_from(c).is_ok_and(is_allowed) { c } else { '_' };
    let name: String = host.chars().map(fit).take(ClusterName::LONGEST).collect();
    MachineName(if name.is_empty() { "_".into() } else { name.into() })
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

fn checked(name: &str) -> Result<Box<str>, Error> {
    if (1..=ClusterName::LONGEST).contains(&name.len()) && name.bytes().all(is_allowed) {
        Ok(name.into())
    } else {
        Err(Error::BadName { name: name.into() })
    }
}

macro_rules! names {
    ($($Name:ident)*) => {$(
        impl $Name {
            /// Returns the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $Name {
            type Err = Error;

            fn from_str(name: &str) -> Result<Self, Error> {
                checked(name).map(Self)
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

names!(ClusterName SiteName MachineName);

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

    #[test]
    fn every_host_name_makes_a_name() {
        let long = "x".repeat(70);
        for (host, name) in [("web-1", "web-1"), ("", "_"), ("a\u{1b}[2Jé}", "a__2J__")]
            .into_iter()
            .chain([(&*long, &long[..64])])
        {
            assert_eq!(fitted(host).as_str(), name);
            assert_eq!(name.parse::<MachineName>().expect("a name"), fitted(host));
        }
        assert!(MachineName::of_host().as_str().parse::<MachineName>().is_ok());
    }
}
