//! `rejoin simulate`

use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use rejoin_report::distinct;
use rejoin_sim::{Outcome, Plan, Progress, Simulation, report};

use crate::arguments::Misuse;
use crate::arrivals::{Arrivals, Input, ToldBy};
use crate::beside::{Beside, resolved};
use crate::plan::logged::Logged;
use crate::sizes::Sizes;
use crate::terminal::{self, Watch};
use crate::trace_file;
use crate::units::seconds_in;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
There are three hit rates: of all requests, of those after the first of each device, and of those
after the first of each run. The last equals the first if a trace marks no runs.
Policies of the shipped cache: lru, predictive, learned, both. Policies to compare with: fifo,
random, lfu, mru, fifo-4way, fifo-8way, fifo-11way, sieve, s3-fifo, arc, literal, exact,
clairvoyant, clairvoyant-no-bypass. No policy that knows as much exceeds bound and bound-learned;
bound-by-time and bound-learned-by-time take longer, and are closer to what can be reached.
Options override the plan. The default policies are the plan's, else fifo, lru, random, predictive,
learned and clairvoyant. A plan without groups describes the servers of a trace. Sessions live for
ever unless --lifetime is given; `rejoin plan` finds one, and counts it.
Examples:
  rejoin simulate --plan plans/paper-000.toml --capacities 200..2000:100 --html curves.html
  rejoin simulate --trace arrivals.trace --capacities 1000,5000 --policies lru,learned --json
  rejoin simulate --log access.log* --write-trace arrivals.trace
  rejoin simulate --plan plans/paper-000.toml --write-trace paper.oracleGeneral.bin")]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// The lifetime of sessions, 7 days at most [default: sessions live for ever]
    #[arg(long, value_name = "TIME", value_parser = seconds_in(1..=604_800))]
    lifetime: Option<u32>,
    /// Print a table, which is the default
    #[arg(long, conflicts_with = "json")]
    table: bool,
    /// Print one JSON object for each policy and capacity
    #[arg(long)]
    json: bool,
    /// Write the table to a file too, as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with the curves too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Only write the arrivals to a trace, in the format of its name
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["capacities", "policies", "seeds", "threads", "lifetime", "table", "json", "csv", "html"]
    )]
    write_trace: Option<PathBuf>,
    /// The seed of the arrivals to write [default: 1]
    #[arg(long, value_name = "N", requires = "write_trace")]
    seed: Option<u64>,
}

/// Arrivals written between two checks for Ctrl-C.
const AT_ONCE: usize = 4_096;

const POLICIES: [&str; 6] = ["fifo", "lru", "random", "predictive", "learned", "clairvoyant"];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = arguments.input.plan()?;
    let watch = Watch::start()?;
    let progress = watch.progress();
    let reading = watch.bar("reading the logs");
    let logs = arguments.input.logs(None, false, progress)?;
    reading.finish_and_clear();
    let (plan, tls_told_by) = arguments.input.with_tls(plan, logs.as_ref());
    if let Some(logs) = &logs {
        let logged = Logged::of(logs);
        logged.left_out().iter().for_each(|line| terminal::complain(line));
        logged.warnings().iter().for_each(|line| terminal::complain(&format!("warning: {line}")));
    }
    let arrivals = arguments.input.arrivals(&plan, logs.as_ref())?;
    if let Some(path) = &arguments.write_trace {
        return write_trace(path, arguments.seed.unwrap_or(1), &arrivals, progress);
    }
    let simulation = simulation(arguments, &plan, &arrivals)?;
    let (csv, html) = outputs(arguments)?;
    if logs.is_some() && tls_told_by == ToldBy::Nobody {
        terminal::complain(
            "warning: the log does not tell the version of TLS: 1.2 is assumed; give --tls",
        );
    }
    let bar = watch.bar("simulating");
    let ran = simulation.run(arrivals.source(), progress);
    watch.finish(&bar);
    let outcome = ran.map_err(|error| arrivals.failed(error))?;
    anyhow::ensure!(!outcome.cells.is_empty(), "interrupted before any seed was finished");
    if outcome.cells.iter().all(|cell| cell.requests == 0.0) {
        return Err(arrivals.none_counted());
    }
    print(arguments.json, &outcome)?;
    csv.map(|file| file.write(&report::csv(&outcome))).transpose()?;
    html.map(|file| file.write(&report::html(&outcome)?)).transpose()?;
    anyhow::ensure!(outcome.complete, "interrupted: the figures are of the finished seeds");
    Ok(())
}

/// Creates the files to write, which differ from each other and from those that are read.
fn outputs(arguments: &Arguments) -> anyhow::Result<(Option<Beside>, Option<Beside>)> {
    let csv = arguments.csv.as_deref().map(Beside::create).transpose()?;
    let html = arguments.html.as_deref().map(Beside::create).transpose()?;
    let mut taken: Vec<PathBuf> = arguments.input.files().map(resolved).collect();
    for file in [&csv, &html].into_iter().flatten() {
        file.differs_from(&taken)?;
        taken.push(file.target().to_owned());
    }
    Ok((csv, html))
}

fn write_trace(
    path: &Path,
    seed: u64,
    arrivals: &Arrivals<'_>,
    progress: &Progress,
) -> anyhow::Result<()> {
    let style = ProgressStyle::with_template("writing {human_pos} arrivals, {elapsed_precise}");
    let bar = ProgressBar::no_length();
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let mut pass = arrivals.source().open(seed).map_err(|error| arrivals.failed(error))?;
    trace_file::write(path, |write| {
        let (mut events, mut count) = (Vec::new(), 0);
        loop {
            events.clear();
            pass.read(&mut events, AT_ONCE).map_err(|error| arrivals.failed(error))?;
            if events.is_empty() {
                return Ok(());
            }
            events.iter().try_for_each(|event| write(*event))?;
            count += events.len() as u64;
            bar.set_position(count);
            anyhow::ensure!(!progress.stopped(), "interrupted: {} is not written", path.display());
        }
    })
}

fn simulation(
    arguments: &Arguments,
    plan: &Plan,
    arrivals: &Arrivals<'_>,
) -> anyhow::Result<Simulation> {
    let mut simulation = arguments.input.simulation(plan, arrivals);
    if let Some(Sizes(capacities)) = &arguments.input.capacities {
        simulation.capacities.clone_from(capacities);
    }
    if simulation.capacities.is_empty() {
        let what = "no capacity is given: add --capacities, such as 300,600 or 100..2000:100";
        return Err(Misuse(what.to_owned()).into());
    }
    if let Some(policies) = &arguments.input.policies {
        simulation.policies.clone_from(policies);
    }
    if simulation.policies.is_empty() {
        simulation.policies = POLICIES.map(str::parse).into_iter().collect::<Result<_, _>>()?;
    }
    simulation.server.lifetime_s = arguments.lifetime;
    simulation.capacities = distinct(simulation.capacities);
    simulation.policies = distinct(simulation.policies);
    Ok(simulation)
}

fn print(json: bool, outcome: &Outcome) -> anyhow::Result<()> {
    if !json {
        return terminal::print_result(report::table(outcome).trim_end());
    }
    for cell in &outcome.cells {
        terminal::print_result(&serde_json::to_string(cell)?)?;
    }
    Ok(())
}
