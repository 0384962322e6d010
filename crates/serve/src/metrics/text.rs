//! The text of metrics, in either format, by the encoder of `prometheus-client`.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::{Family, Format, Kind, Labels, Number};

/// Returns the text of these metrics.
pub(super) fn encode(families: Vec<Family>, format: Format) -> String {
    let mut registry = Registry::with_prefix("rejoin");
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match format {
        Format::OpenMetrics => {
            registry.register_collector(Box::new(OpenMetrics(families)));
            text::encode(&mut text, &registry)
        }
        Format::Prometheus => {
            registry.register_collector(Box::new(Prometheus(families)));
            text::encode_registry(&mut text, &registry)
        }
    };
    text
}

/// Metrics for OpenMetrics, in which suffixes are no part of a metric's name.
#[derive(Debug)]
struct OpenMetrics(Vec<Family>);

impl Collector for OpenMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for Family { name, help, kind, samples } in &self.0 {
            let (name, unit) = parts(name);
            let kind_told = match kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let mut encoder = encoder.encode_descriptor(name, help, unit.as_ref(), kind_told)?;
            for (labels, number) in samples {
                match kind {
                    Kind::Counter => sample(&mut encoder, labels, *number, Number::count)?,
                    Kind::Gauge => sample(&mut encoder, labels, *number, Number::gauge)?,
                    Kind::Info => encoder.encode_info(labels)?,
                }
            }
        }
        Ok(())
    }
}

/// Metrics for Prometheus' own format, in which suffixes are a part of a metric's name, and there are no units. As a
/// gauge every metric is written by the name that it has.
#[derive(Debug)]
struct Prometheus(Vec<Family>);

impl Collector for Prometheus {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for Family { name, help, kind, samples } in &self.0 {
            let name = format!("{name}{}", kind.suffix());
            let kind = match kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge | Kind::Info => MetricType::Gauge,
            };
            let mut encoder = encoder.encode_descriptor(&name, help, None, kind)?;
            for (labels, number) in samples {
                sample(&mut encoder, labels, *number, Number::gauge)?;
            }
        }
        Ok(())
    }
}

/// Divides a name and its unit, which the encoder appends again.
fn parts(name: &str) -> (&str, Option<Unit>) {
    let units = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];
    let part = |(suffix, unit)| Some((name.strip_suffix(suffix)?, Some(unit)));
    units.into_iter().find_map(part).unwrap_or((name, None))
}

fn sample(
    encoder: &mut MetricEncoder<'_>,
    labels: &Labels,
    number: Number,
    encode: impl Fn(Number, &mut MetricEncoder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    // An empty set would be written as a pair of braces.
    match labels.is_empty() {
        true => encode(number, encoder),
        false => encode(number, &mut encoder.encode_family(labels)?),
    }
}

impl Number {
    fn count(self, encoder: &mut MetricEncoder<'_>) -> Result<(), Error> {
        match self {
            Self::Whole(number) => encoder.encode_counter::<Labels, _, f64>(&number, None),
            Self::Real(number) => encoder.encode_counter::<Labels, _, f64>(&number, None),
        }
    }

    fn gauge(self, encoder: &mut MetricEncoder<'_>) -> Result<(), Error> {
        match self {
            Self::Whole(number) => encoder.encode_gauge(&number),
            Self::Real(number) => encoder.encode_gauge(&number),
        }
    }
}
