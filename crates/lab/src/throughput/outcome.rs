//! The figures of the measurement, and the advantage of predictive eviction.

use rejoin_report::{distinct, median};
use rejoin_serve::{Resumption, Versions};
use rejoin_trace::grouped;
use serde::Serialize;

use super::{SOUGHT, Scale, Settings};
use crate::conditions::MARK;
use crate::fleet::{failed_percent, failure};
use crate::{Conditions, Ended};

/// One server with one number of devices, after the warm-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// From 0.
    pub round: u16,
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
    /// How much faster than real time the devices were.
    pub speed_up: f64,
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
    /// Connections that were answered: of the whole run.
    pub answered: u64,
    /// Connections that failed: of the whole run.
    pub failed: u64,
    /// The reason of most of them.
    pub failed_mostly: Option<String>,
    /// The conditions under which all this was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
}

/// All that was measured.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The version.
    pub versions: Versions,
    /// True if devices began each run without a session.
    pub forgets_between_runs: bool,
    /// Devices that saturate the server with tickets, given or found; `None` if it was not needed.
    pub saturation_devices: Option<u32>,
    /// Sessions that a cache could hold.
    pub cache_sessions: u32,
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
    /// How the experiment ended.
    pub ended: Ended,
}

/// How many times as many transactions per CPU-second as another way of resuming has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advantage {
    /// The advantage over all transactions and all CPU time of a round together: the median over rounds.
    pub together: f64,
    /// In the round and with the number of devices where it is least.
    pub least: f64,
}

impl Outcome {
    pub(super) fn new(settings: &Settings, scale: Scale, rows: Vec<Row>, ended: Ended) -> Self {
        let Settings { versions, forgets_between_runs, .. } = *settings;
        let Scale { saturation_devices, cache_sessions } = scale;
        Self { versions, forgets_between_runs, saturation_devices, cache_sessions, rows, ended }
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
                let same = |row: &&Row| (row.devices, row.round) == (ours.devices, ours.round);
                Some((ours, of(over.name()).find(same)?))
            })
            .collect();
        let cpu = |row: &Row| row.transactions as f64 * row.server_cpu_us;
        let rounds = 0..=pairs.iter().map(|(ours, _)| ours.round).max()?;
        let together = rounds.map(|round| {
            let of_round = || pairs.iter().filter(|(ours, _)| ours.round == round);
            let sum = |figure: &dyn Fn(&(&Row, &Row)) -> f64| of_round().map(figure).sum::<f64>();
            let ours = sum(&|pair| pair.0.transactions as f64) / sum(&|pair| cpu(pair.0));
            let theirs = sum(&|pair| pair.1.transactions as f64) / sum(&|pair| cpu(pair.1));
            ours / theirs
        });
        // A round that was interrupted may have no pair.
        let together: Vec<f64> = together.filter(|ratio| ratio.is_finite()).collect();
        let together = (!together.is_empty()).then(|| median(together))?;
        let each = pairs.iter().map(|(ours, theirs)| theirs.server_cpu_us / ours.server_cpu_us);
        let least = each.reduce(f64::min)?;
        Some(Advantage { together, least })
    }

    /// Returns a footnote on each number of devices and way of resuming with which connections failed.
    pub fn failed_notes(&self) -> Vec<String> {
        let note = |row: &Row| {
            let Row { resumption, devices, failed, failed_mostly, .. } = row;
            let why = failed_mostly.as_deref()?;
            Some(format!(
                "{resumption} {devices}: {failed} connections failed, most of them: {why}"
            ))
        };
        self.medians().iter().filter_map(note).collect()
    }

    /// Returns what is wrong with the row in which most connections failed, if they are so many that its figures are wrong.
    pub fn failure(&self) -> Option<String> {
        let percent = |row: &&Row| failed_percent(row.failed, row.answered);
        let worst = self.rows.iter().max_by(|a, b| percent(a).total_cmp(&percent(b)))?;
        let why = failure(worst.failed, worst.answered, worst.failed_mostly.as_deref())?;
        Some(format!("{} {}: {why}", worst.resumption, worst.devices))
    }

    /// Returns what is known of saturation with tickets: the number of devices, and true if the server was seen to be
    /// saturated by so many or more. The number alone follows from what a transaction costs.
    pub fn saturation(&self) -> Option<(u32, bool)> {
        let devices = self.saturation_devices?;
        let tickets = |row: &&Row| row.resumption == Resumption::Tickets.name();
        let mut beyond = self.rows.iter().filter(tickets).filter(|row| row.devices >= devices);
        Some((devices, beyond.any(|row| row.server_busy_percent >= Row::SATURATED_PERCENT)))
    }

    /// Returns the number of devices that saturate the server as it is shown, with a mark if the machine did not keep up
    /// while that was measured. `None` if it was not needed.
    pub fn shown_saturation(&self) -> Option<String> {
        let devices = grouped(u64::from(self.saturation_devices?));
        let is_doubted = self.ended.doubts.iter().any(|doubt| doubt.starts_with(SOUGHT));
        Some(if is_doubted { format!("{devices} {MARK}") } else { devices })
    }

    /// The median over rounds, for each number of devices and way of resuming, in the order of their first
    /// rows.
    pub fn medians(&self) -> Vec<Row> {
        let cell = |row: &Row| (row.devices, row.resumption);
        let of = |one| self.rows.iter().filter(|row| cell(row) == one).collect::<Vec<_>>();
        let cells = distinct(self.rows.iter().map(cell)).into_iter();
        cells.filter_map(|one| Row::median(&of(one))).collect()
    }
}

