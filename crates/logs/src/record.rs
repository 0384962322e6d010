//! What is kept of a request: 40 bytes, without any text of its line.

use crate::entry::{Entry, Parser};
use crate::fields::Tls;

/// A request, as it is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    /// The first two are the order.
    pub(crate) time_ms: u64,
    /// The place in the input, and eight flags below it.
    place_and_flags: u64,
    /// The client by address.
    pub(crate) address: u64,
    /// The client by address and program; as `address` if the program is not known.
    pub(crate) program: u64,
    /// The connection, among those of all clients; 0 if it is not known.
    pub(crate) connection: u64,
}

const V13: u64 = 1;
const VERSION_KNOWN: u64 = 2;
const REUSED: u64 = 4;
const REUSED_KNOWN: u64 = 8;
const FIRST: u64 = 16;
const FIRST_KNOWN: u64 = 32;
const PORT: u64 = 64;
const PLAIN: u64 = 128;
const FLAGS: u32 = 8;

impl Record {
    pub(crate) const BYTES: usize = 40;

    pub(crate) fn of(entry: &Entry, place: u64, parser: &Parser) -> Self {
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let flags = flag(entry.tls == Tls::V13, V13)
            | flag(matches!(entry.tls, Tls::V13 | Tls::UpTo12), VERSION_KNOWN)
            | flag(entry.reused == Some(true), REUSED)
            | flag(entry.reused.is_some(), REUSED_KNOWN)
            | flag(entry.is_first == Some(true), FIRST)
            | flag(entry.is_first.is_some(), FIRST_KNOWN)
            | flag(entry.connection_is_port, PORT)
            | flag(entry.tls == Tls::Plain, PLAIN);
        let address = entry.address;
        Self {
            time_ms: entry.time_ms,
            place_and_flags: place << FLAGS | flags,
            address,
            program: entry.agent.map_or(address, |agent| parser.both(address, agent)),
            connection: entry.connection.map_or(0, |serial| parser.both(address, serial).max(1)),
        }
    }

    fn has(&self, flag: u64) -> bool {
        self.place_and_flags & flag != 0
    }

    /// Returns true for TLS 1.3, if the version is known.
    pub(crate) fn is_13(&self) -> Option<bool> {
        self.has(VERSION_KNOWN).then(|| self.has(V13))
    }

    pub(crate) fn reused(&self) -> Option<bool> {
        self.has(REUSED_KNOWN).then(|| self.has(REUSED))
    }

    pub(crate) fn is_first(&self) -> Option<bool> {
        self.has(FIRST_KNOWN).then(|| self.has(FIRST))
    }

    /// Returns true if the request came without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        self.has(PLAIN)
    }

    /// Returns true if the connection is known by the client's port.
    pub(crate) fn is_port(&self) -> bool {
        self.has(PORT)
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let Self { time_ms, place_and_flags, address, program, connection } = self;
        let mut bytes = [0; Self::BYTES];
        let words = [time_ms, place_and_flags, address, program, connection];
        for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..][..8]);
            u64::from_le_bytes(word)
        };
        Self {
            time_ms: word(0),
            place_and_flags: word(1),
            address: word(2),
            program: word(3),
            connection: word(4),
        }
    }
}
