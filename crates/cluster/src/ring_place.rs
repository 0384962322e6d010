//! The ring of ticket keys in Valkey: a hash with a version and a page, and a lease.
//!
//! The page is encrypted, and authenticated with the cluster's name and the version, so no other page can replace it.
//! Its nonce distinguishes it from every other page, even of the same version.

use redis::Script;
use rejoin_tickets::{KeyRing, PAGE_BYTES};
use zeroize::Zeroizing;

use crate::wrapping_key::{KeyName, Wrapping, fill_at_random};
use crate::{ClusterName, ClusterSecret, Error, Link, Turn};

/// The place of a cluster's ring in Valkey, for holders of the cluster's secret.
pub(crate) struct RingPlace {
    ring: String,
    lease: String,
    /// The context that pages are authenticated with, besides their version.
    purpose: Vec<u8>,
    /// A wrapping for each key that is accepted; the first is used.
    wrappings: Vec<(KeyName, Wrapping)>,
    /// The key that was used before.
    last: Option<KeyName>,
    read: Script,
    replace: Script,
    replicas: Script,
}

/// A ring that was read from Valkey or written to it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) version: u64,
    nonce: [u8; Wrapping::NONCE_BYTES],
    /// The key that the page is wrapped under.
    pub(crate) key: KeyName,
    pub(crate) ring: KeyRing,
}

/// The replicas of the primary that has the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// Those that are connected with it.
    pub connected: u32,
    /// Those of them that have the ring as it was written last.
    pub reached: u32,
}

/// The result of reading the ring.
pub(crate) enum Found {
    /// The known ring, or still none. `leased`: the lease to add a key was granted.
    Same { leased: bool },
    /// No ring, although one was known.
    Nothing,
    /// A different ring.
    Other(Known),
}

/// The kind of a replacement, which decides what happens to the lease.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'t> {
    /// Adds a key. The server must hold the lease with this token, or be able to take it; it is released.
    AddKey(&'t Token),
    /// Adds no key.
    Other,
    /// Adds no key, and keeps all servers from adding one for a while, so that a server with a newer ring can put that
    /// back first.
    PutBack,
}

/// A request for the lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease<'t> {
    pub(crate) token: &'t Token,
    /// The time by this machine's clock, and the most that Valkey's may differ from it.
    pub(crate) now_s: u64,
    pub(crate) most_apart_s: u64,
}

/// The random token of a lease's holder.
#[derive(Debug)]
pub(crate) struct Token([u8; 16]);

const PURPOSE: &[u8] = b"rejoin cluster ring";
/// The length that no wrapped page has.
const TOO_LONG: usize = 2 * PAGE_BYTES;
/// The duration of a lease: much longer than it takes to create a key, and short enough if its holder dies.
const LEASE_MS: u32 = 5_000;
/// The time without new keys after a ring was put back: all servers read the ring more often.
const REST_MS: u32 = 30_000;

impl RingPlace {
    pub(crate) fn new(name: &ClusterName, secret: &ClusterSecret) -> Self {
        let last = secret.other_name().filter(|(turn, _)| *turn == Turn::Last);
        Self {
            ring: name.valkey_key("ring"),
            lease: name.valkey_key("lease"),
            purpose: [PURPOSE, b" ", name.as_str().as_bytes(), b" "].concat(),
            wrappings: secret.keys().map(|key| (key.name(), key.wrapping(PURPOSE))).collect(),
            last: last.map(|(_, name)| name),
            read: Script::new(include_str!("scripts/read_ring.lua")),
            replace: Script::new(include_str!("scripts/replace_ring.lua")),
            replicas: Script::new(include_str!("scripts/replicas.lua")),
        }
    }

    /// Returns the name of the ring's key in Valkey.
    pub(crate) fn valkey_key(&self) -> &str {
        &self.ring
    }

    /// Returns true if a page is under the key that was used before.
    pub(crate) fn is_outdated(&self, known: &Known) -> bool {
        self.last == Some(known.key)
    }

