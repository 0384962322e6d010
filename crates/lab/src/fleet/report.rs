//! The observations of a fleet.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Conditions;
use crate::conditions::{notes, percent};
use crate::fleet::Progress;

/// A handshake that completed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) resumed: bool,
    pub(crate) took: Duration,
    /// True if its early data was accepted. `None`: none was sent.
    pub(super) early: Option<bool>,
}

/// A connection that was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit {
    pub(super) kind: Kind,
    pub(super) first_of_run: bool,
    pub(super) measured: bool,
    pub(super) lies: bool,
}

/// Handshakes, by what they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Handshakes {
    /// Full ones.
    pub full: u64,
    /// Resumed ones.
    pub resumed: u64,
}

impl Handshakes {
    fn record(&mut self, resumed: bool) {
        *if resumed { &mut self.resumed } else { &mut self.full } += 1;
    }

    /// All of them.
    pub fn total(self) -> u64 {
        self.full + self.resumed
    }

    /// Resumed ones in percent; zero of none.
    pub fn hit_rate(self) -> f64 {
        self.resumed as f64 * 100.0 / self.total().max(1) as f64
    }
}

/// Requests that were sent as early data, by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct EarlyData {
    /// Accepted.
    pub accepted: u64,
    /// Rejected, and sent again after the handshake.
    pub rejected: u64,
}

/// A distribution of handshake times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Latency {
    /// Half are faster.
    pub p50: u64,
    /// Nine of ten are faster.
    pub p90: u64,
    /// Ninety-nine of a hundred are faster.
    pub p99: u64,
    /// The slowest.
    pub max: u64,
}

impl Latency {
    fn of(times: &Histogram<u64>) -> Self {
        let at = |quantile| times.value_at_quantile(quantile);
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: times.max() }
    }
}

/// The observations of a fleet. "Measured" leaves the warm-up out.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// True if the run came to its end.
    pub complete: bool,
    /// Devices that connected.
    pub devices: u64,
    /// Every handshake of the run, the warm-up's too: to compare with the server's count.
    pub all: Handshakes,
    /// Early data of the run, the warm-up's too.
    pub early_data: EarlyData,
    /// Connections that failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Arrivals left out, because the device's connection before was not over.
    pub skipped: u64,
    /// Measured: connections that began, late or in time.
    pub begun: u64,
    /// Measured: connections that began more than half of a cache's grace after they were due.
    pub late: u64,
    /// Measured: how long after they were due connections began. While as many were open as may be, they were not due.
    pub late_us: Latency,
    /// The conditions of the run.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Measured: the first connection of each run.
    pub first_of_run: Handshakes,
    /// Measured: the connections after the first of each run, of devices that do not lie.
    pub after_first_of_run: Handshakes,
    /// The same, of devices that lie.
    pub liars_after_first_of_run: Handshakes,
    /// Measured: handshakes a second of real time. The time is the planned one; of a trace that ends before it, the time
    /// until its last arrival, a second at least.
    pub handshakes_per_s: f64,
    /// Measured: times of full handshakes.
    pub full_us: Latency,
    /// Measured: times of resumed handshakes.
    pub resumed_us: Latency,
}

impl Report {
    /// Returns footnotes if the figures are not to be trusted.
    pub fn notes(&self) -> Vec<String> {
        notes(self.conditions.doubt("fleet").as_slice())
    }

    /// Connections that failed.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Returns the reason for which most of them failed.
    pub fn failed_mostly(&self) -> Option<&str> {
        self.failed.iter().max_by_key(|(_, count)| **count).map(|(why, _)| why.as_str())
    }

    /// Returns what failed if so many connections did that the figures are wrong.
    pub fn failure(&self) -> Option<String> {
        let why = self.failed_mostly();
        if self.all.total() == 0 {
            return why.map(|why| format!("no connection was answered: {why}"));
        }
        failure(self.failures(), self.all.total(), why)
    }

    /// Percent resumed after the first connection of each run, of devices that do not lie.
    pub fn hit_after_first_of_run(&self) -> f64 {
        self.after_first_of_run.hit_rate()
    }
}

/// A connection that fails is in no figure, and takes its device's session away: rates are wrong by as much, at most.
pub(crate) const MOST_FAILED_PERCENT: f64 = 2.0;

/// Returns the percentage that failed of all connections, of which so many others were answered.
pub(crate) fn failed_percent(failed: u64, answered: u64) -> f64 {
    percent(failed, failed + answered)
}

