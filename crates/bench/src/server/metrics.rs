//! What the server counts, as Prometheus text and as a summary.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;

use super::tls::Acceptor;

/// Of the text that [`Meters::text`] makes.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counted as connections go by.
#[derive(Debug, Default)]
pub(super) struct Counts {
    full: AtomicU64,
    resumed: AtomicU64,
    failed: AtomicU64,
    requests: AtomicU64,
    open: AtomicU64,
}

/// An open connection, until dropped.
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

/// What a server did, from its start to its end.
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
    /// Our cache's counters.
    pub cache: serde_json::Map<String, serde_json::Value>,
}

impl Summary {
    /// Counts once more; OpenSSL's own cache is emptied to weigh it.
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

/// The counts, ready to be encoded.
#[derive(Debug)]
pub(super) struct Meters {
    counters: Vec<(String, &'static str, u64)>,
    gauges: Vec<(&'static str, &'static str, u64)>,
    cpu_seconds: f64,
}

impl Meters {
    pub(super) fn new(acceptor: &Acceptor, counts: &Counts) -> Self {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut counters = vec![
            ("handshakes_full".to_owned(), "Full handshakes", read(&counts.full)),
            ("handshakes_resumed".to_owned(), "Resumed handshakes", read(&counts.resumed)),
            ("handshakes_failed".to_owned(), "Handshakes that failed", read(&counts.failed)),
            ("requests".to_owned(), "Requests answered", read(&counts.requests)),
            ("sessions_rejected".to_owned(), "Sessions found but declined", acceptor.rejected()),
        ];
        let mut gauges = vec![("connections", "Open connections", read(&counts.open))];
        if let Some(cache) = acceptor.cache() {
            let named = cache.counters().named();
            let grows = |(name, _): &(&str, u64)| *name != "sessions";
            counters.extend(named.into_iter().filter(grows).map(|(name, count)| {
                (format!("cache_{name}"), "See rejoin_cache::Counters", count)
            }));
            gauges.push(("cache_sessions", "Sessions stored", cache.counters().sessions));
            gauges.push(("cache_capacity_bytes", "Bytes of the cache", cache.capacity_bytes()));
        }
        Self { counters, gauges, cpu_seconds: cpu_seconds() }
    }

    /// In the OpenMetrics text format, which Prometheus reads.
    pub(super) fn text(self) -> String {
        let mut registry = Registry::with_prefix("rejoin");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut text, &registry);
        text
    }
}

impl Collector for Meters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, count) in &self.counters {
            let counter = ConstCounter::new(*count);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        for (name, help, value) in &self.gauges {
            let gauge = ConstGauge::new(*value as i64);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        let cpu = ConstCounter::new(self.cpu_seconds);
        let help = "CPU time of the process, user and system";
        let kind = cpu.metric_type();
        cpu.encode(encoder.encode_descriptor("cpu", help, Some(&Unit::Seconds), kind)?)
    }
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
