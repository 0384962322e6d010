//! `rejoin plan`

mod answer;
mod configuration;
mod costs;
mod text;

use anyhow::anyhow;
use rejoin_report::distinct;
use rejoin_sim::sizing::{FIFO, Found, Sizing, Stage, Survey};
use rejoin_sim::{Plan, Simulation, Subject};

#[cfg(feature = "lab")]
use crate::arguments::{KEY_TYPES, one_of};
use crate::arrivals::{Arrivals, Input};
use crate::sizes::Sizes;
use crate::terminal::{self, Watch};
use crate::units::{bytes_in, seconds_in};
use answer::Answer;
use costs::Costs;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Returning devices are all connections but the first of each device. By default, capacities are found
by trial, and the policies are fifo, lru, learned, and both if clients announce their return; those
of a plan are for `rejoin simulate` only. A plan without groups describes the servers of a trace.
Examples:
  rejoin plan --plan plans/paper-000.toml --measure
  rejoin plan --trace arrivals.trace --target 95 --full-us 900 --resumed-us 90
  rejoin plan --plan plans/paper-000.toml --capacities 100..5000:100 --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// The resumptions to reach, in percent of those of an unlimited cache
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "98", allow_negative_numbers = true)]
    target: f64,
    /// Server CPU time of a full handshake, in microseconds
    #[arg(long, value_name = "US", value_parser = microseconds, requires = "resumed_us", allow_negative_numbers = true)]
    full_us: Option<f64>,
    /// Server CPU time of a resumed handshake, in microseconds
    #[arg(long, value_name = "US", value_parser = microseconds, requires = "full_us", allow_negative_numbers = true)]
    resumed_us: Option<f64>,
    #[cfg(feature = "lab")]
    /// Measure both on this machine, with real handshakes, and the memory of OpenSSL's internal cache
    #[arg(long, conflicts_with_all = ["full_us", "resumed_us"])]
    measure: bool,
    #[cfg(feature = "lab")]
    /// The type of the certificate's key for --measure
    #[arg(long, value_parser = one_of(KEY_TYPES), alias = "key", default_value = "rsa-2048", requires = "measure")]
    key_type: rejoin_serve::KeyType,
    /// The size of a session in Rejoin's cache
    #[arg(long, value_name = "SIZE", default_value_t = answer::SESSION_BYTES, value_parser = bytes_in(8..=65_528))]
    session_bytes: u32,
    /// The lifetime of sessions, 7 days at most, for the configurations [default: found from the
    /// arrivals]
    #[arg(long, value_name = "TIME", alias = "lifetime-s", value_parser = seconds_in(1..=604_800))]
    lifetime: Option<u32>,
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
    let capacities = arguments.input.capacities.as_ref().map(|Sizes(capacities)| &capacities[..]);
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

/// Returns the simulation without policies, which depend on the arrivals.
fn simulation(arguments: &Arguments, plan: &Plan, arrivals: &Arrivals<'_>) -> Simulation {
    let mut simulation = arguments.input.simulation(plan, arrivals);
    // The rates of single groups are not needed.
    simulation.groups = Vec::new();
    simulation
}

/// Checks that the arrivals leave something to resume.
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

/// Returns the policies to try, without repetitions.
fn policies(arguments: &Arguments, survey: &Survey) -> Vec<Subject> {
    let default = || {
        let told = survey.hints.then_some(Subject::Both);
        [FIFO, Subject::Lru, Subject::Learned].into_iter().chain(told).collect()
    };
    distinct(arguments.input.policies.clone().unwrap_or_else(default))
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
