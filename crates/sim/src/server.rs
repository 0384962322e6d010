//! The servers of a simulation, and their clients' use of sessions.

use std::num::NonZeroU32;

/// The servers, which are the same for all policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The kind of handshakes.
    pub tls: Tls,
    /// The time after its return time for which a client does not count as overdue, in milliseconds.
    pub grace_ms: u64,
    /// The histories of evicted clients that the shipped cache keeps, in percent of its sessions;
    /// `None` for its default. See [`rejoin_cache::Settings::ghosts_percent`].
    pub ghosts_percent: Option<u32>,
    /// True if clients carry their own history, in a ticket or an id that the server has made and
    /// recognises. A client whose session was evicted is then known when it comes back, as by a ghost.
    pub history_carried: bool,
    /// The bound on what one source can take of the shipped cache; `None` if there is none.
    pub fairness: Option<SourceShares>,
    /// True if a device still has its session when it begins another run.
    pub sessions_kept: bool,
    /// The lifetime of sessions, in seconds; `None` if they live for ever. It starts at the handshake that made the
    /// session.
    pub lifetime_s: Option<u32>,
    /// The key by which sessions are looked up.
    pub keyed_by: KeyedBy,
    /// The number of servers, each with a cache of its own of the simulated capacity.
    pub servers: u16,
    /// The choice of the server that a connection reaches.
    pub balancer: Balancer,
}

impl Default for Server {
    /// Returns one server, as in paper 000.
    fn default() -> Self {
        Self {
            tls: Tls::V1_2,
            grace_ms: rejoin_cache::Settings::GRACE_MS,
            ghosts_percent: None,
            history_carried: false,
            fairness: None,
            sessions_kept: true,
            lifetime_s: None,
            keyed_by: KeyedBy::Client,
            servers: 1,
            balancer: Balancer::Random,
        }
    }
}

impl Server {
    /// Returns true if all of a client's sessions can have the same key: over TLS 1.2, with one
    /// server, and if clients lose none.
    pub fn can_key_by_client(&self) -> bool {
        self.tls == Tls::V1_2 && self.servers == 1 && self.sessions_kept
    }

    pub(crate) fn lifetime_ms(&self) -> Option<u64> {
        self.lifetime_s.map(|seconds| u64::from(seconds) * 1_000)
    }
}

/// The sources of clients, and the share that one can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceShares {
    /// The most that one source can have of each shard's places, in percent, 1 to 100.
    pub percent: u32,
    /// The number of sources that the clients of each group come from. `None` and groups beyond the end: every client has its
    /// own.
    pub sources: Vec<Option<NonZeroU32>>,
}

/// The kind of handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// TLS 1.2: a full handshake makes a session, which is resumed as often as it is found.
    V1_2,
    /// TLS 1.3: handshakes make tickets, and a client offers its newest.
    V1_3 {
        /// The number of tickets of a full handshake.
        full: u8,
        /// The number of tickets of a resumption. If there are none, the resumed one stays valid.
        resumed: u8,
        /// True if a resumption removes the ticket, as in rustls. OpenSSL leaves it in the cache for
        /// the policy to evict.
        used_once: bool,
    },
}

impl Tls {
    /// TLS 1.3 with as many tickets as OpenSSL makes by default.
    pub const V1_3_OF_OPENSSL: Self = Self::V1_3 { full: 2, resumed: 1, used_once: false };
}

/// The key of a session in the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyedBy {
    /// The client: all its sessions have one key, so that a policy recognises it. This needs
    /// [`Server::can_key_by_client`]; otherwise it is as [`Self::Session`].
    Client,
    /// The session's id, new with every session.
    Session,
}

/// The choice of the server that a connection reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balancer {
    /// One server after the other.
    RoundRobin,
    /// A random server for each connection.
    Random,
    /// The same server for the same client, chosen by a hash of its number.
    Client,
}
