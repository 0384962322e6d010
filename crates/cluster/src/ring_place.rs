//! Where the ring of ticket keys is in Valkey: a hash of a version and a page, and a lease beside it.
//!
//! The page is wrapped together with the cluster's name and the version: no other passes as it. Its
//! nonce tells it from every other, even of the same version.

use redis::Script;
use rejoin_tickets::{KeyRing, PAGE_BYTES};
use zeroize::Zeroizing;

use crate::wrapping_key::{Wrapping, WrappingKey, fill_at_random};
use crate::{ClusterName, Error, Link};

/// A cluster's place, as whoever has its key sees it.
pub(crate) struct RingPlace {
    ring: String,
    lease: String,
    /// What pages are bound to, besides their version.
    purpose: Vec<u8>,
    wrapping: Wrapping,
    read: Script,
    replace: Script,
}

/// A ring that is in Valkey, or was.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) version: u64,
    nonce: [u8; Wrapping::NONCE_BYTES],
    pub(crate) ring: KeyRing,
}

/// What is there.
pub(crate) enum Found {
    /// The one that is known, or still none. Whether the lease to add a key is ours now.
    Same { leased: bool },
    /// None, and one was known.
    Nothing,
    /// Another.
    Other(Known),
}

/// What becomes of the lease when a ring is replaced.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'t> {
    /// A key is added, by who has this lease, or takes it; then it is free.
    AddKey(&'t Token),
    /// No key is added.
    Other,
    /// No key is added, and nobody adds one for a while: a server that has a newer ring sees this one
    /// before, and puts its own back.
    PutBack,
}

/// Random bytes: who holds the lease.
#[derive(Debug)]
pub(crate) struct Token([u8; 16]);

const PURPOSE: &[u8] = b"rejoin cluster ring";
/// A key is made and sent much faster; and a server that died while it held it is not missed for long.
const LEASE_MS: u32 = 5_000;
/// All servers look more often.
const REST_MS: u32 = 30_000;

impl RingPlace {
    pub(crate) fn new(name: &ClusterName, key: &WrappingKey) -> Self {
        Self {
            ring: name.valkey_key("ring"),
            lease: name.valkey_key("lease"),
            purpose: [PURPOSE, b" ", name.as_str().as_bytes(), b" "].concat(),
            wrapping: key.wrapping(PURPOSE),
            read: Script::new(include_str!("scripts/read_ring.lua")),
            replace: Script::new(include_str!("scripts/replace_ring.lua")),
        }
    }

    /// What it is called in Valkey.
    pub(crate) fn valkey_key(&self) -> &str {
        &self.ring
    }

    /// What is there. Given a token, asks for the lease, too.
    pub(crate) async fn read(
        &self,
        link: &mut Link,
        known: Option<&Known>,
        token: Option<&Token>,
    ) -> Result<Found, Error> {
        let (version, nonce) = identity(known);
        let token = token.map_or(&[][..], |token| &token.0);
        let mut read = self.read.prepare_invoke();
        read.key(&self.ring).key(&self.lease).arg(version).arg(nonce).arg(token).arg(LEASE_MS);
        let found: (Vec<u8>, Option<Vec<u8>>, bool) = read.invoke_async(link).await?;
        match found {
            (_, None, leased) => Ok(Found::Same { leased }),
            (version, Some(page), _) if version == b"0" && page.is_empty() => Ok(Found::Nothing),
            (version, Some(page), _) => self.open(&version, &page).map(Found::Other),
        }
    }

    /// Puts a ring in the place of the one that is `known`, with the given version. `None`: another
    /// is there, or somebody else has the lease.
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
        Ok(replaced.then(|| Known { version, nonce: nonce(&page), ring }))
    }

    fn wrap(&self, version: u64, ring: &KeyRing) -> Result<Vec<u8>, Error> {
        let mut page = Zeroizing::new([0; PAGE_BYTES]);
        ring.to_page(&mut page);
        self.wrapping.wrap(&self.context(version), &*page)
    }

    fn open(&self, version: &[u8], wrapped: &[u8]) -> Result<Known, Error> {
        let unopened = || Error::Unopened { key: self.ring.clone() };
        let version = str::from_utf8(version).ok().and_then(|text| text.parse().ok());
        let version: u64 = version.ok_or_else(unopened)?;
        let page = self.wrapping.unwrap(&self.context(version), wrapped).ok_or_else(unopened)?;
        let page = page.as_slice().try_into().map_err(|_| unopened())?;
        Ok(Known { version, nonce: nonce(wrapped), ring: KeyRing::from_page(page)? })
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

/// As the scripts compare it.
fn identity(known: Option<&Known>) -> (u64, &[u8]) {
    known.map_or((0, &[]), |known| (known.version, &known.nonce))
}

fn nonce(wrapped: &[u8]) -> [u8; Wrapping::NONCE_BYTES] {
    *wrapped.first_chunk().expect("it was wrapped, or opened")
}
