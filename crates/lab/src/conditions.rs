//! The judgement whether the machine kept up with a measurement, which all studies share.
//!
//! A figure is doubted where connections began late or were left out, where processes that are measured had to wait for
//! a processor, or where the hypervisor gave the processors to others. The judgement is pure; [`Watch`] reads what the
//! kernel tells.

use std::fmt::Display;
use std::fs;
use std::time::{Duration, Instant};

use rejoin_report::median;
use serde::Serialize;

use crate::usage::Usage;

/// The conditions of a measurement, in percent. All are 0 on a machine that does nothing else and is fast enough.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(into = "Judged")]
pub struct Conditions {
    /// Connections that began later than they should have, of those measured.
    pub late_percent: f64,
    /// Connections that were not made because the device's last was not over, of all. Of a server that is to be
    /// overloaded, and is, 0.
    pub left_out_percent: f64,
    /// The time that the threads of clients or server, whichever it is more of, waited for a processor: of the time that
    /// they wanted one, or of all the time, whichever is longer.
    pub waited_percent: f64,
    /// The time that the hypervisor gave to others, of all processors' time.
    pub stolen_percent: f64,
}

/// Conditions and the judgement, as JSON has them.
#[derive(Serialize)]
struct Judged {
    kept_up: bool,
    late_percent: f64,
    left_out_percent: f64,
    waited_percent: f64,
    stolen_percent: f64,
}

/// A late connection finds a session evicted that the cache would have kept: the rate of resumptions is wrong by as
/// much, at most.
const MOST_LATE_PERCENT: f64 = 2.0;
const MOST_LEFT_OUT_PERCENT: f64 = 2.0;
/// Clients and server that share one processor wait for each other for up to a fifth.
const MOST_WAITED_PERCENT: f64 = 33.0;
const MOST_STOLEN_PERCENT: f64 = 5.0;

/// The mark of figures that are not to be trusted.
pub(crate) const MARK: &str = "*";
const REMEDY: &str = "The machine did not keep up, and these figures are not to be trusted. End other programs and \
                      measure again, or give a lower --speedup or fewer clients where there is such an option.";

impl Conditions {
    /// Returns true if figures that were measured under these conditions say what they are meant to say.
    pub fn kept_up(&self) -> bool {
        self.reasons().is_empty()
    }

    /// Returns why the figures are not to be trusted, nothing if they are.
    pub fn reasons(&self) -> Vec<String> {
        let beyond = self.bounds().into_iter().filter(|(percent, most, _)| percent > most);
        beyond.map(|(percent, _, what)| format!("{percent:.0} % {what}")).collect()
    }

    /// Returns what is to be known of figures that were measured under these conditions, and are not to be trusted.
    pub(crate) fn doubt(&self, of: impl Display) -> Option<String> {
        let reasons = self.reasons();
        (!reasons.is_empty()).then(|| format!("{of}: {}", reasons.join("; ")))
    }

    /// Returns a name with a mark if its figures are not to be trusted.
    pub fn marked(&self, name: &str) -> String {
        marked(name, self.kept_up())
    }

    /// Returns how far the worst condition is from its bound: above 1 beyond it.
    pub(crate) fn strain(&self) -> f64 {
        self.bounds().into_iter().map(|(percent, most, _)| percent / most).fold(0.0, f64::max)
    }

    /// Each condition, the most that figures stand, and what it says.
    fn bounds(&self) -> [(f64, f64, &'static str); 4] {
        [
            (self.late_percent, MOST_LATE_PERCENT, "of the connections began late"),
            (
                self.left_out_percent,
                MOST_LEFT_OUT_PERCENT,
                "of the connections were left out, because the device's last was not over",
            ),
            (
                self.waited_percent,
                MOST_WAITED_PERCENT,
                "of the time clients or server waited for a processor",
            ),
            (
                self.stolen_percent,
                MOST_STOLEN_PERCENT,
                "of the processors' time went to other machines of the same host (steal)",
            ),
        ]
    }

    /// Returns the worse of each.
    pub(crate) fn worse(self, other: Self) -> Self {
        Self {
            late_percent: self.late_percent.max(other.late_percent),
            left_out_percent: self.left_out_percent.max(other.left_out_percent),
            waited_percent: self.waited_percent.max(other.waited_percent),
            stolen_percent: self.stolen_percent.max(other.stolen_percent),
        }
    }

    /// Returns the median of each over rounds, whose figures are medians, too.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let of = |one: fn(&Self) -> f64| median(rounds.iter().map(one).collect());
        Self {
            late_percent: of(|round| round.late_percent),
            left_out_percent: of(|round| round.left_out_percent),
            waited_percent: of(|round| round.waited_percent),
            stolen_percent: of(|round| round.stolen_percent),
        }
    }

    /// Returns the conditions of a process that had so much of a time.
    pub(crate) fn of_process(usage: Usage, time: Duration) -> Self {
        let wanted = (usage.cpu_ns + usage.waited_ns).max(time.as_nanos() as u64);
        Self { waited_percent: percent(usage.waited_ns, wanted), ..Self::default() }
    }
}

impl From<Conditions> for Judged {
    fn from(conditions: Conditions) -> Self {
        let Conditions { late_percent, left_out_percent, waited_percent, stolen_percent } =
            conditions;
        let kept_up = conditions.kept_up();
        Self { kept_up, late_percent, left_out_percent, waited_percent, stolen_percent }
    }
}

