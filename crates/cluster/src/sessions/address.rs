//! The address of a session in Valkey: its shard's keys, and its hashed id.

use aws_lc_rs::hmac;
use rejoin_cache::SessionId;

/// The length of a hashed id: HMAC-SHA-256, truncated.
const MEMBER_BYTES: usize = 16;

pub(super) struct Addresses {
    hash_key: hmac::Key,
    shards: Box<[Shard]>,
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
    pub(super) member: [u8; MEMBER_BYTES],
}

impl Addresses {
    pub(super) fn new(name: &str, hash_key: &[u8; 32], shards: u16) -> Self {
        let shard = |number| Shard {
            order: format!("rejoin:{{{name}.{number}}}:order"),
            values: format!("rejoin:{{{name}.{number}}}:values"),
            counts: format!("rejoin:{{{name}.{number}}}:counts"),
            taken: format!("rejoin:{{{name}.{number}}}:taken"),
        };
        Self {
            hash_key: hmac::Key::new(hmac::HMAC_SHA256, hash_key),
            shards: (0..shards).map(shard).collect(),
        }
    }

    pub(super) fn of(&self, id: &SessionId) -> Address<'_> {
        let tag = hmac::sign(&self.hash_key, id.as_bytes());
        let member = *tag.as_ref().first_chunk().expect("HMAC-SHA-256 has 32 bytes");
        let number = u128::from_be_bytes(member) % self.shards.len() as u128;
        Address { shard: &self.shards[number as usize], member }
    }

    pub(super) fn shard(&self, number: u16) -> Option<&Shard> {
        self.shards.get(usize::from(number))
    }
}
