//! The address of a session in Valkey: its shard's keys, and its hashed id.
//!
//! While the cluster's key is being replaced, ids are hashed under two keys: sessions are stored under the one in use, and
//! looked up under both.

use std::sync::{PoisonError, RwLock};

use aws_lc_rs::hmac;
use rejoin_cache::SessionId;

/// The length of a hashed id: HMAC-SHA-256, truncated.
const MEMBER_BYTES: usize = 16;

/// A hashed id.
pub(super) type Member = [u8; MEMBER_BYTES];

pub(super) struct Addresses {
    name: Box<str>,
    hash_keys: RwLock<HashKeys>,
    shards: Box<[Shard]>,
}

/// The keys under which ids are hashed.
struct HashKeys {
    first: hmac::Key,
    second: Option<hmac::Key>,
}

/// The keys of a shard. Their hash tag puts them into one slot.
pub(super) struct Shard {
    pub(super) order: String,
    pub(super) values: String,
    pub(super) counts: String,
    pub(super) taken: String,
}

pub(super) struct Address<'a> {
    pub(super) shard: &'a Shard,
    pub(super) member: Member,
}

impl Addresses {
    pub(super) fn new(name: &str, hash_key: &[u8; 32], shards: u16) -> Self {
        Self {
            name: name.into(),
            hash_keys: RwLock::new(HashKeys::new(hash_key, None)),
            shards: (0..shards).map(|number| Shard::new(name, number)).collect(),
        }
    }

    /// Hashes ids under other keys from now on.
    pub(super) fn set_hash_keys(&self, first: &[u8; 32], second: Option<&[u8; 32]>) {
        let keys = HashKeys::new(first, second);
        *self.hash_keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Returns the address at which a session is stored.
    pub(super) fn of(&self, id: &SessionId) -> Address<'_> {
        self.all_of(id).0
    }

    /// Returns the addresses at which a session may be: that at which it is stored, and the one under the other key.
    pub(super) fn all_of(&self, id: &SessionId) -> (Address<'_>, Option<Address<'_>>) {
        let keys = self.hash_keys.read().unwrap_or_else(PoisonError::into_inner);
        let at = |key: &hmac::Key| {
            let tag = hmac::sign(key, id.as_bytes());
            self.at(*tag.as_ref().first_chunk().expect("HMAC-SHA-256 has 32 bytes"))
        };
        (at(&keys.first), keys.second.as_ref().map(at))
    }

    /// Returns the address of a hashed id.
    pub(super) fn at(&self, member: Member) -> Address<'_> {
        let number = u128::from_be_bytes(member) % self.shards.len() as u128;
        Address { shard: &self.shards[number as usize], member }
    }

    pub(super) fn shard(&self, number: u16) -> Option<&Shard> {
        self.shards.get(usize::from(number))
    }

    /// Returns a shard of a time with more shards, too.
    pub(super) fn any_shard(&self, number: u16) -> Shard {
        Shard::new(&self.name, number)
    }
}

impl Shard {
    fn new(name: &str, number: u16) -> Self {
        Self {
            order: format!("rejoin:{{{name}.{number}}}:order"),
            values: format!("rejoin:{{{name}.{number}}}:values"),
            counts: format!("rejoin:{{{name}.{number}}}:counts"),
            taken: format!("rejoin:{{{name}.{number}}}:taken"),
        }
    }
}

impl HashKeys {
    fn new(first: &[u8; 32], second: Option<&[u8; 32]>) -> Self {
        let key = |bytes: &[u8; 32]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        Self { first: key(first), second: second.map(key) }
    }
}
