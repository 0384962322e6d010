//! How much of a capture is kept at once: every bound of the crate, named.

use crate::{connections, quic};

/// The largest record of a capture file, in bytes. Wireshark's own limit is 256 KiB for a packet;
/// other blocks of a pcapng (secrets, names) may be longer.
pub(crate) const LARGEST_BLOCK_BYTES: usize = 16 << 20;

/// The longest hello that is read, in bytes; what comes after is skipped.
pub(crate) const LONGEST_HELLO_BYTES: usize = 1 << 16;

/// The most of a NewSessionTicket or Certificate that is kept until it is whole, in bytes: the
/// leaf of a chain comes first, and the rest is not read.
pub(crate) const LONGEST_MESSAGE_BYTES: usize = 1 << 14;

/// The longest name there can be (RFC 1035, 2.3.4), in bytes.
pub(crate) const LONGEST_NAME_BYTES: usize = 255;

/// Names of one certificate that are kept.
pub(crate) const MOST_NAMES: usize = 1 << 10;

/// How deep packets may lie in other packets (tunnels).
pub(crate) const DEEPEST_TUNNEL: u8 = 8;

/// Interfaces of one section of a pcapng.
pub(crate) const MOST_INTERFACES: usize = 1 << 16;

/// What reading needs beside what is kept: packets put together, one segment over a bound.
const WORK_BYTES: usize = 1 << 20;

/// What an [`Analyser`](crate::Analyser) may keep in memory: by default at most 280 MB, and
/// never more than [`Self::most_bytes`], however many connections a capture holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections that are watched at once; the one that was silent longest gives way.
    pub connections: usize,
    /// QUIC connections that are watched at once; the one that began first gives way.
    pub quic_connections: usize,
    /// Bytes of one connection and direction that wait for an earlier segment.
    pub waiting_bytes: usize,
    /// Segments of one connection and direction that wait for an earlier segment.
    pub waiting_segments: usize,
    /// Bytes that all connections together may keep while they are watched: waiting segments,
    /// unfinished hellos, and what is known so far (about 1,100 bytes each).
    pub total_bytes: usize,
    /// Bytes of unfinished hellos that all QUIC connections together may keep.
    pub quic_bytes: usize,
    /// Bytes without TLS, in one direction, after which a connection is left alone.
    pub search_bytes: u32,
    /// Bytes of all IP fragments that wait for the rest of their packet.
    pub fragment_bytes: usize,
    /// Bytes of all parsed certificates that are remembered; the one known longest gives way.
    pub certificate_bytes: usize,
    /// Seeds the hash of the connections' table: a secret, if captures may be hostile.
    pub hash_seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1 << 18,
            quic_connections: 1 << 15,
            waiting_bytes: 256 << 10,
            waiting_segments: 256,
            total_bytes: 96 << 20,
            quic_bytes: 16 << 20,
            search_bytes: 64 << 10,
            fragment_bytes: 4 << 20,
            certificate_bytes: 4 << 20,
            hash_seed: 0,
        }
    }
}

impl Limits {
    /// The most an analyser with these limits has in memory at any time, in bytes. Not in it: the
    /// handshakes it gave away, and what the source itself needs (a gzip: 64 KB).
    pub fn most_bytes(&self) -> usize {
        let Self { connections, quic_connections, .. } = *self;
        // Tables double; while they do, the half that was is still there.
        let growing = |count: usize, each: usize| {
            count.max(4).next_power_of_two().saturating_mul(each).saturating_mul(3) / 2
        };
        // A hash table is seven eighths full before it doubles; a byte of each place is its own.
        let table = |count: usize, each: usize| {
            growing(count.saturating_mul(8).div_ceil(7).saturating_add(1), each + 1)
        };
        let kept = [
            growing(connections, connections::SLOT_BYTES + size_of::<u32>()),
            table(connections, connections::PLACE_BYTES),
            growing(quic_connections, quic::PLACE_BYTES),
            table(quic_connections, quic::PLACE_BYTES),
            quic_connections.saturating_mul(quic::CONNECTION_BYTES),
            self.total_bytes,
            self.quic_bytes,
            self.fragment_bytes,
            self.certificate_bytes,
            // The buffer doubles until a record fits.
            3 * LARGEST_BLOCK_BYTES,
            WORK_BYTES,
        ];
        kept.into_iter().fold(0, usize::saturating_add)
    }
}