    /// Reads the ring, and Valkey's time in seconds. May also request the lease.
    pub(crate) async fn read(
        &self,
        link: &mut Link,
        known: Option<&Known>,
        lease: Option<Lease<'_>>,
    ) -> Result<(Found, u64), Error> {
        let (version, nonce) = identity(known);
        let (token, now_s, apart_s) = lease
            .map_or((&[][..], 0, 0), |lease| (&lease.token.0[..], lease.now_s, lease.most_apart_s));
        let mut read = self.read.prepare_invoke();
        read.key(&self.ring).key(&self.lease).arg(version).arg(nonce).arg(token).arg(LEASE_MS);
        read.arg(now_s).arg(apart_s).arg(TOO_LONG).arg(REST_MS);
        let found: (Vec<u8>, Option<Vec<u8>>, bool, u64) = read.invoke_async(link).await?;
        let (version, page, leased, now_s) = found;
        let found = match page {
            None => Found::Same { leased },
            Some(page) if version == b"0" && page.is_empty() => Found::Nothing,
            Some(page) => Found::Other(self.open(&version, &page)?),
        };
        Ok((found, now_s))
    }

    /// Replaces the `known` ring by this one, with the given version. `None`: a different ring is there, or another
    /// server holds the lease.
    pub(crate) async fn replace(
        &self,
        link: &mut Link,
        known: Option<&Known>,
        (version, ring): (u64, KeyRing),
        change: Change<'_>,
    ) -> Result<Option<Known>, Error> {
        let (expected, expected_nonce) = identity(known);
        let (token, rest_ms) = match change {
            Change::AddKey(token) => (&token.0[..], 0),
            Change::Other => (&[][..], 0),
            Change::PutBack => (&[][..], REST_MS),
        };
        let page = self.wrap(version, &ring)?;
        let mut replace = self.replace.prepare_invoke();
        replace.key(&self.ring).key(&self.lease).arg(expected).arg(expected_nonce);
        replace.arg(version).arg(&page).arg(token).arg(rest_ms);
        let replaced: bool = replace.invoke_async(link).await?;
        let key = self.wrappings[0].0;
        Ok(replaced.then(|| Known { version, nonce: nonce(&page), key, ring }))
    }

    /// Returns what the replicas must have reached, which is all that was written until now unless a `goal` is given, and how
    /// many have. `None`: the user may not ask.
    pub(crate) async fn replicas(
        &self,
        link: &mut Link,
        goal: Option<&str>,
    ) -> Result<Option<(String, Replicas)>, Error> {
        let mut replicas = self.replicas.prepare_invoke();
        replicas.key(&self.ring).arg(goal.unwrap_or("0"));
        let told: Option<(String, u32, u32)> = replicas.invoke_async(link).await?;
        Ok(told.map(|(goal, connected, reached)| (goal, Replicas { connected, reached })))
    }

    fn wrap(&self, version: u64, ring: &KeyRing) -> Result<Vec<u8>, Error> {
        let mut page = Zeroizing::new([0; PAGE_BYTES]);
        ring.to_page(&mut page);
        self.wrappings[0].1.wrap(&self.context(version), &*page)
    }

    fn open(&self, version: &[u8], wrapped: &[u8]) -> Result<Known, Error> {
        let unopened = || Error::Unopened { key: self.ring.clone() };
        let version = str::from_utf8(version).ok().and_then(|text| text.parse().ok());
        let version: u64 = version.ok_or_else(unopened)?;
        let context = self.context(version);
        let unwrap = |(key, wrapping): &(KeyName, Wrapping)| {
            Some((*key, wrapping.unwrap(&context, wrapped)?))
        };
        let (key, page) = self.wrappings.iter().find_map(unwrap).ok_or_else(unopened)?;
        let page = page.as_slice().try_into().map_err(|_| unopened())?;
        Ok(Known { version, nonce: nonce(wrapped), key, ring: KeyRing::from_page(page)? })
    }

    fn context(&self, version: u64) -> Vec<u8> {
        [&self.purpose[..], &version.to_be_bytes()].concat()
    }
}

impl Token {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut token = Self([0; 16]);
        fill_at_random(&mut token.0)?;
        Ok(token)
    }
}

/// Returns the version and nonce by which the scripts identify a ring.
fn identity(known: Option<&Known>) -> (u64, &[u8]) {
    known.map_or((0, &[]), |known| (known.version, &known.nonce))
}

fn nonce(wrapped: &[u8]) -> [u8; Wrapping::NONCE_BYTES] {
    *wrapped.first_chunk().expect("it was wrapped, or opened")
}
