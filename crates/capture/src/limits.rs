//! The bounds on what is kept of a capture, all of them named here.

/// The largest record of a capture file, in bytes. Wireshark's own limit is 256 KiB for a packet;
/// other blocks of a pcapng (secrets, names) may be longer.
pub(crate) const LARGEST_BLOCK_BYTES: usize = 16 << 20;

/// The largest window of a zstd frame, in bytes: what its compressor takes at its usual levels.
pub(crate) const LARGEST_ZSTD_WINDOW_BYTES: u64 = 8 << 20;

/// The longest hello that is read, in bytes; what comes after is skipped.
pub(crate) const LONGEST_HELLO_BYTES: usize = 1 << 16;

/// The longest NewSessionTicket or Certificate prefix that is kept until the message is complete,
/// in bytes. The leaf of a chain comes first; the rest is not read.
pub(crate) const LONGEST_MESSAGE_BYTES: usize = 1 << 14;

/// The largest gap in a handshake, in bytes. More is missing only where the handshake is over, or where
/// another connection has begun between the same ends.
pub(crate) const LARGEST_FLIGHT_BYTES: u32 = 1 << 18;

/// The longest possible DNS name (RFC 1035, 2.3.4), in bytes.
pub(crate) const LONGEST_NAME_BYTES: usize = 255;

/// The most protocols that are kept of a ClientHello (ALPN).
pub(crate) const MOST_PROTOCOLS: usize = 16;

/// The number of names kept of one certificate.
pub(crate) const MOST_NAMES: usize = 1 << 10;

/// The deepest nesting of packets inside packets (tunnels).
pub(crate) const DEEPEST_TUNNEL: u8 = 8;

/// The most interfaces in one section of a pcapng.
pub(crate) const MOST_INTERFACES: usize = 1 << 16;

/// Bounds on the memory of an [`Analyser`](crate::Analyser): 300 MB at most by default, and never
/// more than [`Self::most_bytes`], however many connections a capture holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// TCP connections watched at once; beyond that, the one idle longest is evicted.
    pub connections: usize,
    /// QUIC connections watched at once; beyond that, the oldest is evicted.
    pub quic_connections: usize,
    /// Bytes of one connection and direction that wait for an earlier segment.
    pub waiting_bytes: usize,
    /// Segments of one connection and direction that wait for an earlier segment.
    pub waiting_segments: usize,
    /// Bytes that all watched connections together may keep: waiting segments, unfinished hellos,
    /// and what is known so far (about 1,100 bytes per connection).
    pub total_bytes: usize,
    /// Bytes of unfinished hellos that all QUIC connections together may keep.
    pub quic_bytes: usize,
    /// DTLS associations watched at once; beyond that, the oldest is evicted.
    pub dtls_associations: usize,
    /// Bytes of unfinished messages that all DTLS associations together may keep.
    pub dtls_bytes: usize,
    /// OpenVPN tunnels over UDP watched at once; beyond that, the oldest is evicted.
    pub tunnels: usize,
    /// Bytes of packets and unfinished hellos that all these tunnels together may keep.
    pub tunnel_bytes: usize,
    /// Bytes without TLS, in one direction, after which a connection is ignored.
    pub search_bytes: u32,
    /// Bytes of all IP fragments that wait for the rest of their packets.
    pub fragment_bytes: usize,
    /// Connections whose programs are remembered, where a capture names programs; twice as many are kept at times.
    pub named_connections: usize,
    /// Bytes of all parsed certificates that are remembered; beyond that, the oldest is evicted.
    pub certificate_bytes: usize,
    /// Seed of the connection table's hash. Keep it secret if captures may be hostile.
    pub hash_seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1 << 18,
            quic_connections: 24 << 10,
            waiting_bytes: 256 << 10,
            waiting_segments: 256,
            total_bytes: 88 << 20,
            quic_bytes: 16 << 20,
            dtls_associations: 1 << 12,
            dtls_bytes: 2 << 20,
            tunnels: 1 << 8,
            tunnel_bytes: 1 << 20,
            search_bytes: 64 << 10,
            fragment_bytes: 4 << 20,
            named_connections: 1 << 13,
            certificate_bytes: 4 << 20,
            hash_seed: 0,
        }
    }
}
