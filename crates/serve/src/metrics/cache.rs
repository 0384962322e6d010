//! The counters of a cache as metrics.

use rejoin_cache::Counters;

use super::{Meters, by};

impl Meters {
    /// Adds all counters of a cache.
    pub fn cache(&mut self, counters: &Counters) {
        let Counters { full_handshakes, resumed_handshakes, .. } = *counters;
        let help = "Handshakes that made a new session, or resumed one of the cache or of a ticket";
        let kinds = by("kind", [("full", full_handshakes), ("resumed", resumed_handshakes)]);
        self.counters("cache_handshakes", help, kinds);
        for (name, count) in counters.named() {
            match name {
                "full_handshakes" | "resumed_handshakes" => {}
                "sessions" => self.gauge("cache_sessions", help_of(name), count),
                "prediction_error_ms" => {
                    let seconds = count as f64 / 1_000.0;
                    self.counter("cache_prediction_error_seconds", help_of(name), seconds);
                }
                _ => self.counter(format!("cache_{name}"), help_of(name), count),
            }
        }
    }
}

/// Returns the description of a field of [`Counters`], in a line.
fn help_of(name: &str) -> &'static str {
    match name {
        "sessions" => "Sessions stored now",
        "stored" => "Sessions stored",
        "hits" => "Lookups that found a session",
        "misses" => "Lookups that found none, for any reason; forged ids are not looked up",
        "forged" => "Ids presented that no server with this key issued",
        "rejected" => "Hits whose session the TLS library then declined to resume",
        "expired" => "Misses because the lifetime was over",
        "foreign_context" => "Misses because the session belongs to another context or name",
        "wanted_after_eviction" => "Misses on a session that was evicted or refused recently",
        "evicted_overdue" => "Sessions evicted because the client was overdue, or unknown",
        "evicted_latest" => {
            "Sessions evicted because the client was expected later than others, or less surely"
        }
        "evicted_oldest" => "Sessions evicted by the policy lru, or for one of the cluster",
        "refused_returns_later" => {
            "Sessions not stored because all others were expected sooner, or more surely"
        }
        "evicted_source_share" => {
            "Sessions evicted for another of their source, which had its share"
        }
        "refused_source_share" => {
            "Sessions not stored because their source had its share, and none of it was worth less"
        }
        "refused_too_large" => "Sessions not stored because they were too large",
        "refused_expired" => "Sessions not stored because the lifetime was over",
        "predictions" => "Hits whose return time had been predicted",
        "prediction_error_ms" => "Sum over predictions of how far they were out",
        _ => "A count of the cache",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_explained() {
        let handshakes = ["full_handshakes", "resumed_handshakes"];
        let counters = Counters::default().named();
        let mut others = counters.iter().filter(|(name, _)| !handshakes.contains(name));
        assert_eq!(others.find(|(name, _)| help_of(name) == help_of("")), None);
    }
}
