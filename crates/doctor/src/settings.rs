//! The settings of an examination: the server, and how far it may be bothered.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::Error;

/// The most addresses of a host that are examined.
pub const ADDRESSES: usize = 8;
/// The longest name of a host, in bytes.
const NAME_BYTES: usize = 253;
/// The port where none is given.
const HTTPS: u16 = 443;

/// The name of a server, or its address, which is never sent as a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A name that is asked for.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The name or address.
    pub host: Host,
    /// The port.
    pub port: u16,
}

/// The settings of an examination.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The server.
    pub target: Target,
    /// The addresses instead of those that the name has.
    pub addresses: Vec<IpAddr>,
    /// Other names of the server.
    pub names: Vec<Host>,
    /// Returns at once, for each way of resuming at each address: 1 or more.
    pub attempts: u32,
    /// Other sessions that are made before an early one returns, where the server keeps sessions itself.
    pub others: u32,
    /// The time before sessions return again.
    pub wait: Duration,
    /// The longest time for connecting, for the handshake, and for what follows it; a second more for all together.
    pub deadline: Duration,
    /// The most connections to each address.
    pub connections: u32,
    /// True if a request is sent as early data, and its first flight again.
    pub replay: bool,
}

impl Settings {
    /// The settings that `rejoin doctor` has.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            addresses: Vec::new(),
            names: Vec::new(),
            attempts: 8,
            others: 24,
            wait: Duration::from_secs(3),
            deadline: Duration::from_secs(5),
            connections: 160,
            replay: false,
        }
    }

    /// Resolves the addresses, each once and at most [`ADDRESSES`], and returns how many are left out.
    pub(crate) fn resolve(&self) -> Result<(Vec<SocketAddr>, usize), Error> {
        let Target { host, port } = &self.target;
        let given = || self.addresses.iter().map(|address| SocketAddr::new(*address, *port));
        let all: Vec<SocketAddr> = match host {
            _ if !self.addresses.is_empty() => given().collect(),
            Host::Address(address) => vec![SocketAddr::new(*address, *port)],
            Host::Name(name) => (name.as_str(), *port)
                .to_socket_addrs()
                .map_err(|error| Error::NoAddress(name.clone(), error.to_string()))?
                .collect(),
        };
        let mut all = rejoin_report::distinct(all);
        let more = all.len().saturating_sub(ADDRESSES);
        all.truncate(ADDRESSES);
        match all.is_empty() {
            true => Err(Error::NoAddress(host.to_string(), "it has none".to_owned())),
            false => Ok((all, more)),
        }
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(Self::Address(address));
        }
        let possible = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_name = (1..=NAME_BYTES).contains(&text.len()) && text.chars().all(possible);
        is_name.then(|| Self::Name(text.trim_end_matches('.').to_ascii_lowercase())).ok_or_else(
            || "give the name or the address of a server, such as example.com".to_owned(),
        )
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = |host: &str| Ok(Self { host: host.parse()?, port: HTTPS });
        // An address of IPv6 without a port has colons of its own.
        match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') && !host.ends_with(']') => whole(text),
            Some((host, port)) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                let port = port.ok_or("give HOST:PORT, with a port from 1 to 65535")?;
                Ok(Self { host: host.parse()?, port })
            }
            None => whole(text),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Host {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_a_port_or_443() {
        let known = [
            ("Example.com", "example.com:443"),
            ("example.com:8443", "example.com:8443"),
            ("192.0.2.1", "192.0.2.1:443"),
            ("2001:db8::1", "[2001:db8::1]:443"),
            ("[2001:db8::1]:8443", "[2001:db8::1]:8443"),
            ("[2001:db8::1]", "[2001:db8::1]:443"),
        ];
        for (text, shown) in known {
            assert_eq!(text.parse().map(|target: Target| target.to_string()), Ok(shown.into()));
        }
        for wrong in ["", ":443", "a b", "host:0", "host:65536", "host:https", "a\u{1b}[2J"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