/// Returns a name with a mark unless the machine kept up with what it is of.
pub fn marked(name: &str, kept_up: bool) -> String {
    if kept_up { name.to_owned() } else { format!("{name} {MARK}") }
}

/// Doubts with a footnote of their own.
const MOST_NOTES: usize = 12;

/// Returns a footnote on each doubt, and one on what to do. Nothing without doubts.
pub(crate) fn notes(doubts: &[String]) -> Vec<String> {
    let more = doubts.len().saturating_sub(MOST_NOTES);
    let more = (more > 0).then(|| format!("and {more} more"));
    let remedy = (!doubts.is_empty()).then(|| REMEDY.to_owned());
    let notes = doubts.iter().take(MOST_NOTES).cloned().chain(more).chain(remedy);
    notes.map(|note| format!("{MARK} {note}")).collect()
}

pub(crate) fn percent(part: u64, all: u64) -> f64 {
    part as f64 * 100.0 / all.max(1) as f64
}

/// A reading of what the kernel tells of this process and of the machine. Where it tells nothing, nothing is doubted.
#[derive(Debug)]
pub(crate) struct Watch {
    own: Option<Usage>,
    processors: Option<Processors>,
    began: Instant,
}

impl Watch {
    pub(crate) fn begin() -> Self {
        let own = Usage::of(std::process::id()).ok();
        Self { own, processors: Processors::read(), began: Instant::now() }
    }

    /// Returns the conditions since then, as far as this process and the machine tell them.
    pub(crate) fn end(&self) -> Conditions {
        let now = Self::begin();
        let own = now.own.zip(self.own).map(|(now, before)| now.since(before));
        let processors = now.processors.zip(self.processors);
        Conditions {
            stolen_percent: processors.map_or(0.0, |(now, before)| now.stolen_percent(before)),
            ..Conditions::of_process(own.unwrap_or_default(), self.began.elapsed())
        }
    }
}

/// The time of all processors since the machine began, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Processors {
    stolen: u64,
    all: u64,
}

impl Processors {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. What follows is part of
    /// user and nice.
    fn parse(stat: &str) -> Option<Self> {
        let times = stat.strip_prefix("cpu ")?.lines().next()?.split_ascii_whitespace();
        let times: Vec<u64> = times.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { stolen: *times.get(7)?, all: times.iter().sum() })
    }

    fn stolen_percent(self, earlier: Self) -> f64 {
        let since = |now: u64, earlier: u64| now.saturating_sub(earlier);
        // A tick is as little as can be told.
        let stolen = since(self.stolen, earlier.stolen).saturating_sub(1);
        percent(stolen, since(self.all, earlier.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Conditions = Conditions {
        late_percent: 1.9,
        left_out_percent: 1.9,
        waited_percent: 32.0,
        stolen_percent: 4.9,
    };

    #[test]
    fn each_condition_alone_is_a_reason() {
        assert!(GOOD.kept_up() && Conditions::default().kept_up());
        let bad = [
            (Conditions { late_percent: 12.4, ..GOOD }, "12 % of the connections began late"),
            (Conditions { left_out_percent: 2.6, ..GOOD }, "3 % of the connections were left out"),
            (Conditions { waited_percent: 40.0, ..GOOD }, "40 % of the time clients or server"),
            (Conditions { stolen_percent: 6.0, ..GOOD }, "6 % of the processors' time went"),
        ];
        for (conditions, reason) in bad {
            let reasons = conditions.reasons();
            assert!(reasons.len() == 1 && reasons[0].starts_with(reason), "{reasons:?}");
        }
        let json = serde_json::to_value(bad[0].0).expect("an object");
        assert_eq!((&json["kept_up"], &json["late_percent"]), (&false.into(), &12.4.into()));
    }

    #[test]
    fn many_doubts_are_counted() {
        let doubts: Vec<String> = (0..20).map(|number| format!("cell {number}")).collect();
        let notes = notes(&doubts);
        assert_eq!(
            (notes.len(), notes[11].as_str(), notes[12].as_str()),
            (14, "* cell 11", "* and 8 more")
        );
        assert!(super::notes(&[]).is_empty());
    }

    #[test]
    fn one_bad_round_of_three_is_forgiven() {
        let bad = Conditions { stolen_percent: 60.0, ..GOOD };
        assert!(Conditions::median(&[GOOD, bad, GOOD]).kept_up());
        assert!(!Conditions::median(&[bad, GOOD, bad]).kept_up());
        assert_eq!(GOOD.worse(bad), bad);
    }

    #[test]
    fn time_that_was_stolen_is_read() {
        let read = |stat| Processors::parse(stat);
        let before = read("cpu  10 0 10 70 0 0 0 10 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        assert_eq!(before, Some(Processors { stolen: 10, all: 100 }));
        let now = read("cpu  40 0 40 80 10 0 0 30 5 0\n").expect("whole");
        assert_eq!(now.stolen_percent(before.expect("whole")), 19.0);
        for odd in ["", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7 x", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }

    #[test]
    fn waiting_counts_where_there_was_work() {
        let usage = Usage { cpu_ns: 300, waited_ns: 100, ..Usage::default() };
        let waited = |ns| Conditions::of_process(usage, Duration::from_nanos(ns)).waited_percent;
        assert_eq!([waited(200), waited(400), waited(10_000)], [25.0, 25.0, 1.0]);
        let idle = Conditions::of_process(Usage::default(), Duration::ZERO);
        assert_eq!(idle, Conditions::default());
    }
}
