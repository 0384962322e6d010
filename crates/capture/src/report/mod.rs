//! What captures showed, as text: tables for a terminal, CSV, and a page with charts.
//!
//! Pure functions. Where the text goes is the caller's affair.

mod handshakes;
mod page;
mod terminal;

use serde::Serialize;

use crate::model::{Cost, Model};
use crate::sharing::{Counts, Findings, Service};

pub use handshakes::{COLUMNS, explained, fields, line};
pub use page::html;
pub use terminal::{counts_table, table};

/// What was read.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Captured {
    /// Captures that were read, at least in part.
    pub captures: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their frames.
    pub frames: u64,
    /// Handshakes in them.
    pub handshakes_seen: u64,
    /// What was not read, or not to its end.
    pub left_out: Vec<LeftOut>,
    /// Reading was interrupted before the last capture.
    pub interrupted: bool,
}

/// A capture that was not read, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub file: String,
    /// Why.
    pub reason: String,
}

/// Everything that captures showed.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was read.
    #[serde(flatten)]
    pub captured: Captured,
    /// What was found in it.
    #[serde(flatten)]
    pub findings: Findings,
    /// What handshakes cost.
    pub model: Model,
    /// What one costs on average, step by step, under the paper's rule.
    pub average: Vec<Average>,
}

/// What a handshake costs on average at one step of sharing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Average {
    /// As in [`Counts`], without `full_`.
    pub step: &'static str,
    /// Full handshakes.
    pub full: u64,
    /// Resumed ones.
    pub resumed: u64,
    /// Full ones by the clock, within lifetimes and tickets; not known of certificates.
    pub realistic_full: Option<u64>,
    /// On average.
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
    /// Puts findings and costs together.
    pub fn new(captured: Captured, findings: Findings, model: Model) -> Self {
        let average = averages(&findings, &model);
        Self { captured, findings, model, average }
    }

    /// What a handshake with this service costs on average: as observed, shared on the client,
    /// shared between servers, too.
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
            // Which other names a server would resume under cannot be seen.
            let realistic_full = Some(realistic_full).filter(|_| *step != CERTIFICATE);
            Average { step, full, resumed, realistic_full, cost }
        })
        .collect()
}

/// Bytes are those of the handshakes observed: of full ones and of resumed ones.
fn average(findings: &Findings, model: &Model, full: u64, resumed: u64) -> Cost {
    let (full, resumed) = (full as f64, resumed as f64);
    let wire = &findings.wire;
    let all = (full + resumed).max(1.0);
    let bytes = (full * wire.full.sum() + resumed * wire.resumed.sum()) / all;
    model.average(full, resumed, bytes)
}
