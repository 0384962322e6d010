//! The memory that sessions take, in the shipped cache and in others.

use rejoin_cache::{Capacity, Layout, Settings};

/// Another cache, by its own documentation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peer {
    /// The name of the cache.
    pub name: &'static str,
    /// The bytes of one session.
    pub session_bytes: f64,
    /// The source of that figure.
    pub source: &'static str,
}

/// OpenSSL's own cache in the process.
pub const OPENSSL: Peer = Peer {
    name: "OpenSSL",
    session_bytes: 1_049.0,
    source: "counted as libssl 3.0.19 frees them (docs/benchmarks.md)",
};

/// The cache shared by nginx's workers. It reads `1m` as a mebibyte.
pub const NGINX: Peer = Peer {
    name: "nginx",
    session_bytes: 1_048_576.0 / 4_000.0,
    source: "nginx documentation, ssl_session_cache: one megabyte can store about 4000 sessions",
};

/// The cache shared by HAProxy's threads.
pub const HAPROXY: Peer = Peer {
    name: "HAProxy",
    session_bytes: 200.0,
    source: "HAProxy configuration manual, tune.ssl.cachesize: approximately 200 bytes for a block, \
             one block for a session without a client's certificate",
};

impl Peer {
    /// Returns the bytes of so many sessions.
    pub fn bytes(&self, sessions: u32) -> u64 {
        (f64::from(sessions) * self.session_bytes).ceil() as u64
    }
}

/// Returns the bytes of the shipped cache with room for so many sessions of up to `session_bytes`
/// each, everything included.
///
/// # Errors
/// Returns an error if no cache can be made of these.
pub fn shipped_bytes(
    sessions: u32,
    session_bytes: u32,
    ghosts_percent: Option<u32>,
) -> Result<u64, rejoin_cache::Error> {
    let mut settings = Settings::new(Capacity::Sessions(u64::from(sessions)));
    settings.block_bytes = session_bytes;
    settings.ghosts_percent = ghosts_percent.unwrap_or(settings.ghosts_percent);
    let shards = Layout::for_cache(&settings)?;
    Ok(shards.iter().map(|shard| shard.region_bytes() as u64).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_a_cache_that_is_made() {
        for sessions in [1, 5_000, 300_000] {
            let settings = Settings::new(Capacity::Sessions(u64::from(sessions)));
            let cache = rejoin_cache::Cache::new(&settings, [0; 16], 0).expect("a cache");
            let bytes = shipped_bytes(sessions, settings.block_bytes, None).expect("a layout");
            assert_eq!(bytes, cache.capacity_bytes());
        }
        assert!(shipped_bytes(1, 100_000, None).is_err());
        assert_eq!((NGINX.bytes(4_000), HAPROXY.bytes(3)), (1 << 20, 600));
    }
}
