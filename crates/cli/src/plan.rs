//! `rejoin plan`

mod answer;
mod configuration;
mod costs;
mod text;

use anyhow::anyhow;
use rejoin_sim::sizing::{FIFO, Found, Sizing, Stage, Survey};
use rejoin_sim::{Plan, Simulation, Subject};

#[cfg(feature = "lab")]
use crate::arguments::KeyName;
use crate::arrivals::{Arrivals, Input};
use crate::sizes::{Sizes, distinct};
use crate::terminal::{self, Watch};
use answer::Answer;
use costs::Costs;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Returning devices: every connection but the first of its device. A plan without groups gives its
servers to a trace. A plan's capacities and policies are for `rejoin simulate`.
Examples:
  rejoin plan --plan plans/paper-000.toml --measure
  rejoin plan --trace arrivals.trace --target 95 --full-us 900 --resumed-us 90
  rejoin plan --plan plans/paper-000.toml --capacities 100..5000:100 --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Sessions the cache may hold: 300,600 or 100..5000:100 [default: found by trying]
    #[arg(long, value_name = "N,…")]
    capacities: Option<Sizes>,
    /// Policies to compare [default: fifo,lru,learned, and both if clients announce their return]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    policies: Option<Vec<Subject>>,
    /// What is enough, in percent of what an unlimited cache would resume
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "98", allow_negative_numbers = true)]
    target: f64,
    /// Server CPU time of a full handshake, in microseconds
    #[arg(long, value_name = "US", value_parser = microseconds, requires = "resumed_us", allow_negative_numbers = true)]
    full_us: Option<f64>,
    /// Server CPU time of a resumed handshake, in microseconds
    #[arg(long, value_name = "US", value_parser = microseconds, requires = "full_us", allow_negative_numbers = true)]
    resumed_us: Option<f64>,
    #[cfg(feature = "lab")]
    /// Measure both here, with real handshakes, and what OpenSSL's own cache takes
    #[arg(long, conflicts_with_all = ["full_us", "resumed_us"])]
    measure: bool,
    #[cfg(feature = "lab")]
    /// Key of the certificate to measure with
    #[arg(long, value_enum, default_value = "rsa-2048", requires = "measure")]
    key: KeyName,
    /// Bytes of a session in rejoin's cache
    #[arg(long, value_name = "BYTES", default_value_t = answer::SESSION_BYTES, value_parser = clap::value_parser!(u32).range(8..=65_528))]
    session_bytes: u32,
    /// How long sessions live, for the configurations [default: found from the arrivals]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=604_800))]
    lifetime_s: Option<u32>,
    /// Print one JSON object with everything
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = arguments.input.plan()?;
    let arrivals = arguments.input.arrivals(&plan)?;
    let costs = Costs::of(arguments, plan.server.tls)?;
    let watch = Watch::start()?;
    let progress = watch.progress();
    let bar = watch.bar("looking at the arrivals    ");
    let mut simulation = simulation(arguments, &plan, &arrivals);
    let surveyed = Survey::of(&simulation, arrivals.source(), progress);
    let surveyed = surveyed.map_err(|error| arrivals.failed(error))?;
    let survey = surveyed.ok_or_else(|| anyhow!(NOTHING_TRIED))?;
    check(&survey, &arrivals)?;
    simulation.policies = policies(arguments, &survey);
    let sizing =
        Sizing { simulation: &simulation, survey: &survey, target_percent: arguments.target };
    let capacities = arguments.capacities.as_ref().map(|Sizes(capacities)| &capacities[..]);
    let begins = |stage| {
        bar.set_prefix(label(stage));
        bar.reset();
    };
    let found = sizing.run(capacities, arrivals.source(), progress, &begins);
    watch.finish(&bar);
    let found = found.map_err(|error| arrivals.failed(error))?;
    anyhow::ensure!(!found.cells.is_empty(), NOTHING_TRIED);
    let answer = Answer::of(arguments, &sizing, &found, costs)?;
    print(arguments.json, &answer, &found)?;
    anyhow::ensure!(found.complete, "interrupted: nothing is recommended from what is finished");
    Ok(())
}

const NOTHING_TRIED: &str = "interrupted before anything was tried";

/// Without policies, which depend on who arrives.
fn simulation(arguments: &Arguments, plan: &Plan, arrivals: &Arrivals<'_>) -> Simulation {
    let mut simulation = arguments.input.simulation(plan, arrivals);
    // A group's own rates are of no use here.
    simulation.groups = Vec::new();
    simulation
}

/// Whether a cache can be of any use.
fn check(survey: &Survey, arrivals: &Arrivals<'_>) -> anyhow::Result<()> {
    if survey.requests == 0.0 {
        return Err(arrivals.none_counted());
    }
    let name = &arrivals.name;
    anyhow::ensure!(
        survey.returning_percent() > 0.0,
        "{name}: no client comes back with a session: there is nothing to resume"
    );
    Ok(())
}

/// Those asked for, none twice.
fn policies(arguments: &Arguments, survey: &Survey) -> Vec<Subject> {
    let default = || {
        let told = survey.hints.then_some(Subject::Both);
        [FIFO, Subject::Lru, Subject::Learned].into_iter().chain(told).collect()
    };
    distinct(arguments.policies.clone().unwrap_or_else(default))
}

const fn label(stage: Stage) -> &'static str {
    match stage {
        Stage::Range => "finding sizes that matter  ",
        Stage::Sizes => "trying sizes               ",
        Stage::Narrowing => "narrowing down what is best",
    }
}

fn print(json: bool, answer: &Answer<'_>, found: &Found) -> anyhow::Result<()> {
    let text = if json { serde_json::to_string(answer)? } else { text::of(answer, found) };
    terminal::print_result(&text)
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent.ok_or_else(|| "a number of percent above 0, 100 at most".to_owned())
}

fn microseconds(text: &str) -> Result<f64, String> {
    let us = text.parse().ok().filter(|us| *us > 0.0 && *us <= 1e9);
    us.ok_or_else(|| "a number of microseconds above 0, such as 850".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_and_microseconds_are_positive() {
        assert_eq!((percent("100"), microseconds("0.5")), (Ok(100.0), Ok(0.5)));
        for wrong in ["0", "-1", "101", "NaN", "98%", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "-1", "inf", "NaN", "5ms"] {
            assert!(microseconds(wrong).is_err(), "{wrong}");
        }
    }
}
