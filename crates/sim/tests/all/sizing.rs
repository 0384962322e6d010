//! Sizing compared with a trial of every size.

use std::cell::Cell;
use std::num::NonZeroU32;

use rejoin_sim::sizing::{FIFO, Found, Sizing, Stage, Survey};
use rejoin_sim::{Drawn, Plan, Progress, Simulation, Subject};

const POLICIES: [Subject; 4] = [FIFO, Subject::Lru, Subject::Learned, Subject::Both];

fn plan(devices: u32, more: &str) -> Plan {
    let text = format!(
        "duration_s = 1800\nseeds = 2\n{more}\n[[group]]\nkind = \"devices\"\ndevices = {devices}\n\
         running_s = 120\nwaiting_s = 300\nintervals = \"60:23,30:13,15:2\""
    );
    Plan::parse(&text).expect("a plan")
}

struct Question {
    plan: Plan,
    simulation: Simulation,
}

impl Question {
    fn new(plan: Plan) -> Self {
        let simulation = Simulation { policies: POLICIES.to_vec(), ..Simulation::of(&plan) };
        Self { plan, simulation }
    }

    fn source(&self) -> Drawn<'_> {
        let mixture = self.plan.mixture.as_ref().expect("a group");
        Drawn { mixture, end_ms: self.plan.end_ms.expect("an end") }
    }

    fn survey(&self) -> Survey {
        let survey = Survey::of(&self.simulation, &self.source(), &Progress::default());
        survey.expect("no error").expect("an end")
    }

    fn found(&self, target_percent: f64, capacities: Option<&[NonZeroU32]>) -> (Found, f64) {
        let survey = self.survey();
        let sizing = Sizing { simulation: &self.simulation, survey: &survey, target_percent };
        let found = sizing.run(capacities, &self.source(), &Progress::default(), &|_| {});
        (found.expect("no error"), sizing.goal())
    }

    /// Returns the hit rate of a policy with each number of sessions, from 1 on.
    fn curve(&self, policy: Subject, most: u32) -> Vec<f64> {
        let policies = vec![policy];
        let capacities = sizes(1..=most);
        let simulation = Simulation { policies, capacities, ..self.simulation.clone() };
        let outcome = simulation.run(&self.source(), &Progress::default()).expect("no error");
        outcome.cells.iter().map(percent).collect()
    }
}

fn sizes(sizes: impl IntoIterator<Item = u32>) -> Vec<NonZeroU32> {
    sizes.into_iter().map(|size| NonZeroU32::new(size).expect("not zero")).collect()
}

fn percent(cell: &rejoin_sim::Cell) -> f64 {
    cell.rates.hit_after_first_of_device.expect("devices return").mean
}

#[test]
fn what_is_recommended_is_the_smallest_that_is_enough() {
    let question = Question::new(plan(80, ""));
    let curves = POLICIES.map(|policy| question.curve(policy, 80));
    for target in [20.0, 50.0, 70.0, 90.0, 98.0, 100.0] {
        let (found, goal) = question.found(target, None);
        assert!(found.complete && (goal - target).abs() < 1e-9, "{found:?}");
        // The number of sessions from which on all sizes are enough.
        let needed = |curve: &Vec<f64>| {
            curve.iter().rposition(|percent| *percent < goal).map_or(1, |last| last as u32 + 2)
        };
        let needed = POLICIES.iter().zip(&curves).map(|(policy, curve)| (*policy, needed(curve)));
        let needed: Vec<(Subject, u32)> = needed.collect();
        let shipped = needed.iter().filter(|(policy, _)| *policy != FIFO);
        let least = shipped.map(|(_, sessions)| *sessions).min();
        let best = found.recommended().expect("enough");
        assert_eq!(best.sessions, least, "{target} %: {needed:?} {:?}", found.needs);
        assert_eq!(best.fails_at, least.map(|least| least - 1).filter(|fails| *fails > 0));
        assert!(needed.contains(&(best.policy, best.sessions.expect("enough"))));
        let fifo = found.need(FIFO).expect("asked for");
        assert!(needed.contains(&(FIFO, fifo.sessions.expect("enough"))), "{target} %: {fifo:?}");
        // Every policy is known at the recommended size.
        for (policy, curve) in POLICIES.iter().zip(&curves) {
            let size = best.sessions.expect("enough");
            let cell = found.cell(*policy, size).expect("tried");
            assert_eq!(percent(cell), curve[size as usize - 1]);
        }
    }
}

