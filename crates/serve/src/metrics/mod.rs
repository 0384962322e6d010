//! Metrics in the text formats that Prometheus reads.
//!
//! All exporters of Rejoin write them here, so that all follow one scheme: a name is `rejoin_PART_THING`, in base units,
//! with the unit last; handshakes have the label `kind`; a label has few values. [`Format`] negotiates the format,
//! and `docs/metrics.md` lists the metrics.

mod cache;
mod format;
mod old;
mod text;

use std::borrow::Cow;

pub use format::Format;

/// Names of labels, and values, which are escaped as they are written.
pub type Labels = Vec<(&'static str, String)>;

/// The metrics to write, in this order.
#[derive(Debug, Clone)]
pub struct Meters {
    common: Labels,
    families: Vec<Family>,
}

/// The samples of one metric, which differ by their labels.
#[derive(Debug, Clone, PartialEq)]
struct Family {
    /// Without `rejoin_` and the suffix of its kind.
    name: String,
    help: Cow<'static, str>,
    kind: Kind,
    samples: Vec<(Labels, Number)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Only grows. The name ends in `_total`.
    Counter,
    Gauge,
    /// Is 1, and tells by its labels. The name ends in `_info`.
    Info,
}

/// The value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// Any other.
    Real(f64),
}

impl Kind {
    /// Returns the end of the names of samples.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
            Self::Info => "_info",
        }
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl Meters {
    /// Begins with the version of this program. Every later sample gets the `common` labels first.
    pub fn new(common: Labels) -> Self {
        let mut meters = Self { common: Labels::new(), families: Vec::new() };
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        meters.add(Kind::Info, "build", "Version of Rejoin", vec![(version, Number::Whole(1))]);
        meters.common = common;
        meters
    }

    /// Adds a counter. In the text its name begins with `rejoin_` and ends in `_total`.
    pub fn counter(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        count: impl Into<Number>,
    ) {
        self.add(Kind::Counter, name, help, vec![(Labels::new(), count.into())]);
    }

    /// Adds a family of counters, which differ by their labels.
    pub fn counters(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        counts: Vec<(Labels, u64)>,
    ) {
        self.add(Kind::Counter, name, help, numbers(counts));
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, name: impl Into<String>, help: &'static str, value: impl Into<Number>) {
        self.add(Kind::Gauge, name, help, vec![(Labels::new(), value.into())]);
    }

    /// Adds a gauge, without a sample if there is no value.
    pub fn gauge_if_known(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        value: Option<impl Into<Number>>,
    ) {
        let samples = value.map(|value| (Labels::new(), value.into()));
        self.add(Kind::Gauge, name, help, samples.into_iter().collect());
    }

    /// Adds a family of gauges, which differ by their labels.
    pub fn gauges(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        values: Vec<(Labels, u64)>,
    ) {
        self.add(Kind::Gauge, name, help, numbers(values));
    }

    /// Returns the text in this format, with the names of the last release beside the present ones.
    pub fn text(&self, format: Format) -> String {
        let old = old::families(&self.families);
        text::encode(self.families.iter().cloned().chain(old).collect(), format)
    }

    fn add(
        &mut self,
        kind: Kind,
        name: impl Into<String>,
        help: &'static str,
        mut samples: Vec<(Labels, Number)>,
    ) {
        for (labels, _) in &mut samples {
            labels.splice(..0, self.common.iter().cloned());
        }
        self.families.push(Family { name: name.into(), help: help.into(), kind, samples });
    }
}

/// Returns samples that differ by one label.
pub fn by<const N: usize>(
    label: &'static str,
    counts: [(&'static str, u64); N],
) -> Vec<(Labels, u64)> {
    counts.map(|(value, count)| (vec![(label, value.to_owned())], count)).into()
}

fn numbers(counts: Vec<(Labels, u64)>) -> Vec<(Labels, Number)> {
    counts.into_iter().map(|(labels, count)| (labels, Number::Whole(count))).collect()
}

#[cfg(test)]
mod tests {
    use rejoin_cache::Counters;

    use super::*;

    fn some() -> Meters {
        let mut meters = Meters::new(vec![("cache", "web".into())]);
        meters.cache(&Counters { hits: 3, prediction_error_ms: 1_500, ..Counters::default() });
        meters.gauges("places", "Places", by("kind", [("near", 1), ("far", 2)]));
        meters.gauge("space_bytes", "Space", 7);
        meters.gauge_if_known("age_seconds", "Age", None::<u64>);
        meters
    }

    fn assert_has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|told| told == *line), "{line}: {text}");
        }
    }

    #[test]
    fn openmetrics_has_units_and_an_end() {
        let text = some().text(Format::OpenMetrics);
        assert_has(
            &text,
            &[
                concat!("rejoin_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
                "# TYPE rejoin_build info",
                "# TYPE rejoin_cache_hits counter",
                "rejoin_cache_hits_total{cache=\"web\"} 3",
                "# UNIT rejoin_cache_prediction_error_seconds seconds",
                "rejoin_cache_prediction_error_seconds_total{cache=\"web\"} 1.5",
                "rejoin_places{cache=\"web\",kind=\"far\"} 2",
                "# UNIT rejoin_space_bytes bytes",
                "# TYPE rejoin_age_seconds gauge",
            ],
        );
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    /// A counter's type is that of the name with its suffix, and there is no mark at the end.
    #[test]
    fn prometheus_has_neither() {
        let text = some().text(Format::Prometheus);
        assert_has(
            &text,
            &[
                concat!("rejoin_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
                "# TYPE rejoin_build_info gauge",
                "# TYPE rejoin_cache_hits_total counter",
                "rejoin_cache_hits_total{cache=\"web\"} 3",
                "rejoin_cache_prediction_error_seconds_total{cache=\"web\"} 1.5",
                "rejoin_places{cache=\"web\",kind=\"far\"} 2",
                "rejoin_space_bytes{cache=\"web\"} 7",
            ],
        );
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }
}
