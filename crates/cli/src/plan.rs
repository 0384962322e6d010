//! `rejoin plan`

mod advice;
mod answer;
mod configuration;
mod costs;
mod findings;
mod knee;
pub(crate) mod logged;
mod memory;
mod page;
mod text;
mod trials;
mod unseen;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rejoin_logs::Counters;
use rejoin_report::distinct;
use rejoin_sim::sizing::{FIFO, Lifetime, Sizing, Stage, Survey};
use rejoin_sim::{Plan, Progress, Simulation, Source, Subject};

use crate::access_log::Logs;
#[cfg(feature = "lab")]
use crate::arguments::{KEY_TYPES, one_of};
use crate::arrivals::{Arrivals, Input};
use crate::beside::{Beside, resolved};
use crate::sizes::Sizes;
use crate::terminal::{self, Watch};
use crate::units::{bytes_in, seconds_in, time};
use advice::Wish;
use answer::Answer;
use costs::Costs;
use findings::Finder;
use memory::Sizer;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Returning devices are all connections but the first of each device. By default, the size is where
more buys little: half and twice as much are told beside it. Capacities are found by trial, and the
policies are fifo, lru, learned, and both if clients announce their return; those of a plan are for
`rejoin simulate` only. A plan without groups describes the servers of a trace or a log.
docs/plan.md has log formats for nginx, HAProxy and Apache that tell connections apart; combined
logs are read, too. No address of a log is kept or printed.
Examples:
  rejoin plan --log /var/log/nginx/access.log*
  zcat access.log.*.gz | rejoin plan --log - --html plan.html
  rejoin plan --plan plans/paper-000.toml --measure
  rejoin plan --trace arrivals.trace --target 95 --full-us 900 --resumed-us 90
  rejoin plan --plan plans/paper-000.toml --capacities 100..5000:100 --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// The resumptions to reach, in percent of those of an unlimited cache [default: where more memory
    /// buys little; 98 with --capacities]
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_negative_numbers = true)]
    target: Option<f64>,
    /// Counters of Prometheus to compare the log with: the JSON of a range query, as
    /// /api/v1/query_range returns it
    #[arg(long, value_name = "FILE", requires = "log")]
    counters: Option<PathBuf>,
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
    /// The lifetime of sessions, 7 days at most [default: found from the arrivals]
    #[arg(long, value_name = "TIME", alias = "lifetime-s", value_parser = seconds_in(1..=604_800))]
    lifetime: Option<u32>,
    /// Print one JSON object with everything
    #[arg(long)]
    json: bool,
    /// Write a page with the answer and the curves too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = arguments.input.plan()?;
    let watch = Watch::start()?;
    let progress = watch.progress();
    let html = arguments.html.as_deref().map(Beside::create).transpose()?;
    if let Some(html) = &html {
        let read = arguments.input.files().chain(arguments.counters.as_deref());
        html.differs_from(&read.map(resolved).collect::<Vec<_>>())?;
    }
    let counters = arguments.counters.as_deref().map(read_counters).transpose()?;
    let bar = watch.bar("reading the logs           ");
    let logs = arguments.input.logs(counters.as_ref(), true, progress)?;
    let (plan, tls_told_by) = arguments.input.with_tls(plan, logs.as_ref());
    let arrivals = arguments.input.arrivals(&plan, logs.as_ref())?;
    let costs = Costs::of(arguments, plan.server.tls)?;
    bar.set_prefix("looking at the arrivals    ");
    bar.reset();
    let mut simulation = simulation(arguments, &plan, &arrivals);
    let survey = survey(&mut simulation, &arrivals, progress)?;
    check(arguments, &survey, &arrivals, logs.as_ref())?;
    simulation.policies = policies(arguments, &survey);
    let wish = wish(arguments);
    let target_percent = wish.target();
    let sizing = Sizing { simulation: &simulation, survey: &survey, target_percent };
    let capacities = arguments.input.capacities.as_ref().map(|Sizes(capacities)| &capacities[..]);
    let begins = |label: &'static str| {
        bar.set_prefix(label);
        bar.reset();
    };
    let begins_stage = |stage| begins(label(stage));
    let found = sizing.run(capacities, arrivals.source(), progress, &begins_stage);
    let found = found.map_err(|error| arrivals.failed(error))?;
    anyhow::ensure!(!found.cells.is_empty(), NOTHING_TRIED);
    let finder = Finder {
        sizing: &sizing,
        found: &found,
        source: arrivals.source(),
        progress,
        begins: &begins,
        wish,
        sizer: Sizer {
            session_bytes: arguments.session_bytes,
            ghosts_percent: simulation.server.ghosts_percent,
            costs: &costs,
        },
        may_try_more: capacities.is_none(),
        is_recorded: arrivals.are_recorded(),
        logs: logs.as_ref(),
        tls_told_by,
        lifetime_s: arguments.lifetime,
    };
    let findings = finder.run().map_err(|error| arrivals.failed_at_all(error))?;
    let complete = finder.is_complete();
    let checked = counters.as_ref().zip(logs.as_ref());
    let checked = checked.map(|(counters, logs)| logged::check(counters, logs));
    let checked = checked.unwrap_or_else(|| Ok(Vec::new()));
    let answer = Answer::of(arguments, &finder, &findings, checked)?;
    bar.finish_and_clear();
    print(arguments.json, &answer, &findings.sizes)?;
    html.map(|file| file.write(&page::of(&answer, &findings.sizes))).transpose()?;
    watch.finish(&bar);
    anyhow::ensure!(complete, "interrupted: nothing is recommended from what is finished");
    Ok(())
}

