//! The results of captures as text: tables for a terminal, CSV, logs of Zeek's form, and a page with charts.
//!
//! All functions are pure; the caller writes the text.

mod handshakes;
mod page;
mod terminal;
mod zeek;

use serde::Serialize;

use crate::model::{AverageCost, Model};
use crate::sharing::{Bytes, Counts, Findings, Service};

pub use handshakes::{COLUMNS, explained, fields, line};
pub use page::html;
pub use terminal::{counts_table, table};
pub use zeek::ZeekLog;

/// The input that was read.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Captured {
    /// The number of captures read, at least in part.
    pub captures: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The number of their frames.
    pub frames: u64,
    /// The packets that were dropped when they were captured, as far as they tell.
    pub dropped: u64,
    /// The number of handshakes in them.
    pub handshakes_seen: u64,
    /// The captures not read, or not to the end.
    pub left_out: Vec<LeftOut>,
    /// True if reading was interrupted before the last capture.
    pub interrupted: bool,
}

/// A capture that was not read, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub file: String,
    /// The reason.
    pub reason: String,
}

/// The entire result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The input.
    #[serde(flatten)]
    pub captured: Captured,
    /// The findings.
    #[serde(flatten)]
    pub findings: Findings,
    /// The cost model.
    pub model: Model,
    /// The average cost of a handshake at each step, under the paper's rule.
    pub average: Vec<Average>,
}

/// The average cost of a handshake at one step of sharing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Average {
    /// The step's name: a field of [`Counts`] without `full_`.
    pub step: &'static str,
    /// Full handshakes.
    pub full: u64,
    /// Resumed handshakes.
    pub resumed: u64,
    /// Full handshakes by the realistic rule; `None` for certificates, where it is unknown, and if no handshake has a time.
    pub realistic_full: Option<u64>,
    /// The average cost.
    #[serde(flatten)]
    pub cost: AverageCost,
}

const CERTIFICATE: &str = "shared_certificate";

/// Steps of sharing: key and name.
const STEPS: [(&str, &str); 6] = [
    ("observed", "as observed"),
    ("own_reuse", "own sessions reused: address, name"),
    ("shared_client", "shared on the client: address, name"),
    ("own_reuse_server", "own sessions reused: name, AS"),
    ("shared_server", "shared on client and servers: name, AS"),
    (CERTIFICATE, "  and under all names of a certificate"),
];

/// The first step that needs a table of networks.
const FIRST_BY_NETWORK: usize = 3;

const WITHOUT_TIME: &str = "no time is captured; not in \"truly\", no median, and no cause";

/// The reason why a model of [`Model::counts_bytes`] gives no average.
const WITHOUT_BYTES: &str =
    "the model counts bytes, and the bytes of such handshakes are not measured here";

/// The sign for what is not known.
const UNKNOWN: &str = "–";

const NOT_MEASURED: &str = "not measured: give --networks";

const fn full(counts: &Counts) -> [u64; 6] {
    [
        counts.full_observed,
        counts.full_own_reuse,
        counts.full_shared_client,
        counts.full_own_reuse_server,
        counts.full_shared_server,
        counts.full_shared_certificate,
    ]
}

impl Report {
    /// Combines findings and costs.
    pub fn new(captured: Captured, findings: Findings, model: Model) -> Self {
        let average = averages(&findings, &model);
        Self { captured, findings, model, average }
    }

    /// True if an average is not known, for lack of bytes that the model counts.
    fn lacks_bytes(&self) -> bool {
        let averages = self.average.iter().filter(|average| average.full + average.resumed > 0);
        let costs = averages.map(|average| [average.cost.latency_ms, average.cost.energy_uah]);
        self.model.counts_bytes() && costs.flatten().any(|cost| cost.is_none())
    }

    /// True if a step of sharing is measured.
    fn is_measured(&self, step: usize) -> bool {
        step < FIRST_BY_NETWORK || self.findings.networks_given
    }

    /// The average cost of a handshake with this service: as observed, shared on the client, and
    /// shared between servers too.
    pub fn average_of(&self, service: &Service) -> [AverageCost; 3] {
        [service.full_observed, service.full_shared_client, service.full_shared_server]
            .map(|full| average(&self.findings, &self.model, full, service.handshakes - full))
    }
}

fn averages(findings: &Findings, model: &Model) -> Vec<Average> {
    let (ideal, realistic) = (full(&findings.ideal), full(&findings.realistic));
    let handshakes = findings.ideal.handshakes;
    let steps = STEPS.iter().zip(ideal.into_iter().zip(realistic));
    steps
        .map(|((step, _), (full, realistic_full))| {
            let resumed = handshakes - full;
            let cost = average(findings, model, full, resumed);
            // A capture does not show under which other names a server would resume.
            let has_times = findings.without_time == 0 || findings.realistic.handshakes > 0;
            let is_known = has_times && *step != CERTIFICATE;
            let realistic_full = is_known.then_some(realistic_full);
            Average { step, full, resumed, realistic_full, cost }
        })
        .collect()
}

/// Bytes are averages over the observed full and resumed handshakes.
fn average(findings: &Findings, model: &Model, full: u64, resumed: u64) -> AverageCost {
    let sum = |count: u64, bytes: Option<Bytes>| match count {
        0 => Some(0.0),
        _ => bytes.map(|bytes| count as f64 * bytes.sum()),
    };
    let sums = sum(full, findings.wire.full).zip(sum(resumed, findings.wire.resumed));
    let all = (full + resumed).max(1) as f64;
    model.average(full as f64, resumed as f64, sums.map(|(full, resumed)| (full + resumed) / all))
}

/// A figure with so many decimals, or the sign for one that is not known.
fn figure(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or_else(|| UNKNOWN.to_owned(), |figure| format!("{figure:.decimals$}"))
}

/// The share of full handshakes, in percent.
fn percent_full(full: u64, resumed: u64) -> Option<f64> {
    let all = full + resumed;
    (all > 0).then(|| 100.0 * full as f64 / all as f64)
}

/// The cost that sharing saves, in the unit of both.
fn saved(now: Option<f64>, shared: Option<f64>) -> Option<f64> {
    Some(now? - shared?)
}
