//! The check on the second half of what was recorded, which the first half has not seen.
//!
//! A cache is sized by the first half alone, and then plays the second from an empty start, as it played the first: the
//! rates must be the same. The recommended size plays the second half, too, and must not resume less than it should; it may
//! resume more, since in half the time fewer clients come back after long.

use std::num::NonZeroU32;

use rejoin_sim::report::thousands;
use rejoin_sim::sizing::{Sizing, Survey};
use rejoin_sim::{Error, Pass, Progress, Simulation, Source, Subject};
use rejoin_trace::Event;
use serde::Serialize;

use super::advice::{self, Wish};
use super::trials::{Trials, returning};

/// The points by which the halves may differ.
pub(super) const MOST_POINTS: f64 = 3.0;
/// The requests of returning devices below which rates tell little: there is a warning, and halves are not compared.
pub(super) const FEWEST: f64 = 200.0;
/// The ratio of the halves' loads that is named.
const ANOTHER_LOAD: f64 = 1.25;

/// The halves compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Unseen {
    /// The connections of each half.
    pub(super) requests: [f64; 2],
    /// The clients of each half.
    pub(super) clients: [u64; 2],
    /// The sessions that the first half asks for.
    pub(super) first_half_sessions: u32,
    /// The percentage of returning devices that they resume in the first half.
    pub(super) first_half_percent: f64,
    /// The same in the second half.
    pub(super) second_half_percent: f64,
    /// The percentage that the recommended sessions resume in the second half.
    pub(super) recommended_percent: f64,
    /// True if the halves are within [`MOST_POINTS`] of each other, and the recommended size is not below by more.
    pub(super) holds: bool,
}

/// The reason for which halves are not compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Why {
    /// A half has too few connections: there are so many in each.
    TooFew([f64; 2]),
    /// A half has enough connections, but too few of returning devices: there are so many in each.
    TooFewReturn([f64; 2]),
    /// In the first half, nothing can be recommended.
    NothingToRecommend,
    Stopped,
}

impl Why {
    /// Returns what to say of it. `of_log` is the number of requests, if the connections were made from a log's.
    pub(super) fn warning(self, of_log: Option<u64>) -> Option<String> {
        let unchecked = "the answer is not checked on a half that it was not made from";
        match self {
            Self::Stopped => None,
            Self::NothingToRecommend => {
                Some(format!("the first half alone gives no answer: {unchecked}"))
            }
            Self::TooFew(halves) if halves.iter().all(|half| *half < FEWEST) => {
                let connections = thousands(halves.iter().sum());
                let requests = of_log
                    .map(|requests| format!(" of {} requests", rejoin_trace::grouped(requests)));
                Some(format!(
                    "the recording is too short, with {connections} connections{}, to check the answer on a half that it \
                     was not made from",
                    requests.unwrap_or_default()
                ))
            }
            Self::TooFew(halves) => {
                let (which, few) = short(halves);
                Some(format!(
                    "the {which} half of the time has {few} of the {} connections: {unchecked}",
                    thousands(halves.iter().sum())
                ))
            }
            Self::TooFewReturn(halves) => {
                let (which, few) = short(halves);
                let what = "connections of devices that come back within it";
                Some(format!("the {which} half of the time has {few} {what}: {unchecked}"))
            }
        }
    }
}

/// Returns which half has too few, and how many it has.
fn short([first, second]: [f64; 2]) -> (&'static str, String) {
    let (which, few) = if first < FEWEST { ("first", first) } else { ("second", second) };
    (which, thousands(few))
}

