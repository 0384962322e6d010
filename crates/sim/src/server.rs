//! The servers of a simulation, and what their clients do with sessions.

/// What is the same for all policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The handshakes.
    pub tls: Tls,
    /// How long after its return a client still counts as on its way, in milliseconds.
    pub grace_ms: u64,
    /// Histories of evicted clients the shipped cache keeps, in percent of its sessions. `None`:
    /// its default.
    pub ghosts_percent: Option<u32>,
    /// Whether a device still has its session when it begins another run.
    pub sessions_kept: bool,
    /// What sessions are looked up by.
    pub keyed_by: KeyedBy,
    /// How many servers there are, each with a cache of its own of the capacity simulated.
    pub servers: u16,
    /// Which of them a connection reaches.
    pub balancer: Balancer,
}

impl Default for Server {
    /// One server, as in paper 000.
    fn default() -> Self {
        Self {
            tls: Tls::V1_2,
            grace_ms: rejoin_cache::Settings::GRACE_MS,
            ghosts_percent: None,
            sessions_kept: true,
            keyed_by: KeyedBy::Client,
            servers: 1,
            balancer: Balancer::Random,
        }
    }
}

impl Server {
    /// Whether a client's sessions can go under one name for life: over TLS 1.2, with one server,
    /// and if clients lose none.
    pub fn can_key_by_client(&self) -> bool {
        self.tls == Tls::V1_2 && self.servers == 1 && self.sessions_kept
    }
}

/// The handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// A full handshake makes a session, which is resumed as often as it is found.
    V1_2,
    /// Handshakes make tickets, and a client offers the newest it has.
    V1_3 {
        /// Tickets of a full handshake.
        full: u8,
        /// Tickets of a resumption. If there are none, the one that was resumed goes on.
        resumed: u8,
        /// Whether a ticket is gone once it was resumed, as rustls has it. OpenSSL leaves it in
        /// the cache, for the policy to judge.
        used_once: bool,
    },
}

/// What the caches see as a session's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyedBy {
    /// The client: all its sessions go under one key, so that a policy knows it again. Only where
    /// [`Server::can_key_by_client`]; otherwise as [`Self::Session`].
    Client,
    /// The session's id, new with every session.
    Session,
}

/// Which server a connection reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balancer {
    /// One after the other.
    RoundRobin,
    /// Any, drawn for each connection.
    Random,
    /// Always the same for the same client, chosen by a hash of it.
    Client,
}