/// Returns how many connections failed, and the reason of most, if they are too many.
pub(crate) fn failure(failed: u64, answered: u64, why: Option<&str>) -> Option<String> {
    let percent = failed_percent(failed, answered);
    let why = why.unwrap_or("no reason is known");
    (percent > MOST_FAILED_PERCENT)
        .then(|| format!("{percent:.0} % of the connections failed, most of them: {why}"))
}

/// Counts as connections end, in any thread.
#[derive(Debug)]
pub(super) struct Tally(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    /// The counts so far, without what is known at the end only.
    report: Report,
    full_us: Histogram<u64>,
    resumed_us: Histogram<u64>,
    late_us: Histogram<u64>,
    /// Beginnings later than this are late.
    tolerance: Duration,
}

/// A minute, beyond which times are cut, to two figures.
const LONGEST_US: u64 = 60_000_000;
/// Distinct reasons kept apart.
const MOST_REASONS: usize = 16;

impl Counts {
    fn new(tolerance: Duration) -> Self {
        let times =
            Histogram::new_with_bounds(1, LONGEST_US, 2).expect("constant bounds are valid");
        Self {
            report: Report::default(),
            full_us: times.clone(),
            resumed_us: times.clone(),
            late_us: times,
            tolerance,
        }
    }
}

impl Tally {
    /// A tally of a run whose connections may begin so late.
    pub(super) fn new(tolerance: Duration) -> Self {
        Self(Mutex::new(Counts::new(tolerance)))
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection that begins so long after it was due.
    pub(super) fn record_beginning(&self, late: Duration) {
        let counts = &mut *self.counts();
        counts.report.begun += 1;
        counts.report.late += u64::from(late > counts.tolerance);
        counts.late_us.saturating_record(late.as_micros() as u64);
    }

    pub(super) fn record(&self, visit: Visit) {
        let Visit { kind: Kind { resumed, took, early }, first_of_run, measured, lies } = visit;
        let counts = &mut *self.counts();
        counts.report.all.record(resumed);
        let EarlyData { accepted, rejected } = &mut counts.report.early_data;
        *accepted += u64::from(early == Some(true));
        *rejected += u64::from(early == Some(false));
        if !measured {
            return;
        }
        let group = match (first_of_run, lies) {
            (true, _) => &mut counts.report.first_of_run,
            (false, false) => &mut counts.report.after_first_of_run,
            (false, true) => &mut counts.report.liars_after_first_of_run,
        };
        group.record(resumed);
        let times = if resumed { &mut counts.resumed_us } else { &mut counts.full_us };
        times.saturating_record(took.as_micros() as u64);
    }

    pub(super) fn record_failed(&self, why: &str) {
        let failed = &mut self.counts().report.failed;
        let known = failed.contains_key(why) || failed.len() < MOST_REASONS;
        *failed.entry(if known { why } else { "other" }.to_owned()).or_default() += 1;
    }

    pub(super) fn record_skipped(&self) {
        self.counts().report.skipped += 1;
    }

    pub(super) fn progress(&self, played_ms: u64, measuring: bool) -> Progress {
        let all = self.counts().report.all;
        Progress { played_ms, measuring, handshakes: all.total(), resumed: all.resumed }
    }

    /// Returns the observations of so long a measured time, and under which conditions they were made as far as the
    /// machine's are known.
    pub(super) fn report(
        &self,
        complete: bool,
        devices: u64,
        (took, seen): (Duration, Conditions),
    ) -> Report {
        let counts = self.counts();
        let Report { first_of_run, after_first_of_run, liars_after_first_of_run, .. } =
            counts.report;
        let Report { late, begun, skipped, ref failed, .. } = counts.report;
        let made = counts.report.all.total() + failed.values().sum::<u64>();
        let conditions = Conditions {
            late_percent: percent(late, begun),
            left_out_percent: percent(skipped, skipped + made),
            ..seen
        };
        let groups = [first_of_run, after_first_of_run, liars_after_first_of_run];
        let measured: u64 = groups.iter().map(|group| group.total()).sum();
        let took = took.as_secs_f64();
        Report {
            complete,
            devices,
            handshakes_per_s: if took > 0.0 { measured as f64 / took } else { 0.0 },
            conditions,
            late_us: Latency::of(&counts.late_us),
            full_us: Latency::of(&counts.full_us),
            resumed_us: Latency::of(&counts.resumed_us),
            ..counts.report.clone()
        }
    }
}
