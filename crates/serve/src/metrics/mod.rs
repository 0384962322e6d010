//! Counters in the text format of OpenMetrics, which Prometheus reads.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use rejoin_cache::Counters;

/// The content type of the text that [`Meters::text`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics to write, in this order.
#[derive(Debug, Default)]
pub struct Meters(Vec<Meter>);

#[derive(Debug)]
struct Meter {
    name: String,
    help: &'static str,
    value: Value,
}

/// Names and values.
pub type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
enum Value {
    Counter(u64),
    Counters(Vec<(Labels, u64)>),
    Seconds(f64),
    Gauge(u64),
    Gauges(&'static str, Vec<(&'static str, u64)>),
}

impl Meters {
    /// Adds a counter. In the text its name begins with `rejoin_` and ends in `_total`.
    pub fn counter(&mut self, name: impl Into<String>, help: &'static str, count: u64) {
        self.add(name, help, Value::Counter(count));
    }

    /// Adds a family of counters, which differ by their labels.
    pub fn counters(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        counts: Vec<(Labels, u64)>,
    ) {
        self.add(name, help, Value::Counters(counts));
    }

    /// Adds a counter of seconds, whose name ends in `_seconds_total`.
    pub fn seconds(&mut self, name: impl Into<String>, help: &'static str, seconds: f64) {
        self.add(name, help, Value::Seconds(seconds));
    }

    /// Adds a gauge, whose value is at most 2⁶³.
    pub fn gauge(&mut self, name: impl Into<String>, help: &'static str, value: u64) {
        self.add(name, help, Value::Gauge(value));
    }

    /// Adds a family of gauges, which differ by one label.
    pub fn gauges(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        label: &'static str,
        values: Vec<(&'static str, u64)>,
    ) {
        self.add(name, help, Value::Gauges(label, values));
    }

    /// Adds all counters of a cache.
    pub fn cache(&mut self, counters: &Counters) {
        for (name, count) in counters.named() {
            let help = help(name);
            match name {
                "sessions" => self.gauge("cache_sessions", help, count),
                "prediction_error_ms" => {
                    self.seconds("cache_prediction_error", help, count as f64 / 1_000.0);
                }
                _ => self.counter(format!("cache_{name}"), help, count),
            }
        }
    }

    /// Returns the text. Every metric gets the `labels`, which are not escaped.
    pub fn text(self, labels: &[(&'static str, String)]) -> String {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), value.clone().into()));
        let mut registry = Registry::with_prefix_and_labels("rejoin", labels);
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut text, &registry);
        text
    }

    fn add(&mut self, name: impl Into<String>, help: &'static str, value: Value) {
        self.0.push(Meter { name: name.into(), help, value });
    }
}

impl Collector for Meters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for Meter { name, help, value } in &self.0 {
            let (kind, unit) = value.kind();
            value.encode(encoder.encode_descriptor(name, help, unit.as_ref(), kind)?)?;
        }
        Ok(())
    }
}

impl Value {
    fn kind(&self) -> (MetricType, Option<Unit>) {
        match self {
            Self::Counter(_) | Self::Counters(_) => (MetricType::Counter, None),
            Self::Seconds(_) => (MetricType::Counter, Some(Unit::Seconds)),
            Self::Gauge(_) | Self::Gauges(..) => (MetricType::Gauge, None),
        }
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        match self {
            Self::Counter(count) => ConstCounter::new(*count).encode(encoder),
            Self::Counters(counts) => counts.iter().try_for_each(|(labels, count)| {
                ConstCounter::new(*count).encode(encoder.encode_family(labels)?)
            }),
            Self::Seconds(seconds) => ConstCounter::new(*seconds).encode(encoder),
            Self::Gauge(value) => ConstGauge::new(*value as i64).encode(encoder),
            Self::Gauges(label, values) => values.iter().try_for_each(|(kind, value)| {
                let labels = [(*label, *kind)];
                ConstGauge::new(*value as i64).encode(encoder.encode_family(&labels)?)
            }),
        }
    }
}

/// Returns the description of a field of [`Counters`], in a line.
fn help(name: &str) -> &'static str {
    match name {
        "sessions" => "Sessions stored now",
        "full_handshakes" => "Handshakes that made a new session",
        "resumed_handshakes" => "Handshakes that resumed one, of the cache or of a ticket",
        "stored" => "Sessions stored",
        "hits" => "Lookups that found a session",
        "misses" => "Lookups that found none, forged ids excepted",
        "forged" => "Ids presented that no server with this key issued",
        "rejected" => "Hits whose session the TLS library declined to resume",
        "expired" => "Misses because the lifetime was over",
        "foreign_context" => "Misses because the session belongs to another context or name",
        "wanted_after_eviction" => "Misses on a session evicted or refused not long before",
        "evicted_overdue" => "Evicted: the client was overdue, or not known",
        "evicted_latest" => "Evicted: the client was expected later than others, or less surely",
        "evicted_oldest" => "Evicted by the policy lru",
        "refused_returns_later" => "Not stored: all others were expected sooner, or more surely",
        "refused_too_large" => "Not stored: too large",
        "refused_expired" => "Not stored: the lifetime was over",
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
        let counters = Counters::default().named();
        let unexplained = counters.iter().find(|(name, _)| help(name) == help(""));
        assert_eq!(unexplained, None);
    }

    #[test]
    fn units_and_labels_are_told() {
        let mut meters = Meters::default();
        meters.cache(&Counters { hits: 3, prediction_error_ms: 1_500, ..Counters::default() });
        meters.gauges("places", "Places", "kind", vec![("near", 1), ("far", 2)]);
        let text = meters.text(&[("cache", "web".into())]);
        for line in [
            "rejoin_cache_hits_total{cache=\"web\"} 3",
            "rejoin_cache_prediction_error_seconds_total{cache=\"web\"} 1.5",
            "rejoin_places{cache=\"web\",kind=\"far\"} 2",
        ] {
            assert!(text.lines().any(|told| told == line), "{line}: {text}");
        }
    }
}
