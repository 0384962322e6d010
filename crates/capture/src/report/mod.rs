//! The results of captures as text: tables for a terminal, CSV, logs of Zeek's form, and a page with charts.
//!
//! All functions are pure; the caller writes the text.

mod handshakes;
mod page;
mod terminal;
mod zeek;

use serde::Serialize;

use crate::model::{Cost, Model};
use crate::sharing::{Counts, Findings, Service};

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
    pub cost: Cost,
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

    /// True if a step of sharing is measured.
    fn is_measured(&self, step: usize) -> bool {
        step < FIRST_BY_NETWORK || self.findings.networks_given
    }

    /// The average cost of a handshake with this service: as observed, shared on the client, and
    /// shared between servers too.
    pub fn average_of(&self, service: &Service) -> [Cost; 3] {
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
fn average(findings: &Findings, model: &Model, full: u64, resumed: u64) -> Cost {
    let (full, resumed) = (full as f64, resumed as f64);
    let wire = &findings.wire;
    let all = (full + resumed).max(1.0);
    let bytes = (full * wire.full.sum() + resumed * wire.resumed.sum()) / all;
    model.average(full, resumed, bytes)
}
