//! The plans and traces that commands read.

use std::fs::{self, File};
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::ArgGroup;
use rejoin_logs::Counters;
use rejoin_sim::plan::MOST_SEEDS;
use rejoin_sim::{Drawn, Error, Pass, Plan, Progress, Server, Simulation, Source, Subject, Tls};
use rejoin_trace::Mixture;

use crate::access_log::{KEEP_ALIVE_MS, Logs, ReadLog};
use crate::arguments::Misuse;
use crate::sizes::Sizes;
use crate::units::{Time, above_zero};

/// The input of a simulation, the same for every command that simulates.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = ArgGroup::new("input").args(["plan", "trace", "log"]).required(true).multiple(true))]
pub(crate) struct Input {
    /// The clients and servers, in TOML; with --trace or --log, the servers only
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// A trace of arrivals, in Rejoin's format, CSV or oracleGeneral
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Access logs of nginx, HAProxy or Apache, in any order, plain, gzip or zstd; - is standard input
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "trace")]
    log: Vec<PathBuf>,
    /// The version of TLS [default: the plan's, else that of most connections of a log, else 1.2]
    #[arg(long, value_name = "TLS", value_parser = ["1.2", "1.3"])]
    tls: Option<String>,
    /// The pause that ends a connection, where a log does not tell connections apart [default: 75s]
    #[arg(long, value_name = "TIME", value_parser = above_zero, requires = "log")]
    keep_alive: Option<Time>,
    /// Sessions that the cache may hold, in turn: 300,600 or 100..2000:100
    #[arg(long, value_name = "N,…")]
    pub(crate) capacities: Option<Sizes>,
    /// Policies to try, in turn
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) policies: Option<Vec<Subject>>,
    /// The number of seeds to try, from 1 on [default: the plan's, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SEEDS)))]
    seeds: Option<u32>,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N", alias = "jobs", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Input {
    /// Reads the plan. Returns the empty plan if none is given.
    pub(crate) fn plan(&self) -> anyhow::Result<Plan> {
        self.plan.as_deref().map_or_else(|| Ok(Plan::default()), read_plan)
    }

    /// Returns the arrivals of the plan's clients, or of the trace.
    ///
    /// `logs` are those of [`Self::logs`].
    pub(crate) fn arrivals<'a>(
        &self,
        plan: &'a Plan,
        logs: Option<&'a Logs>,
    ) -> anyhow::Result<Arrivals<'a>> {
        match logs {
            Some(logs) if plan.mixture.is_none() => Ok(Arrivals::of_log(logs)),
            Some(_) => Err(clients_twice(self.plan.as_deref(), "--log")),
            None => Arrivals::of(self.plan.as_deref(), plan, self.trace.as_deref()),
        }
    }

    /// Reads the logs, if any are given; with `others`, in all readings that they allow.
    pub(crate) fn logs(
        &self,
        counters: Option<&Counters>,
        others: bool,
        progress: &Progress,
    ) -> anyhow::Result<Option<Logs>> {
        if self.log.is_empty() {
            return Ok(None);
        }
        let keep_alive_ms = self.keep_alive.map_or(KEEP_ALIVE_MS, |Time { ms }| ms);
        Logs::read(&self.log, keep_alive_ms, counters, others, progress).map(Some)
    }

    /// Returns the plan with the version of TLS of its servers, and who told that.
    pub(crate) fn with_tls(&self, plan: Plan, logs: Option<&Logs>) -> (Plan, ToldBy) {
        let has_named = plan.names_tls || plan.mixture.is_some();
        let (is_13, by) = match (self.tls.as_deref(), logs.and_then(Logs::is_of_tls_13)) {
            (Some(version), _) => (version == "1.3", ToldBy::Option),
            (None, _) if has_named => return (plan, ToldBy::Plan),
            (None, Some(is_13)) => (is_13, ToldBy::Log),
            (None, None) => (false, ToldBy::Nobody),
        };
        let tls = match (is_13, plan.server.tls) {
            (true, Tls::V1_2) => Tls::V1_3_OF_OPENSSL,
            (false, _) => Tls::V1_2,
            (true, tickets) => tickets,
        };
        (Plan { server: Server { tls, ..plan.server }, ..plan }, by)
    }

    /// Returns the simulation that the plan describes, with the changes of the options.
    pub(crate) fn simulation(&self, plan: &Plan, arrivals: &Arrivals<'_>) -> Simulation {
        let mut simulation = Simulation::of(plan);
        if plan.title == Plan::default().title {
            simulation.title.clone_from(&arrivals.name);
        }
        simulation.seeds = self.seeds.unwrap_or(simulation.seeds);
        let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let threads = self.threads.and_then(|threads| NonZeroUsize::new(usize::from(threads)));
        simulation.jobs = threads.unwrap_or(processors);
        simulation
    }

    /// Returns the files that are read.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let single = [&self.plan, &self.trace].into_iter().flatten();
        single.chain(&self.log).map(PathBuf::as_path)
    }
}

/// The source of the version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToldBy {
    Option,
    Plan,
    Log,
    Nobody,
}

fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    let misuse = |what: String| Misuse(format!("{}: {what}", path.display()));
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PLAN_BYTES + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("{}: cannot be read", path.display()))?;
    if bytes.len() as u64 > PLAN_BYTES {
        let what = "longer than 1 MiB: a plan is a short text in TOML; give a trace with --trace";
        return Err(misuse(what.to_owned()).into());
    }
    let text = str::from_utf8(&bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        misuse(format!("line {line}: not UTF-8: a plan is TOML; give a trace with --trace"))
    })?;
    Ok(Plan::parse(text).map_err(|error| misuse(error.to_string()))?)
}

/// The longest plan. A longer file is not a plan, or has no end.
const PLAN_BYTES: u64 = 1 << 20;

/// A source of arrivals, and the file to name in its errors.
pub(crate) struct Arrivals<'a> {
    pub(crate) name: String,
    from: From<'a>,
}

enum From<'a> {
    Plan(Drawn<'a>),
    Log(&'a ReadLog),
    Trace(TraceFile),
}

impl<'a> Arrivals<'a> {
    /// Returns the arrivals of the plan, which was read from `plan_file`, or of the trace.
    fn of(plan_file: Option<&Path>, plan: &'a Plan, trace: Option<&Path>) -> anyhow::Result<Self> {
        let shown = |path: Option<&Path>| {
            path.map(Path::display).map(|path| path.to_string()).unwrap_or_default()
        };
        match (trace, &plan.mixture) {
            (None, Some(mixture)) => {
                Ok(Self { name: shown(plan_file), from: From::Plan(drawn(mixture, plan)) })
            }
            (Some(path), None) => {
                Ok(Self { name: shown(trace), from: From::Trace(TraceFile::find(path)?) })
            }
            (None, None) => {
                let plan = shown(plan_file);
                Err(Misuse(format!("{plan}: no [[group]]: add one, or give a --trace")).into())
            }
            (Some(_), Some(_)) => Err(clients_twice(plan_file, "--trace")),
        }
    }

    /// Returns the arrivals of the first reading of logs.
    fn of_log(logs: &'a Logs) -> Self {
        Self { name: logs.name.clone(), from: From::Log(&logs.readings[0]) }
    }

    /// Returns true if the arrivals were recorded, and false if they are drawn.
    pub(crate) fn are_recorded(&self) -> bool {
        !matches!(self.from, From::Plan(_))
    }

    pub(crate) fn source(&self) -> &dyn Source {
        match &self.from {
            From::Plan(drawn) => drawn,
            From::Trace(file) => file,
            From::Log(log) => *log,
        }
    }

    /// Returns the error for a source without arrivals after the warm-up.
    pub(crate) fn none_counted(&self) -> anyhow::Error {
        anyhow!(
            "{}: no arrivals in the time that is counted: give a longer trace or duration",
            self.name
        )
    }

    /// The same for an error that may be one of the simulation.
    pub(crate) fn failed_at_all(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast() {
            Ok(error) => self.failed(error),
            Err(error) => error,
        }
    }

    /// Adds the file's name to an error of the simulation.
    pub(crate) fn failed(&self, error: Error) -> anyhow::Error {
        match error {
            // The options cause this error as much as the file.
            Error::Cache { .. } if error.is_misuse() => Misuse(error.to_string()).into(),
            Error::Cache { .. } => error.into(),
            error => anyhow!("{}: {error}", self.name),
        }
    }
}

fn clients_twice(plan: Option<&Path>, option: &str) -> anyhow::Error {
    let plan = plan.map(Path::display).map(|path| path.to_string()).unwrap_or_default();
    let what = "the plan has clients of its own: remove its groups, or leave out";
    Misuse(format!("{plan}: {what} {option}")).into()
}

fn drawn<'a>(mixture: &'a Mixture, plan: &Plan) -> Drawn<'a> {
    Drawn { mixture, end_ms: plan.end_ms.unwrap_or(u64::MAX) }
}

/// A trace in a file, which every pass reads once.
#[derive(Debug)]
struct TraceFile {
    path: PathBuf,
    bytes: u64,
}

/// Bytes of an event in a binary trace; in a CSV file about as many.
const EVENT_BYTES: f64 = 24.0;

impl TraceFile {
    fn find(path: &Path) -> anyhow::Result<Self> {
        let found = fs::metadata(path);
        let found = found.with_context(|| format!("{}: cannot be read", path.display()))?;
        if !found.is_file() {
            let what =
                "not a regular file: a trace is read once for every seed, so write it to a file";
            return Err(Misuse(format!("{}: {what}", path.display())).into());
        }
        Ok(Self { path: path.to_owned(), bytes: found.len() })
    }
}

impl Source for TraceFile {
    fn open(&self, _: u64) -> Result<Box<dyn Pass + '_>, Error> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let file = File::open(&self.path).map_err(Error::Open)?;
        Ok(Box::new(rejoin_trace::open(&name, file)?))
    }

    fn part_over(&self, _: u64, events: u64) -> f64 {
        events as f64 * EVENT_BYTES / self.bytes.max(1) as f64
    }
}