/// Compares the halves of a recording of so many connections under a policy, or returns the reason for which it does not.
pub(super) fn compare(
    simulation: &Simulation,
    source: &dyn Source,
    progress: &Progress,
    policy: Subject,
    recommended: (u32, f64),
    wish: Wish,
    requests: f64,
) -> Result<Result<Unseen, Why>, Error> {
    let stopped = Ok(Err(Why::Stopped));
    let Some((first_ms, last_ms)) = span_ms(simulation, source, progress)? else { return stopped };
    let middle_ms = first_ms + (last_ms - first_ms) / 2;
    let first =
        Simulation { policies: vec![policy], end_ms: Some(middle_ms), ..simulation.clone() };
    let Some(survey) = Survey::of(&first, source, progress)? else { return stopped };
    let halves = [survey.requests, requests - survey.requests];
    if halves.iter().any(|half| *half < FEWEST) {
        return Ok(Err(Why::TooFew(halves)));
    }
    if survey.returning_percent() == 0.0 {
        return Ok(Err(Why::NothingToRecommend));
    }
    let second = Simulation {
        policies: vec![policy],
        warm_up_ms: middle_ms + simulation.warm_up_ms,
        ..simulation.clone()
    };
    let after = After { source, from_ms: middle_ms };
    let Some(its) = Survey::of(&second, &after, progress)? else { return stopped };
    let returning_of = [survey.returning, its.returning];
    if returning_of.iter().any(|half| *half < FEWEST) {
        return Ok(Err(Why::TooFewReturn(returning_of)));
    }
    let sizing = Sizing { simulation: &first, survey: &survey, target_percent: wish.target() };
    let found = sizing.run(None, source, progress, &|_| {})?;
    let mut trials = Trials::of(&first, source, progress, &found);
    let Some(sized) = advice::choose(&mut trials, &found, wish, sizing.goal())? else {
        let why = if progress.stopped() { Why::Stopped } else { Why::NothingToRecommend };
        return Ok(Err(why));
    };
    let (sessions, percent) = recommended;
    let capacities = [sized.sessions, sessions].into_iter().filter_map(NonZeroU32::new).collect();
    let second = Simulation { capacities, ..second };
    let played = second.run(&after, progress)?;
    let [with_first, with_recommended] = &played.cells[..] else { return stopped };
    // The warm-up of the second half may leave less of it.
    if with_first.requests < FEWEST {
        return Ok(Err(Why::TooFew([survey.requests, with_first.requests])));
    }
    let (second_half_percent, recommended_percent) =
        (returning(with_first), returning(with_recommended));
    Ok(Ok(Unseen {
        requests: [survey.requests, with_first.requests],
        clients: [survey.clients, its.clients],
        first_half_sessions: sized.sessions,
        first_half_percent: sized.percent,
        second_half_percent,
        recommended_percent,
        holds: (sized.percent - second_half_percent).abs() <= MOST_POINTS
            && recommended_percent >= percent - MOST_POINTS,
    }))
}

impl Unseen {
    /// Returns the comparison in a sentence.
    pub(super) fn text(&self, recommended: u32) -> String {
        let sessions = |count: u32| rejoin_trace::grouped(count.into());
        let mut text = format!(
            "{} sessions, sized by the first half alone, resume {:.1} % there and {:.1} % in the second half, which it \
             has not seen",
            sessions(self.first_half_sessions),
            self.first_half_percent,
            self.second_half_percent,
        );
        if recommended != self.first_half_sessions {
            text += &format!(
                "; the {} recommended, {:.1} % there",
                sessions(recommended),
                self.recommended_percent
            );
        }
        let [first, second] = self.requests;
        let ratio = second / first.max(1.0);
        if !(1.0 / ANOTHER_LOAD..=ANOTHER_LOAD).contains(&ratio) {
            text += &format!("; it has {ratio:.2} times as many connections");
        }
        text
    }
}

/// The arrivals from a time on.
struct After<'a> {
    source: &'a dyn Source,
    from_ms: u64,
}

impl Source for After<'_> {
    fn open(&self, seed: u64) -> Result<Box<dyn Pass + '_>, Error> {
        Ok(Box::new(PassAfter { pass: self.source.open(seed)?, from_ms: self.from_ms }))
    }

    fn part_over(&self, time_ms: u64, events: u64) -> f64 {
        self.source.part_over(time_ms, events)
    }
}

struct PassAfter<'a> {
    pass: Box<dyn Pass + 'a>,
    from_ms: u64,
}

impl Pass for PassAfter<'_> {
    fn read(&mut self, events: &mut Vec<Event>, most: usize) -> Result<(), Error> {
        let before = events.len();
        // Nothing read means that nothing is left.
        while events.len() == before {
            self.pass.read(events, most)?;
            if events.len() == before {
                break;
            }
            let mut at = 0;
            events.retain(|event| {
                at += 1;
                at <= before || event.time_ms >= self.from_ms
            });
        }
        Ok(())
    }
}

/// Returns the first and the last time that is counted.
fn span_ms(
    simulation: &Simulation,
    source: &dyn Source,
    progress: &Progress,
) -> Result<Option<(u64, u64)>, Error> {
    const AT_ONCE: usize = 4_096;
    let (mut pass, mut events, mut span) = (source.open(1)?, Vec::new(), None);
    let counted = simulation.warm_up_ms..simulation.end_ms.unwrap_or(u64::MAX);
    loop {
        events.clear();
        pass.read(&mut events, AT_ONCE)?;
        if events.is_empty() || progress.stopped() {
            return Ok(span.filter(|_| !progress.stopped()));
        }
        for event in events.iter().filter(|event| counted.contains(&event.time_ms)) {
            let (first_ms, _) = span.unwrap_or((event.time_ms, event.time_ms));
            span = Some((first_ms, event.time_ms));
        }
    }
}