/// Returns what is asked for: the knee, unless a target or sizes are given.
fn wish(arguments: &Arguments) -> Wish {
    match (arguments.target, &arguments.input.capacities) {
        (Some(percent), _) => Wish::Target(percent),
        (None, Some(_)) => Wish::Target(Wish::Knee.target()),
        (None, None) => Wish::Knee,
    }
}

fn read_counters(path: &Path) -> anyhow::Result<Counters> {
    let name = path.display();
    let mut json = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(Counters::MOST_BYTES + 1).read_to_end(&mut json));
    read.with_context(|| format!("{name}: cannot be read"))?;
    anyhow::ensure!(json.len() as u64 <= Counters::MOST_BYTES, "{name}: longer than 256 MiB");
    Counters::parse(&json).with_context(|| name.to_string())
}

const NOTHING_TRIED: &str = "interrupted before anything was tried";

/// Returns the simulation without policies, which depend on the arrivals.
fn simulation(arguments: &Arguments, plan: &Plan, arrivals: &Arrivals<'_>) -> Simulation {
    let mut simulation = arguments.input.simulation(plan, arrivals);
    // The rates of single groups are not needed.
    simulation.groups = Vec::new();
    simulation.server.lifetime_s = arguments.lifetime;
    simulation
}

/// Surveys the arrivals. Unless a lifetime is given, the servers get the one that is found first.
fn survey(
    simulation: &mut Simulation,
    arrivals: &Arrivals<'_>,
    progress: &Progress,
) -> anyhow::Result<Survey> {
    let survey = surveyed(simulation, arrivals.source(), progress);
    let survey = survey.map_err(|error| arrivals.failed(error))?;
    survey.ok_or_else(|| anyhow!(NOTHING_TRIED))
}

/// Surveys arrivals in the same way. Returns `None` if it was stopped.
fn surveyed(
    simulation: &mut Simulation,
    source: &dyn Source,
    progress: &Progress,
) -> Result<Option<Survey>, rejoin_sim::Error> {
    let found = Survey::of(simulation, source, progress)?;
    if simulation.server.lifetime_s.is_some() {
        return Ok(found);
    }
    let Some(found) = found else { return Ok(None) };
    simulation.server.lifetime_s = Some(found.lifetime.seconds);
    Survey::of(simulation, source, progress)
}

/// Checks that the arrivals leave something to resume.
fn check(
    arguments: &Arguments,
    survey: &Survey,
    arrivals: &Arrivals<'_>,
    logs: Option<&Logs>,
) -> anyhow::Result<()> {
    if survey.requests == 0.0 {
        return Err(arrivals.none_counted());
    }
    let name = &arrivals.name;
    let Lifetime { seconds, lost_percent, .. } = survey.lifetime;
    anyhow::ensure!(
        survey.returning_percent() > 0.0 || lost_percent == 0.0,
        "{name}: every client that comes back finds its session older than {}, so nothing resumes at any size; {}",
        time(seconds.into()),
        answer::for_longer(&survey.lifetime, arguments.lifetime.is_some())
    );
    anyhow::ensure!(
        survey.returning_percent() > 0.0,
        "{name}: no client comes back with a session: there is nothing to resume{}",
        logs.map(|logs| logged::why_nobody_returns(logs, survey.clients)).unwrap_or_default()
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

fn print(json: bool, answer: &Answer<'_>, sizes: &[u32]) -> anyhow::Result<()> {
    let text = if json { serde_json::to_string(answer)? } else { text::of(answer, sizes) };
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
