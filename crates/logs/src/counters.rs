//! Counters of Prometheus, as a check: do they count as many requests or connections as a log has?

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::Error;

/// Counters, as a range query returns them: `/api/v1/query_range`.
#[derive(Debug, Clone, PartialEq)]
pub struct Counters {
    series: Vec<Series>,
}

#[derive(Debug, Clone, PartialEq)]
struct Series {
    name: String,
    /// Milliseconds since 1970, and what was counted until then.
    samples: Vec<(u64, f64)>,
}

/// The thing that a counter counts, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Its name has `request`.
    Requests,
    /// Its name has `conn`, `handshake`, `session` or `accept`.
    Connections,
    /// Its name does not tell.
    Unknown,
}

/// A counter, all its series together.
#[derive(Debug, Clone, PartialEq)]
pub struct Counter {
    /// Its name; empty where a query has removed it.
    pub name: String,
    /// The thing counted.
    pub counted: Counted,
    /// How much it grew.
    pub growth: f64,
}

/// The most samples: a day of seconds for 100 series.
const MOST_SAMPLES: usize = 10_000_000;

impl Counters {
    /// The longest result of a query that is read.
    pub const MOST_BYTES: u64 = 256 << 20;

    /// Reads the result of a range query.
    ///
    /// # Errors
    /// Returns [`Error::NoCounters`].
    pub fn parse(json: &[u8]) -> Result<Self, Error> {
        let wrong = |what: &str| Error::NoCounters { what: what.to_owned() };
        let answer: Value =
            serde_json::from_slice(json).map_err(|error| wrong(&error.to_string()))?;
        if answer["status"] != "success" {
            return Err(wrong("its status is not success"));
        }
        if answer["data"]["resultType"] != "matrix" {
            return Err(wrong("its resultType is not matrix, so it is no range query's"));
        }
        let found = answer["data"]["result"].as_array().filter(|found| !found.is_empty());
        let found = found.ok_or_else(|| wrong("it has no series"))?;
        let mut left = MOST_SAMPLES;
        let series = found.iter().map(|one| {
            let name = one["metric"]["__name__"].as_str().unwrap_or_default().to_owned();
            let values = one["values"].as_array().ok_or_else(|| wrong("a series has no values"))?;
            left =
                left.checked_sub(values.len()).ok_or_else(|| wrong("it has too many samples"))?;
            let samples = values.iter().map(sample).collect::<Option<Vec<_>>>();
            let samples = samples.ok_or_else(|| wrong("a value is not a time and a number"))?;
            Ok(Series { name, samples })
        });
        Ok(Self { series: series.collect::<Result<_, Error>>()? })
    }

    /// Returns the time within a span in which all counters have samples, in milliseconds since 1970; `None` if there is none.
    /// A counter of which one series begins later than another, as that of a new server does, counts from the earlier.
    pub fn window_ms(&self, (first, last): (u64, u64)) -> Option<(u64, u64)> {
        let mut of_names = BTreeMap::<&str, (u64, u64)>::new();
        for series in &self.series {
            let times = series.samples.iter().map(|(at, _)| *at);
            for at in times.filter(|at| (first..=last).contains(at)) {
                let (from, to) = of_names.entry(&series.name).or_insert((at, at));
                (*from, *to) = ((*from).min(at), (*to).max(at));
            }
        }
        let both = |one: (u64, u64), other: (u64, u64)| (one.0.max(other.0), one.1.min(other.1));
        of_names.into_values().reduce(both).filter(|(from, to)| from < to)
    }

    /// Returns how much each counter grew from one time to another. A counter that begins anew, as its server does, is
    /// counted from zero.
    pub fn growth(&self, (from, to): (u64, u64)) -> Vec<Counter> {
        let mut counters: Vec<Counter> = Vec::new();
        for series in &self.series {
            let within = series.samples.iter().filter(|(at, _)| (from..=to).contains(at));
            let counts: Vec<f64> = within.map(|(_, count)| *count).collect();
            let grown = |pair: &[f64]| if pair[1] < pair[0] { pair[1] } else { pair[1] - pair[0] };
            let growth: f64 = counts.windows(2).map(grown).sum();
            match counters.iter_mut().find(|counter| counter.name == series.name) {
                Some(counter) => counter.growth += growth,
                None => counters.push(Counter {
                    name: series.name.clone(),
                    counted: Counted::by(&series.name),
                    growth,
                }),
            }
        }
        counters
    }
}

impl Counted {
    fn by(name: &str) -> Self {
        let has = |part: &&str| name.contains(*part);
        if name.contains("request") {
            Self::Requests
        } else if ["conn", "handshake", "session", "accept"].iter().any(has) {
            Self::Connections
        } else {
            Self::Unknown
        }
    }
}

/// Reads `[1795621767.5, "17"]`.
fn sample(value: &Value) -> Option<(u64, f64)> {
    let ms = value[0].as_f64()? * 1e3;
    let count: f64 = value[1].as_str()?.parse().ok()?;
    ((0.0..4e15).contains(&ms) && count.is_finite() && count >= 0.0).then_some((ms as u64, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[
        {"metric":{"__name__":"nginx_http_requests_total","pod":"a"},"values":[[10,"5"],[20,"9"],[30,"2"],[40,"7"]]},
        {"metric":{"__name__":"nginx_http_requests_total","pod":"b"},"values":[[10,"1"],[20,"2"],[30,"3"]]},
        {"metric":{"__name__":"nginx_connections_accepted"},"values":[[20,"100"],[30,"102"]]}]}}"#;

    #[test]
    fn counters_grow_over_restarts_and_over_series() {
        let counters = Counters::parse(JSON.as_bytes()).expect("a result");
        // The other counter has no samples before.
        assert_eq!(counters.window_ms((0, 35_000)), Some((20_000, 30_000)));
        assert_eq!(counters.window_ms((31_000, 45_000)), None);
        let found = counters.growth((10_000, 30_000));
        let found: Vec<_> = found.iter().map(|c| (&c.name[6..], c.counted, c.growth)).collect();
        let expected = [
            ("http_requests_total", Counted::Requests, 8.0),
            ("connections_accepted", Counted::Connections, 2.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let wrong = [
            "",
            "[]",
            "{}",
            r#"{"status":"error"}"#,
            r#"{"status":"success","data":{"resultType":"vector"}}"#,
        ];
        for json in wrong.into_iter().map(str::to_owned).chain([
            JSON.replace("\"5\"", "5"),
            JSON.replace("\"5\"", "\"NaN\""),
            JSON.replace("[10,", "[\"x\","),
            JSON.replace("values", "value"),
        ]) {
            assert!(Counters::parse(json.as_bytes()).is_err(), "{json}");
        }
    }
}
