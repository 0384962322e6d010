//! The figures of the measurement, per handshake.

use rejoin_report::median;
use serde::Serialize;

use super::{Batch, Cell, Side, Stack, Suite};
use crate::cost::Missing as NoCounters;
use crate::{Ended, Error};

/// All that a measurement says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// How the experiment ended, in batches.
    #[serde(flatten)]
    pub ended: Ended,
    /// Batches that were asked for; the JDK has other ones.
    pub rounds: u16,
    /// Handshakes of a batch, but for the JDK's.
    pub batch: u16,
    /// The libraries measured, with their versions where they tell.
    pub libraries: Vec<String>,
    /// Why instructions are missing.
    pub counters_missing: Option<NoCounters>,
    /// One for each combination that was measured at all.
    pub rows: Vec<Row>,
    /// Combinations that were asked for and could not be measured.
    pub missing: Vec<Missing>,
}

/// The figures of a combination.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// `openssl`, `rustls` or `jsse`.
    pub stack: &'static str,
    /// Version of TLS.
    pub tls: &'static str,
    /// Type of all keys.
    pub key: &'static str,
    /// True if the client shows certificates, too.
    pub client_certificates: bool,
    /// `full`, `resumed` out of the cache, or `ticket`: resumed by a stateless one.
    pub mode: &'static str,
    /// False if the machine did not keep up.
    pub kept_up: bool,
    /// Batches measured.
    pub batches: usize,
    /// Handshakes of all batches.
    pub handshakes: u64,
    /// The server's part.
    pub server: SideCost,
    /// The client's part.
    pub client: SideCost,
}

/// One side's part of a handshake. CPU times are means of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SideCost {
    /// CPU time, user and kernel, in microseconds: the median of batches.
    pub cpu_us: f64,
    /// The lowest of a batch.
    pub cpu_us_lowest: f64,
    /// The highest of a batch.
    pub cpu_us_highest: f64,
    /// Handshakes that fit into a second of CPU time, by the median.
    pub per_cpu_s: f64,
    /// Bytes that it sends in TLS records, their headers and the server's tickets included, TCP's not:
    /// the mean.
    pub sent_bytes: f64,
    /// Instructions of the program itself and not the kernel's, as the processor counts them: the median.
    /// `None` is "not available here".
    pub user_instructions: Option<f64>,
}

/// A combination that is not available here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Missing {
    /// The combination.
    pub what: String,
    /// Why it cannot be.
    pub why: String,
}

impl Missing {
    pub(super) fn of(stack: Stack, suite: Suite, why: Error) -> Self {
        let Suite { versions, key, .. } = suite;
        let what = format!("{} TLS {} {}", stack.name(), versions.name(), key.name());
        // The row says already what it is that is not available.
        let why = match why {
            Error::Unavailable { why, .. }
            | Error::Serve(rejoin_serve::Error::UnknownKeyType { why }) => why,
            other => other.to_string(),
        };
        Self { what, why }
    }
}

impl Row {
    /// `None` of a combination without a batch.
    pub(super) fn of((cell, batches): &(Cell, Vec<Batch>)) -> Option<Self> {
        let Cell { stack, suite, mode, .. } = cell;
        (!batches.is_empty()).then(|| Self {
            stack: stack.name(),
            tls: suite.versions.name(),
            key: suite.key.name(),
            client_certificates: suite.client_certificates,
            mode: mode.name(),
            kept_up: true,
            batches: batches.len(),
            handshakes: batches.iter().map(|batch| batch.handshakes).sum(),
            server: SideCost::of(batches, |batch| batch.server),
            client: SideCost::of(batches, |batch| batch.client),
        })
    }
}

impl Row {
    /// Returns its combination's name, as the experiment tells it.
    pub(super) fn named(&self) -> String {
        let Self { stack, tls, key, client_certificates, mode, .. } = self;
        let both = if *client_certificates { " both" } else { "" };
        format!("{stack} TLS {tls} {key}{both} {mode}")
    }
}

