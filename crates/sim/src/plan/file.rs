//! The TOML of a plan: keys and types, without their meaning.

use serde::Deserialize;

use crate::error::Error;

/// All keys of a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: Option<String>,
    pub(super) duration_s: Option<f64>,
    pub(super) warm_up_s: Option<f64>,
    pub(super) tls: Option<TlsName>,
    pub(super) tickets_full: Option<i64>,
    pub(super) tickets_resumed: Option<i64>,
    pub(super) tickets_used_once: Option<bool>,
    pub(super) grace_ms: Option<i64>,
    pub(super) ghosts_percent: Option<i64>,
    pub(super) history_carried: Option<bool>,
    pub(super) source_percent: Option<i64>,
    pub(super) sessions_kept: Option<bool>,
    pub(super) keyed_by: Option<KeyName>,
    pub(super) servers: Option<i64>,
    pub(super) balancer: Option<BalancerName>,
    #[serde(default)]
    pub(super) capacities: Vec<i64>,
    #[serde(default)]
    pub(super) policies: Vec<String>,
    pub(super) seeds: Option<i64>,
    #[serde(default, rename = "group")]
    pub(super) groups: Vec<Group>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub(super) enum TlsName {
    #[default]
    #[serde(rename = "1.2")]
    V1_2,
    #[serde(rename = "1.3")]
    V1_3,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KeyName {
    Client,
    Session,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BalancerName {
    RoundRobin,
    #[default]
    Random,
    Client,
}

/// All keys of a group of any kind. They are one type, so that an error has its line; the keys that
/// a kind may have are checked later.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) name: Option<String>,
    pub(super) kind: Kind,
    pub(super) devices: Option<i64>,
    pub(super) running_s: Option<f64>,
    pub(super) runs: Option<RunsName>,
    pub(super) waiting_s: Option<f64>,
    pub(super) intervals: Option<String>,
    pub(super) jitter_s: Option<f64>,
    pub(super) start: Option<StartName>,
    pub(super) departures_known: Option<bool>,
    pub(super) claims: Option<ClaimsName>,
    pub(super) browsers: Option<i64>,
    pub(super) gaps: Option<GapsName>,
    pub(super) per_s: Option<i64>,
    pub(super) claims_s: Option<f64>,
    pub(super) visits: Option<i64>,
    pub(super) every_s: Option<f64>,
    pub(super) sources: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Devices,
    Browsers,
    Flood,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Browsers => "browsers",
            Self::Flood => "flood",
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StartName {
    Steady,
    Waiting,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RunsName {
    Exponential,
    LogNormal { sigma: f64 },
    Habits { sigma: f64, within: f64 },
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClaimsName {
    Truth,
    Nothing,
    Permille(i64),
    FixedS(f64),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum GapsName {
    Pareto { least_s: f64, shape: f64 },
    LogNormal { median_s: f64, sigma: f64 },
}

impl File {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
            Error::BadPlan { line, what: error.message().replace('\n', " ") }
        })
    }
}