/// Checks that more sessions than clients are needed if every handshake adds a ticket.
#[test]
fn servers_of_every_kind_are_sized() {
    for more in ["tls = \"1.3\"", "servers = 3", "sessions_kept = false", "keyed_by = \"session\""]
    {
        let question = Question::new(plan(300, more));
        let (found, goal) = question.found(95.0, None);
        let unlimited = question.survey().returning_percent();
        assert!((goal - unlimited * 0.95).abs() < 1e-9);
        let best = found.recommended().expect("enough");
        let at = |size: u32| percent(found.cell(best.policy, size).expect("tried"));
        assert!(at(best.sessions.expect("enough")) >= goal, "{more}: {found:?}");
        assert!(at(best.fails_at.expect("a smaller one")) < goal, "{more}: {found:?}");
        let largest = percent(found.cell(FIFO, found.largest().expect("some")).expect("tried"));
        assert!(largest >= unlimited - 0.1, "{more}: {largest} of {unlimited}");
    }
}

#[test]
fn the_work_is_bounded() {
    let mut question = Question::new(plan(5_000, ""));
    // The number of sizes tried does not depend on seeds.
    question.simulation.seeds = 1;
    let (found, _) = question.found(98.0, None);
    assert!((10..=17).contains(&found.sizes.len()), "{:?}", found.sizes);
    let tried = found.cells.len();
    assert!(tried < POLICIES.len() * 30, "{tried} cells");
    // The first size resumes almost nothing, the last everything; those between differ.
    let at = |size: u32| percent(found.cell(Subject::Both, size).expect("tried"));
    let middle = found.sizes[found.sizes.len() / 2];
    assert!(at(found.sizes[0]) < 10.0 && (20.0..95.0).contains(&at(middle)), "{:?}", found.sizes);
    assert!(at(found.largest().expect("some")) > 99.9);
}

#[test]
fn sizes_that_are_given_are_the_only_ones() {
    let question = Question::new(plan(300, ""));
    let (found, goal) = question.found(90.0, Some(&sizes([200, 40, 300, 100, 100])));
    assert_eq!(found.sizes, [40, 100, 200, 300]);
    assert_eq!(found.cells.len(), 4 * POLICIES.len());
    let best = found.recommended().expect("all fit in 300");
    let at = |size: u32| percent(found.cell(best.policy, size).expect("tried"));
    assert!(at(best.sessions.expect("enough")) >= goal);
    assert!(at(best.fails_at.expect("40 are too few")) < goal);
    let (found, _) = question.found(90.0, Some(&sizes([3, 5])));
    assert!(found.complete && found.recommended().is_none());
    let fifo = found.need(FIFO).expect("asked for");
    assert_eq!((fifo.sessions, fifo.fails_at, found.largest()), (None, Some(5), Some(5)));
}

#[test]
fn stopped_it_keeps_what_is_finished_and_recommends_nothing() {
    let question = Question::new(plan(300, ""));
    let survey = question.survey();
    let sizing = Sizing { simulation: &question.simulation, survey: &survey, target_percent: 98.0 };
    for stage in [Stage::Range, Stage::Sizes, Stage::Narrowing] {
        let (progress, begun) = (Progress::default(), Cell::new(0));
        let begins = |begins| {
            begun.set(begun.get() + 1);
            if begins == stage {
                progress.stop();
            }
        };
        let found = sizing.run(None, &question.source(), &progress, &begins).expect("no error");
        assert!(!found.complete && found.recommended().is_none(), "{stage:?}");
        assert_eq!(found.cells.is_empty(), stage == Stage::Range, "{stage:?}");
        assert!(begun.get() <= 3);
    }
    let progress = Progress::default();
    progress.stop();
    assert_eq!(
        Survey::of(&question.simulation, &question.source(), &progress).expect("none"),
        None
    );
}
