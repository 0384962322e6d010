//! The server's counters, as metrics and as a summary.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::Serialize;

use super::tls::Acceptor;
use crate::metrics::{Labels, Meters, by};

/// The counters of connections and requests.
#[derive(Debug, Default)]
pub(super) struct Counts {
    full: AtomicU64,
    resumed: AtomicU64,
    failed: AtomicU64,
    requests: AtomicU64,
    open: AtomicU64,
}

/// An open connection, which counts until it is dropped.
pub(super) struct Open<'a>(&'a AtomicU64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub(super) fn open(&self) -> Open<'_> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(&self.open)
    }

    pub(super) fn record_handshake(&self, resumed: bool) {
        let kind = if resumed { &self.resumed } else { &self.full };
        kind.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// The counters of a server from its start to its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Full handshakes.
    pub full: u64,
    /// Resumed handshakes.
    pub resumed: u64,
    /// Handshakes that failed or timed out.
    pub failed: u64,
    /// Requests answered.
    pub requests: u64,
    /// CPU time of the process per handshake, in microseconds.
    pub cpu_us_per_handshake: f64,
    /// Bytes of server memory per session; zero without a cache.
    pub cache_bytes_per_session: f64,
    /// The counters of Rejoin's cache.
    pub cache: serde_json::Map<String, serde_json::Value>,
}

impl Summary {
    /// Reads the counters for the last time. To measure OpenSSL's internal cache, this empties it.
    pub(super) fn of(acceptor: &Acceptor, counts: &Counts) -> Self {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (full, resumed) = (read(&counts.full), read(&counts.resumed));
        let counters = acceptor.cache().map(rejoin_cache::Cache::counters);
        let named = counters.iter().flat_map(rejoin_cache::Counters::named);
        Self {
            full,
            resumed,
            failed: read(&counts.failed),
            requests: read(&counts.requests),
            cpu_us_per_handshake: cpu_seconds() * 1e6 / ((full + resumed).max(1)) as f64,
            cache_bytes_per_session: acceptor.bytes_per_session(),
            cache: named.map(|(name, count)| (name.to_owned(), count.into())).collect(),
        }
    }
}

/// Returns the counters as metrics.
pub(super) fn meters(acceptor: &Acceptor, counts: &Counts, began: Instant) -> Meters {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let Counts { full, resumed, failed, requests, open } = counts;
    let kinds = [("full", read(full)), ("resumed", read(resumed)), ("failed", read(failed))];
    let mut meters = Meters::new(Labels::new());
    meters.counters("server_handshakes", "Handshakes with clients", by("kind", kinds));
    meters.counter("server_requests", "Requests answered", read(requests));
    meters.gauge("server_connections", "Connections open now", read(open));
    let help = "CPU time of the process, user and system";
    meters.counter("server_cpu_seconds", help, cpu_seconds());
    // For rates: a busy server answers late.
    let help = "Time since the server began";
    meters.counter("server_up_seconds", help, began.elapsed().as_secs_f64());
    if let Some(cache) = acceptor.cache() {
        meters.cache(&cache.counters());
        meters.gauge("cache_capacity_bytes", "Size of the cache", cache.capacity_bytes());
    }
    meters
}

/// Returns the user and system time of this process.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
