//! How much of a capture is kept at once: every bound of the crate, named.

/// The largest record of a capture file, in bytes. Wireshark's own limit is 256 KiB for a packet;
/// other blocks of a pcapng (secrets, names) may be longer.
pub(crate) const LARGEST_BLOCK_BYTES: usize = 16 << 20;

/// The longest hello that is read, in bytes; what comes after is skipped.
pub(crate) const LONGEST_HELLO_BYTES: usize = 1 << 16;

/// How deep packets may lie in other packets (tunnels).
pub(crate) const DEEPEST_TUNNEL: u8 = 8;

/// Interfaces of one section of a pcapng.
pub(crate) const MOST_INTERFACES: usize = 1 << 16;

/// What an [`Analyser`](crate::Analyser) may keep in memory.
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
    /// Bytes that all connections together may keep: waiting segments and unfinished hellos.
    pub total_bytes: usize,
    /// Bytes of unfinished hellos that all QUIC connections together may keep.
    pub quic_bytes: usize,
    /// Bytes without TLS, in one direction, after which a connection is left alone.
    pub search_bytes: u32,
    /// Bytes of all IP fragments that wait for the rest of their packet.
    pub fragment_bytes: usize,
    /// Seeds the hash of the connections' table: a secret, if captures may be hostile.
    pub hash_seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1 << 18,
            quic_connections: 1 << 16,
            waiting_bytes: 256 << 10,
            waiting_segments: 256,
            total_bytes: 128 << 20,
            quic_bytes: 32 << 20,
            search_bytes: 64 << 10,
            fragment_bytes: 4 << 20,
            hash_seed: 0,
        }
    }
}
