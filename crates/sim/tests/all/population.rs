//! Paper 000's population, and a simulation of it.

use std::num::{NonZeroU32, NonZeroUsize};

use rejoin_sim::{Cell, Drawn, Outcome, Plan, Progress, Simulation, Subject};

/// The devices: runs of 120 s, waits of 46 minutes; none runs at first.
pub(crate) const DEVICES: &str = r#"
kind = "devices"
running_s = 120
waiting_s = 2760
intervals = "60:23,30:13,15:2"
start = "waiting"
"#;

/// Makes the plan of an hour of so many devices, with more keys for the whole plan.
pub(crate) fn plan(devices: u32, keys: &str) -> Plan {
    let text = format!("duration_s = 3600\n{keys}\n[[group]]\ndevices = {devices}{DEVICES}");
    Plan::parse(&text).expect("a plan")
}

pub(crate) fn simulation(
    plan: &Plan,
    policies: &str,
    capacities: &[u32],
    seeds: u32,
) -> Simulation {
    let policy = |name: &str| name.parse::<Subject>().expect("a policy");
    let capacity = |sessions: &u32| NonZeroU32::new(*sessions).expect("not zero");
    Simulation {
        policies: policies.split(',').map(policy).collect(),
        capacities: capacities.iter().map(capacity).collect(),
        seeds,
        jobs: NonZeroUsize::new(2).expect("not zero"),
        ..Simulation::of(plan)
    }
}

pub(crate) fn play(plan: &Plan, simulation: &Simulation) -> Outcome {
    let mixture = plan.mixture.as_ref().expect("a group");
    let source = Drawn { mixture, end_ms: plan.end_ms.expect("a duration") };
    simulation.run(&source, &Progress::default()).expect("a simulation")
}

/// Returns the hit rate after the first of each run, in percent.
pub(crate) fn after_first_of_run(cell: &Cell) -> f64 {
    cell.rates.hit_after_first_of_run.expect("some were counted").mean
}