impl SideCost {
    fn of(batches: &[Batch], side: fn(&Batch) -> Side) -> Self {
        let us =
            |batch: &Batch| side(batch).cpu.as_secs_f64() * 1e6 / batch.handshakes.max(1) as f64;
        let cpu: Vec<f64> = batches.iter().map(us).collect();
        let sent: u64 = batches.iter().map(|batch| side(batch).sent_bytes).sum();
        let handshakes: u64 = batches.iter().map(|batch| batch.handshakes).sum();
        let cpu_us = median(cpu.clone());
        let instructions =
            |batch: &Batch| Some(side(batch).user_instructions? / batch.handshakes.max(1) as f64);
        let user_instructions: Option<Vec<f64>> = batches.iter().map(instructions).collect();
        Self {
            cpu_us,
            cpu_us_lowest: cpu.iter().copied().fold(f64::INFINITY, f64::min),
            cpu_us_highest: cpu.iter().copied().fold(0.0, f64::max),
            per_cpu_s: 1e6 / cpu_us.max(f64::MIN_POSITIVE),
            sent_bytes: sent as f64 / handshakes.max(1) as f64,
            user_instructions: user_instructions.map(median),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::tests::settings;
    use super::super::{Mode, libraries};
    use super::*;
    use rejoin_serve::{KeyType, Versions};

    /// A full handshake of 300 µs with 3,000 bytes of the server, resumed at a third.
    pub(in crate::handshake) fn outcome() -> Outcome {
        let cells = [(Mode::Full, 300, 3_000), (Mode::Resumed, 100, 400), (Mode::Ticket, 110, 900)];
        let cells = cells.map(|(mode, us, sent_bytes)| {
            let side = |us| Side {
                cpu: Duration::from_micros(us),
                user_instructions: Some(us as f64 * 1e4),
                sent_bytes: sent_bytes * 2,
            };
            let batch = |us| Batch { handshakes: 2, server: side(us), client: side(us * 2) };
            let suite =
                Suite { versions: Versions::Tls13, key: KeyType::P256, client_certificates: false };
            let batches = vec![batch(us * 2), batch(us * 4), batch(us)];
            (Cell { stack: Stack::OpenSsl, suite, mode, pair: 0 }, batches)
        });
        Outcome {
            ended: Ended::complete(9),
            rounds: 3,
            batch: 2,
            libraries: libraries(&settings()),
            counters_missing: None,
            rows: cells.iter().filter_map(Row::of).collect(),
            missing: Vec::new(),
        }
    }

    #[test]
    fn figures_are_medians_per_handshake() {
        let outcome = outcome();
        let row = &outcome.rows[0];
        assert_eq!((row.mode, row.batches, row.handshakes), ("full", 3, 6));
        let SideCost { cpu_us, cpu_us_lowest, cpu_us_highest, .. } = row.server;
        assert_eq!([cpu_us, cpu_us_lowest, cpu_us_highest], [300.0, 150.0, 600.0]);
        assert_eq!((row.client.cpu_us, row.server.sent_bytes), (600.0, 3_000.0));
        assert_eq!(row.server.user_instructions, Some(3e6));
        assert!((row.server.per_cpu_s * row.server.cpu_us - 1e6).abs() < 1e-3);
    }

    /// The doubts of an experiment name cells, and rows are marked by them.
    #[test]
    fn a_row_has_the_name_of_its_cell() {
        for client_certificates in [false, true] {
            let suite =
                Suite { versions: Versions::Tls12, key: KeyType::P256, client_certificates };
            let cell = Cell { stack: Stack::OpenSsl, suite, mode: Mode::Ticket, pair: 0 };
            let side = Side::NOTHING;
            let batches = vec![Batch { handshakes: 1, server: side, client: side }];
            let row = Row::of(&(cell, batches)).expect("a batch");
            assert_eq!(row.named(), cell.to_string());
        }
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let suite =
            Suite { versions: Versions::Tls13, key: KeyType::P256, client_certificates: false };
        let cell = Cell { stack: Stack::Rustls, suite, mode: Mode::Full, pair: 0 };
        assert_eq!(Row::of(&(cell, Vec::new())), None);
    }
}