impl Row {
    /// A server that is busy for so much of the time is saturated: some of its core is the kernel's.
    pub(super) const SATURATED_PERCENT: f64 = 90.0;

    /// Returns the figures that tables and pages begin with: from the devices to the hit rates.
    pub fn figures(&self) -> Vec<String> {
        vec![
            grouped(u64::from(self.devices)),
            self.conditions.marked(self.resumption),
            format!("{:.0}", self.offered_per_s),
            format!("{:.0}", self.transactions_per_s),
            format!("{:.0}", self.transactions_per_cpu_s),
            format!("{:.0}", self.server_cpu_us),
            format!("{:.0}", self.server_busy_percent),
            format!("{:.1}", self.hit_percent),
            format!("{:.1}", self.hit_after_first_of_run),
        ]
    }

    /// Returns the median of each figure. Figures that follow from others do so exactly in each round, and here nearly.
    /// `None` without rows.
    fn median(rows: &[&Self]) -> Option<Self> {
        let first = (*rows.first()?).clone();
        let of = |figure: fn(&Self) -> f64| median(rows.iter().map(|row| figure(row)).collect());
        let sum = |count: fn(&Self) -> u64| rows.iter().map(|row| count(row)).sum();
        Some(Self {
            measured_s: rows.iter().map(|row| row.measured_s).sum(),
            transactions: sum(|row| row.transactions),
            full: sum(|row| row.full),
            resumed: sum(|row| row.resumed),
            transactions_per_s: of(|row| row.transactions_per_s),
            transactions_per_cpu_s: of(|row| row.transactions_per_cpu_s),
            server_cpu_us: of(|row| row.server_cpu_us),
            server_busy_percent: of(|row| row.server_busy_percent),
            hit_percent: of(|row| row.hit_percent),
            hit_after_first_of_run: of(|row| row.hit_after_first_of_run),
            left_out: sum(|row| row.left_out),
            answered: sum(|row| row.answered),
            failed: sum(|row| row.failed),
            failed_mostly: rows
                .iter()
                .max_by_key(|row| row.failed)
                .and_then(|row| row.failed_mostly.clone()),
            conditions: Conditions::median(
                &rows.iter().map(|row| row.conditions).collect::<Vec<_>>(),
            ),
            ..first
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn row(resumption: &'static str, devices: u32, cpu_us: f64) -> Row {
        Row {
            round: 0,
            tls: "1.2",
            resumption,
            devices,
            saturation_devices: Some(100),
            cache_sessions: 8,
            speed_up: 60.0,
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
            answered: 10,
            failed: 0,
            failed_mostly: None,
            conditions: Conditions::default(),
        }
    }

    pub(crate) fn outcome(rows: Vec<Row>) -> Outcome {
        Outcome {
            versions: Versions::Tls12,
            forgets_between_runs: true,
            saturation_devices: Some(100),
            cache_sessions: 8,
            ended: Ended::complete(rows.len()),
            rows,
        }
    }

    #[test]
    fn a_server_is_called_saturated_only_if_it_was_busy() {
        let saturation =
            |devices, cpu_us| outcome(vec![row("tickets", devices, cpu_us)]).saturation();
        let (idle, busy) = (22_000.0, 95_000.0);
        assert_eq!(saturation(100, idle), Some((100, false)));
        assert_eq!(saturation(50, busy), Some((100, false)));
        assert_eq!(saturation(100, busy), Some((100, true)));
        assert_eq!(outcome(vec![row("openssl", 200, busy)]).saturation(), Some((100, false)));
    }

    #[test]
    fn connections_that_failed_are_told_and_judged() {
        let failed = |failed, why: &str| Row {
            answered: 98,
            failed,
            failed_mostly: Some(why.to_owned()),
            ..row("tickets", 50, 200.0)
        };
        let outcome = |rows| outcome(rows);
        assert_eq!(outcome(vec![row("none", 50, 200.0)]).failed_notes(), [""; 0]);
        let few = outcome(vec![failed(1, "reset"), row("none", 50, 200.0), failed(2, "timed out")]);
        let note = "tickets 50: 3 connections failed, most of them: timed out";
        assert_eq!((few.failed_notes(), few.failure()), (vec![note.to_owned()], None));
        let many = outcome(vec![failed(1, "reset"), failed(5, "timed out")]);
        let why = "tickets 50: 5 % of the connections failed, most of them: timed out";
        assert_eq!(many.failure().as_deref(), Some(why));
    }

    #[test]
    fn a_number_that_is_not_to_be_trusted_is_marked() {
        let mut outcome = outcome(vec![row("tickets", 100, 200.0)]);
        outcome.saturation_devices = Some(1_200);
        outcome.ended.doubts = vec!["tickets 100: 9 % of the connections began late".to_owned()];
        assert_eq!(outcome.shown_saturation().as_deref(), Some("1,200"));
        outcome.ended.doubts.push("saturation? 300: 9 % of the connections began late".to_owned());
        assert_eq!(outcome.shown_saturation().as_deref(), Some("1,200 *"));
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
        let again = outcome.rows.iter().map(|row| Row {
            round: 1,
            server_cpu_us: if row.resumption == "openssl" { 10.0 } else { 9.0 } * row.server_cpu_us,
            ..row.clone()
        });
        let third = outcome.rows.iter().map(|row| Row { round: 2, ..row.clone() });
        let rows = outcome.rows.iter().cloned().chain(again).chain(third).collect();
        let rounds = self::outcome(rows);
        let past = rounds.advantage(Resumption::OpenSsl, true).expect("three of each");
        assert_eq!(past, Advantage { together: 2.0, least: 2.0 });
        let medians = rounds.medians();
        assert_eq!(medians.len(), outcome.rows.len());
        assert_eq!((medians[1].server_cpu_us, medians[1].transactions), (200.0, 30));
        let unknown = Outcome { saturation_devices: None, ..outcome };
        assert_eq!((unknown.saturation(), unknown.shown_saturation()), (None, None));
        assert_eq!(unknown.advantage(Resumption::OpenSsl, true), None);
    }
}
