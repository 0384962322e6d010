//! Plans and traces that are named on the command line.

use std::fs::{self, File};
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rejoin_sim::plan::MOST_SEEDS;
use rejoin_sim::{Drawn, Error, Pass, Plan, Simulation, Source};
use rejoin_trace::Mixture;

use crate::arguments::Misuse;

/// What is simulated: the same for every command that does.
#[derive(Debug, clap::Args)]
pub(crate) struct Input {
    /// Who connects to which servers, in TOML
    #[arg(long, value_name = "FILE", required_unless_present = "trace")]
    plan: Option<PathBuf>,
    /// Arrivals to play instead of drawing them: rejoin's own format, CSV or oracleGeneral
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How many seeds to try, from 1 on [default: the plan's, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SEEDS)))]
    seeds: Option<u32>,
    /// Threads [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

impl Input {
    /// The empty plan if none is given.
    pub(crate) fn plan(&self) -> anyhow::Result<Plan> {
        self.plan.as_deref().map_or_else(|| Ok(Plan::default()), read_plan)
    }

    /// Of a plan's clients, or of the trace.
    pub(crate) fn arrivals<'a>(&self, plan: &'a Plan) -> anyhow::Result<Arrivals<'a>> {
        Arrivals::of(self.plan.as_deref(), plan, self.trace.as_deref())
    }

    /// What the plan says, where the flags do not say otherwise.
    pub(crate) fn simulation(&self, plan: &Plan, arrivals: &Arrivals<'_>) -> Simulation {
        let mut simulation = Simulation::of(plan);
        if self.plan.is_none() {
            simulation.title.clone_from(&arrivals.name);
        }
        simulation.seeds = self.seeds.unwrap_or(simulation.seeds);
        let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let jobs = self.jobs.and_then(|jobs| NonZeroUsize::new(usize::from(jobs)));
        simulation.jobs = jobs.unwrap_or(processors);
        simulation
    }

    /// The files that are read.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.plan, &self.trace].into_iter().flatten().map(PathBuf::as_path)
    }
}

fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    let misuse = |what: String| Misuse(format!("{}: {what}", path.display()));
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PLAN_BYTES + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("{}: cannot be read", path.display()))?;
    if bytes.len() as u64 > PLAN_BYTES {
        let what = "longer than 1 MiB: a plan is a short text in TOML; a trace goes to --trace";
        return Err(misuse(what.to_owned()).into());
    }
    let text = str::from_utf8(&bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        misuse(format!("line {line}: not UTF-8: a plan is TOML; a trace goes to --trace"))
    })?;
    Ok(Plan::parse(text).map_err(|error| misuse(error.to_string()))?)
}

/// No plan is longer: what is longer is another file, or has no end.
const PLAN_BYTES: u64 = 1 << 20;

/// Where the arrivals come from, and the file to name when something is wrong with them.
pub(crate) struct Arrivals<'a> {
    pub(crate) name: String,
    from: From<'a>,
}

enum From<'a> {
    Plan(Drawn<'a>),
    Trace(TraceFile),
}

impl<'a> Arrivals<'a> {
    /// `plan_file` is where the plan is from.
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
            (Some(_), Some(_)) => {
                let plan = shown(plan_file);
                let what = "the plan has clients of its own: remove its groups, or --trace";
                Err(Misuse(format!("{plan}: {what}")).into())
            }
        }
    }

    pub(crate) fn source(&self) -> &dyn Source {
        match &self.from {
            From::Plan(drawn) => drawn,
            From::Trace(file) => file,
        }
    }

    /// When nobody came in the time that counts.
    pub(crate) fn none_counted(&self) -> anyhow::Error {
        anyhow!("{}: no arrivals in what is counted: give a longer one", self.name)
    }

    /// What went wrong with them, with their file's name.
    pub(crate) fn failed(&self, error: Error) -> anyhow::Error {
        match error {
            // About the flags as much as about the file.
            Error::Cache { .. } if error.is_misuse() => Misuse(error.to_string()).into(),
            Error::Cache { .. } => error.into(),
            error => anyhow!("{}: {error}", self.name),
        }
    }
}

fn drawn<'a>(mixture: &'a Mixture, plan: &Plan) -> Drawn<'a> {
    Drawn { mixture, end_ms: plan.end_ms.unwrap_or(u64::MAX) }
}

/// A trace in a file, which is read once for every pass.
#[derive(Debug)]
struct TraceFile {
    path: PathBuf,
    bytes: u64,
}

/// An event in a binary trace, and about as much in a CSV file.
const EVENT_BYTES: f64 = 24.0;

impl TraceFile {
    fn find(path: &Path) -> anyhow::Result<Self> {
        let found = fs::metadata(path);
        let found = found.with_context(|| format!("{}: cannot be read", path.display()))?;
        if !found.is_file() {
            let what = "no file: a trace is read once for every seed, so put it into one";
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
