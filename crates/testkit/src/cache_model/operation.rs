//! Operations on a cache, as plain data: made at random, or decoded from a fuzzer's bytes.

use rejoin_cache::{ContextTag, SessionId};

/// One operation on the session of one of the test's clients.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Get { client: u16, context: ContextTag },
    Peek { client: u16, context: ContextTag },
    Take { client: u16, context: ContextTag },
    Insert { client: u16, new: New },
    Hint { client: u16, interval_ms: u64 },
    Retire { client: u16 },
    Remove { client: u16 },
    Forged,
    Rejected,
    Handshake { resumed: bool },
}

/// A session to insert.
#[derive(Debug, Clone, Copy)]
pub struct New {
    pub value_bytes: u16,
    pub expires_ms: u64,
    pub context: ContextTag,
    pub hint_ms: Option<u64>,
    pub sibling: bool,
    pub seen_ms: Option<u64>,
    /// True if the client brings the history of its last arrival.
    pub with_history: bool,
    /// The number of the client's source; zero if it has none.
    pub source: u8,
}

/// A client's id. They are of all lengths from 2 to 32 bytes, and come in pairs that differ by a
/// zero at the end.
pub fn id_of(client: u16) -> SessionId {
    let [low, high] = (client / 2).to_le_bytes();
    let mut bytes = [0xc1; SessionId::LONGEST];
    bytes[..2].copy_from_slice(&[low, high]);
    let length = 2 + usize::from(client / 2 % 30);
    bytes[length] = 0;
    SessionId::new(&bytes[..length + usize::from(client % 2)]).expect("2 to 32 bytes")
}

/// Bytes that no other session shares.
pub fn fill_value(client: u16, serial: u64, value: &mut [u8]) {
    let seed = (u64::from(client) << 48 | serial).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (word, chunk) in (0_u64..).zip(value.chunks_mut(8)) {
        let bytes = seed.wrapping_add(word << 32).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}
