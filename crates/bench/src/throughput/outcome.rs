//! What was measured, and what predictive eviction is worth by it.

use serde::Serialize;

use crate::Error;
use crate::server::{Resumption, Versions};
use crate::throughput::Settings;

/// One server with one number of devices, after the warm-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The version: `1.2` or `1.3`.
    pub tls: &'static str,
    /// How sessions were resumed.
    pub resumption: &'static str,
    /// Devices of the population.
    pub devices: u32,
    /// Those that saturate the server with tickets, where that is known.
    pub saturation_devices: Option<u32>,
    /// Sessions that a cache could hold.
    pub cache_sessions: u32,
    /// Connections a second that the devices would make of a server that is fast enough.
    pub offered_per_s: f64,
    /// How long was measured, in seconds of real time.
    pub measured_s: f64,
    /// Handshakes, each with one request.
    pub transactions: u64,
    /// Full handshakes among them.
    pub full: u64,
    /// Resumed ones.
    pub resumed: u64,
    /// Transactions for each second of real time.
    pub transactions_per_s: f64,
    /// Transactions for each second of the server's CPU time.
    pub transactions_per_cpu_s: f64,
    /// CPU time of the server for each transaction, in microseconds.
    pub server_cpu_us: f64,
    /// CPU time of the server for each second of real time, in percent: of one core.
    pub server_busy_percent: f64,
    /// Percent resumed of all transactions.
    pub hit_percent: f64,
    /// Percent resumed, the first connection of each run left out, as the clients saw it.
    pub hit_after_first_of_run: f64,
    /// Connections not made, because the device's last was not over: of the whole run.
    pub left_out: u64,
    /// Connections that failed: of the whole run.
    pub failed: u64,
}

/// Why there are fewer rows than were asked for.
#[derive(Debug)]
pub enum Cut {
    /// It was told to stop.
    Interrupted,
    /// A server failed.
    Failed(Error),
}

/// All that was measured.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The version.
    pub versions: Versions,
    /// Whether devices began each run without a session.
    pub forgets_between_runs: bool,
    /// Devices that saturate the server with tickets, given or found; `None` if nobody had to know.
    pub saturation_devices: Option<u32>,
    /// Sessions that a cache could hold.
    pub cache_sessions: u32,
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
    /// How many rows were asked for; 0 before that is known.
    pub wanted: usize,
    /// Why there are fewer.
    pub cut: Option<Cut>,
}

/// How many times as many transactions per CPU-second as another way of resuming has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advantage {
    /// Of all transactions and all CPU time together.
    pub together: f64,
    /// With the number of devices where it is least.
    pub least: f64,
}

impl Outcome {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            versions: settings.versions,
            forgets_between_runs: settings.forgets_between_runs,
            saturation_devices: None,
            cache_sessions: 0,
            rows: Vec::new(),
            wanted: 0,
            cut: None,
        }
    }

    /// The predictive cache's over another way of resuming, past saturation or up to it. `None` where
    /// there is nothing to compare.
    pub fn advantage(&self, over: Resumption, past: bool) -> Option<Advantage> {
        let saturation = self.saturation_devices?;
        let of = |name: &'static str| {
            self.rows.iter().filter(move |row| {
                row.resumption == name && (row.devices > saturation) == past && row.transactions > 0
            })
        };
        let pairs: Vec<(&Row, &Row)> = of(Resumption::Predictive.name())
            .filter_map(|ours| {
                Some((ours, of(over.name()).find(|theirs| theirs.devices == ours.devices)?))
            })
            .collect();
        let cpu = |row: &Row| row.transactions as f64 * row.server_cpu_us;
        let sum = |figure: &dyn Fn(&(&Row, &Row)) -> f64| pairs.iter().map(figure).sum::<f64>();
        let ours = sum(&|pair| pair.0.transactions as f64) / sum(&|pair| cpu(pair.0));
        let theirs = sum(&|pair| pair.1.transactions as f64) / sum(&|pair| cpu(pair.1));
        let each = pairs.iter().map(|(ours, theirs)| theirs.server_cpu_us / ours.server_cpu_us);
        let least = each.reduce(f64::min)?;
        Some(Advantage { together: ours / theirs, least })
    }

    /// Their names, each once, in the order of their first rows.
    pub(super) fn resumptions(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.resumption) {
                names.push(row.resumption);
            }
        }
        names
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn row(resumption: &'static str, devices: u32, cpu_us: f64) -> Row {
        Row {
            tls: "1.2",
            resumption,
            devices,
            saturation_devices: Some(100),
            cache_sessions: 8,
            offered_per_s: 10.0,
            measured_s: 1.0,
            transactions: 10,
            full: 4,
            resumed: 6,
            transactions_per_s: 10.0,
            transactions_per_cpu_s: 1e6 / cpu_us,
            server_cpu_us: cpu_us,
            server_busy_percent: cpu_us / 1_000.0,
            hit_percent: 60.0,
            hit_after_first_of_run: 90.0,
            left_out: 0,
            failed: 0,
        }
    }

    pub(crate) fn outcome(rows: Vec<Row>) -> Outcome {
        Outcome {
            versions: Versions::Tls12,
            forgets_between_runs: true,
            saturation_devices: Some(100),
            cache_sessions: 8,
            wanted: rows.len(),
            rows,
            cut: None,
        }
    }

    #[test]
    fn the_two_sides_of_saturation_are_apart() {
        let rows = vec![
            row("predictive", 50, 200.0),
            row("openssl", 50, 200.0),
            row("predictive", 100, 200.0),
            row("openssl", 100, 400.0),
            row("predictive", 200, 300.0),
            row("openssl", 200, 600.0),
            row("predictive", 300, 300.0),
        ];
        let outcome = outcome(rows);
        let before = outcome.advantage(Resumption::OpenSsl, false).expect("two of each");
        assert_eq!(before, Advantage { together: 1.5, least: 1.0 });
        let past = outcome.advantage(Resumption::OpenSsl, true).expect("one of each");
        assert_eq!(past, Advantage { together: 2.0, least: 2.0 });
        assert_eq!(outcome.advantage(Resumption::Tickets, true), None);
        let unknown = Outcome { saturation_devices: None, ..outcome };
        assert_eq!(unknown.advantage(Resumption::OpenSsl, true), None);
    }
}
