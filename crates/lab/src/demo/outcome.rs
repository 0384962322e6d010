//! The figures of a demonstration.

use serde::Serialize;

use crate::Ended;

/// The result of a demonstration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How the demonstration ended.
    pub ended: Ended,
    /// The servers' results, in the order in which they were measured.
    pub rows: Vec<Row>,
}

/// One server's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The version: `1.2` or `1.3`.
    pub tls: &'static str,
    /// How sessions were resumed.
    pub resumption: &'static str,
    /// Percent resumed, the first connection of each run left out, as the clients saw it.
    pub hit_after_first_of_run: f64,
    /// The same of devices that lie, if any do.
    pub liars_hit_after_first_of_run: Option<f64>,
    /// Handshakes a second.
    pub handshakes_per_s: f64,
    /// CPU time of the server per connection, in microseconds.
    pub server_cpu_us: f64,
    /// Server memory per session, in bytes; zero where the server keeps none.
    pub cache_bytes_per_session: f64,
    /// Sessions the server could keep.
    pub capacity_sessions: u64,
    /// Handshakes of the whole run that the clients call resumed.
    pub client_resumed: u64,
    /// Handshakes of the whole run that the server calls resumed.
    pub server_resumed: u64,
    /// Handshakes of the whole run that the clients call full.
    pub client_full: u64,
    /// Handshakes of the whole run that the server calls full.
    pub server_full: u64,
    /// Median time of a handshake, in microseconds: resumed ones, or full ones if there are none.
    pub handshake_p50_us: u64,
    /// Connections that failed.
    pub failed: u64,
}

impl Row {
    /// The names of [`Self::figures`].
    pub const HEAD: [&str; 6] =
        ["TLS", "resumption", "resumed %", "handshakes/s", "server CPU µs", "bytes/session"];

    /// Returns the figures that tables show.
    pub fn figures(&self) -> Vec<String> {
        vec![
            self.tls.to_owned(),
            self.resumption.to_owned(),
            format!("{:.1}", self.hit_after_first_of_run),
            format!("{:.0}", self.handshakes_per_s),
            format!("{:.0}", self.server_cpu_us),
            format!("{:.0}", self.cache_bytes_per_session),
        ]
    }
}
