//! The processor's counters for a server's threads (`perf_event_open(2)`): read from outside, so that counting costs
//! the server next to nothing.

use std::fs;
use std::io;
use std::time::Duration;

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware};
use perf_event::{Builder, Counter};
use serde::Serialize;

/// The processor's counts per transaction, user and kernel unless said otherwise: medians over rounds. `None` is "not
/// available here". Where there are more events than the processor counts at a time, each is counted a part of the
/// time, and the rest extrapolated.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Instructions retired: the paper's path length.
    pub instructions: Option<f64>,
    /// Those of the program itself.
    pub user_instructions: Option<f64>,
    /// Cycles of the core.
    pub cycles: Option<f64>,
    /// Those in the program itself.
    pub user_cycles: Option<f64>,
    /// Branches retired.
    pub branches: Option<f64>,
    /// Those that were predicted wrong.
    pub branch_misses: Option<f64>,
    /// Reads of the first data cache.
    pub l1d_reads: Option<f64>,
    /// Those that missed it.
    pub l1d_misses: Option<f64>,
    /// Reads of the first instruction cache.
    pub l1i_reads: Option<f64>,
    /// Those that missed it.
    pub l1i_misses: Option<f64>,
    /// Accesses of the last cache, or of the second, as the processor has it.
    pub cache_references: Option<f64>,
    /// Those that missed it.
    pub cache_misses: Option<f64>,
}

impl Counters {
    /// Cycles per instruction.
    pub fn cycles_per_instruction(self) -> Option<f64> {
        Some(self.cycles? / self.instructions?)
    }

    /// Branches per instruction (Table 6).
    pub fn branch_frequency(self) -> Option<f64> {
        Some(self.branches? / self.instructions?)
    }

    /// Branches predicted wrong, of all (Table 6).
    pub fn misprediction(self) -> Option<f64> {
        Some(self.branch_misses? / self.branches?)
    }

    /// Misses of accesses of the first instruction cache, the first data cache, and the cache behind (Table 2).
    pub fn miss_ratios(self) -> [Option<f64>; 3] {
        let pairs = [
            (self.l1i_misses, self.l1i_reads),
            (self.l1d_misses, self.l1d_reads),
            (self.cache_misses, self.cache_references),
        ];
        pairs.map(|(misses, all)| Some(misses? / all?))
    }

    /// From one figure for each of [`Event::ALL`].
    pub(super) fn from_events(figures: [Option<f64>; Event::ALL.len()]) -> Self {
        let mut figures = figures.into_iter();
        let mut next = || figures.next().flatten();
        Self {
            instructions: next(),
            user_instructions: next(),
            cycles: next(),
            user_cycles: next(),
            branches: next(),
            branch_misses: next(),
            l1d_reads: next(),
            l1d_misses: next(),
            l1i_reads: next(),
            l1i_misses: next(),
            cache_references: next(),
            cache_misses: next(),
        }
    }
}

/// Why nothing is counted, or less than all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// The processor offers no counters to this system: most virtual machines have none.
    NoCounters,
    /// The system does not let this user count.
    NotPermitted,
    /// The system does not let this user count what is done in the kernel.
    KernelNotPermitted,
    /// The processor does not count all events, or they have not had their turn.
    SomeEvents,
    /// A counter is an open file, for each event and thread, and this process may not have so many.
    TooManyFiles,
    /// Somebody else has the processor's counters to itself.
    InUse,
}

impl Missing {
    /// Returns the reason and the remedy.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoCounters => {
                "no hardware counters here: a virtual machine or container without them, or an unknown \
                 processor; on hardware, instructions, cycles, branches and caches are counted"
            }
            Self::NotPermitted => {
                "hardware counters are not permitted: run as root, or `sysctl kernel.perf_event_paranoid=1`"
            }
            Self::KernelNotPermitted => {
                "only what programs do themselves may be counted, and so nothing is said of both together: run \
                 as root, or `sysctl kernel.perf_event_paranoid=1`"
            }
            Self::SomeEvents => "this processor does not count all events",
            Self::TooManyFiles => {
                "some of what hardware counters count is missing: a counter for each event and thread is more open \
                 files than are permitted; raise `ulimit -Hn`"
            }
            Self::InUse => {
                "some of what hardware counters count is missing: another program has them to itself; end it"
            }
        }
    }

    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted,
            Some(libc::EMFILE | libc::ENFILE) => Self::TooManyFiles,
            Some(libc::EBUSY) => Self::InUse,
            _ => Self::NoCounters,
        }
    }
}

/// The events that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Hardware(Hardware),
    /// The same, without the kernel.
    User(Hardware),
    L1(CacheId, CacheResult),
    /// Counted by the kernel, wherever it runs.
    #[cfg(test)]
    TaskClock,
}

impl Event {
    pub(super) const ALL: [Self; 12] = [
        Self::Hardware(Hardware::INSTRUCTIONS),
        Self::User(Hardware::INSTRUCTIONS),
        Self::Hardware(Hardware::CPU_CYCLES),
        Self::User(Hardware::CPU_CYCLES),
        Self::Hardware(Hardware::BRANCH_INSTRUCTIONS),
        Self::Hardware(Hardware::BRANCH_MISSES),
        Self::L1(CacheId::L1D, CacheResult::ACCESS),
        Self::L1(CacheId::L1D, CacheResult::MISS),
        Self::L1(CacheId::L1I, CacheResult::ACCESS),
        Self::L1(CacheId::L1I, CacheResult::MISS),
        Self::Hardware(Hardware::CACHE_REFERENCES),
        Self::Hardware(Hardware::CACHE_MISSES),
    ];

    fn builder(self) -> Builder<'static> {
        let mut builder = match self {
            Self::Hardware(event) | Self::User(event) => Builder::new(event),
            Self::L1(which, result) => {
                Builder::new(Cache { which, operation: CacheOp::READ, result })
            }
            #[cfg(test)]
            Self::TaskClock => Builder::new(perf_event::events::Software::TASK_CLOCK),
        };
        builder.exclude_kernel(matches!(self, Self::User(_)));
        builder.enabled(true).inherit(true);
        builder
    }

    /// Counts on the threads of a process, and those that they start.
    fn count(self, threads: &[i32]) -> io::Result<Vec<Counter>> {
        let counters = threads.iter().map(|thread| self.builder().observe_pid(*thread).build());
        // A thread that has ended meanwhile has nothing more to count.
        let is_there = |counter: &io::Result<Counter>| {
            let error = counter.as_ref().err().and_then(io::Error::raw_os_error);
            error != Some(libc::ESRCH)
        };
        counters.filter(is_there).collect()
    }
}

/// Counters that count from when they were made.
#[derive(Debug)]
pub(super) struct Meter<const EVENTS: usize = { Event::ALL.len() }> {
    /// For each event one for each thread; none where it cannot be counted.
    counters: [Vec<Counter>; EVENTS],
    missing: Option<Missing>,
}

/// The counts of a meter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading<const EVENTS: usize = { Event::ALL.len() }> {
    pub(super) counts: [Option<f64>; EVENTS],
    pub(super) missing: Option<Missing>,
}

impl Meter {
    /// The events of everything that [`Counters`] has a field for.
    pub(super) fn start(pid: u32) -> io::Result<Self> {
        Self::of(pid, Event::ALL)
    }
}

impl<const EVENTS: usize> Meter<EVENTS> {
    /// Starts to count. Events that cannot be counted are missing; an error is one of `/proc`.
    fn of(pid: u32, events: [Event; EVENTS]) -> io::Result<Self> {
        let mut threads = Vec::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let name = thread?.file_name();
            threads.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
        }
        let mut failures = [None; EVENTS];
        let mut event = 0;
        let counters = events.map(|of| {
            let counters = of.count(&threads).unwrap_or_else(|error| {
                failures[event] = Some(Missing::of(&error));
                Vec::new()
            });
            event += 1;
            counters
        });
        Ok(Self { counters, missing: missing(&failures) })
    }

    /// Returns the counts so far.
    pub(super) fn read(&mut self) -> Reading<EVENTS> {
        let mut missing = self.missing;
        let counts = self.counters.each_mut().map(|counters| {
            if counters.is_empty() {
                return None;
            }
            let turns: Option<Vec<Turn>> = counters.iter_mut().map(Turn::of).collect();
            let count = turns.and_then(|turns| extrapolated(&turns));
            if count.is_none() {
                missing = missing.or(Some(Missing::SomeEvents));
            }
            count
        });
        Reading { counts, missing }
    }
}

/// Counts what the calling thread does, without the kernel, from when it was made.
#[derive(Debug)]
pub(crate) struct OwnMeter(Counter);

impl OwnMeter {
    /// A counter of instructions.
    pub(crate) fn start() -> Result<Self, Missing> {
        Self::of(Event::User(Hardware::INSTRUCTIONS))
    }

    fn of(event: Event) -> Result<Self, Missing> {
        let counter = event.builder().observe_self().inherit(false).build();
        counter.map(Self).map_err(|error| Missing::of(&error))
    }

    /// Returns the count so far; `None` if the counter has never had a turn.
    pub(crate) fn read(&mut self) -> Option<f64> {
        extrapolated(&[Turn::of(&mut self.0)?])
    }
}

/// Returns the reason to report for these failures.
fn missing(failures: &[Option<Missing>]) -> Option<Missing> {
    let first = failures.iter().flatten().next()?;
    if failures.iter().all(Option::is_some) {
        return Some(*first);
    }
    Some(match first {
        Missing::NotPermitted => Missing::KernelNotPermitted,
        Missing::NoCounters => Missing::SomeEvents,
        other => *other,
    })
}

/// The count of one thread's counter.
#[derive(Debug, Clone, Copy)]
struct Turn {
    count: u64,
    /// How long the thread ran.
    enabled: Duration,
    /// For how much of that the counter had a place in the processor.
    running: Duration,
}

impl Turn {
    fn of(counter: &mut Counter) -> Option<Self> {
        let full = counter.read_full().ok()?;
        let (enabled, running) = (full.time_enabled()?, full.time_running()?);
        Some(Self { count: full.count(), enabled, running })
    }
}

/// Extrapolates the counts of all threads from a part of their time to all of it; an event of a thread that hardly
/// ran may have had no turn. `None` if no thread had a turn, although they ran.
fn extrapolated(threads: &[Turn]) -> Option<f64> {
    let count: u64 = threads.iter().map(|turn| turn.count).sum();
    let enabled: Duration = threads.iter().map(|turn| turn.enabled).sum();
    let running: Duration = threads.iter().map(|turn| turn.running).sum();
    if enabled.is_zero() {
        return Some(0.0);
    }
    (!running.is_zero()).then(|| count as f64 * enabled.as_secs_f64() / running.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// So much CPU time of this thread.
    fn work(ms: u64) {
        let now_ms = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
        };
        let began = now_ms();
        while now_ms() < began + ms {
            std::hint::black_box((0..10_000_u64).sum::<u64>());
        }
    }

    #[test]
    fn all_threads_are_counted_and_those_that_they_start() {
        let pid = std::process::id();
        let mut meter = Meter::of(pid, [Event::TaskClock]).expect("threads");
        if meter.missing == Some(Missing::NotPermitted) {
            return;
        }
        thread::scope(|scope| {
            scope.spawn(|| work(20));
        });
        work(20);
        // Inherited counts are added to their parent's when a thread ends.
        let Reading { counts: [count], missing } = meter.read();
        assert_eq!(missing, None);
        assert!(count.expect("counted") >= 39e6, "{count:?} ns");
    }

    #[test]
    fn a_thread_counts_itself_alone() {
        let Ok(mut meter) = OwnMeter::of(Event::TaskClock) else { return };
        thread::scope(|scope| {
            scope.spawn(|| work(20)).join().expect("work");
        });
        let others = meter.read().expect("counted");
        work(20);
        let all = meter.read().expect("counted");
        assert!(others < 10e6 && all - others >= 19e6, "{others} and {all} ns");
    }

    #[test]
    fn what_had_a_part_of_the_time_is_extrapolated() {
        let turn = |count, enabled_ms, running_ms| Turn {
            count,
            enabled: Duration::from_millis(enabled_ms),
            running: Duration::from_millis(running_ms),
        };
        assert_eq!(extrapolated(&[turn(1_000, 1_000, 250)]), Some(4_000.0));
        assert_eq!(extrapolated(&[turn(0, 0, 0)]), Some(0.0), "a thread that rested");
        assert_eq!(extrapolated(&[turn(0, 1_000, 0)]), None, "an event without a turn");
        let with_one_that_hardly_ran = [turn(1_000, 999, 250), turn(0, 1, 0)];
        assert_eq!(extrapolated(&with_one_that_hardly_ran), Some(4_000.0));
    }

    #[test]
    fn it_is_told_why_something_is_missing() {
        let (denied, none) = (Some(Missing::NotPermitted), Some(Missing::NoCounters));
        assert_eq!(missing(&[None, None]), None);
        assert_eq!(missing(&[denied, denied]), denied);
        assert_eq!(missing(&[none, none]), none);
        assert_eq!(missing(&[denied, None]), Some(Missing::KernelNotPermitted));
        assert_eq!(missing(&[None, none]), Some(Missing::SomeEvents));
        assert_eq!(missing(&[None, Some(Missing::InUse)]), Some(Missing::InUse));
        let error = |code| Missing::of(&io::Error::from_raw_os_error(code));
        assert_eq!(error(libc::EACCES), Missing::NotPermitted);
        assert_eq!(error(libc::ENOENT), Missing::NoCounters);
        assert_eq!(error(libc::EMFILE), Missing::TooManyFiles);
        assert_eq!(error(libc::EBUSY), Missing::InUse);
    }

    #[test]
    fn each_event_has_its_place() {
        let figures = std::array::from_fn(|at| Some(at as f64));
        let counters = Counters::from_events(figures);
        let place = |event| Event::ALL.iter().position(|of| *of == event).map(|at| at as f64);
        assert_eq!(counters.instructions, place(Event::Hardware(Hardware::INSTRUCTIONS)));
        assert_eq!(counters.user_cycles, place(Event::User(Hardware::CPU_CYCLES)));
        assert_eq!(counters.branch_misses, place(Event::Hardware(Hardware::BRANCH_MISSES)));
        assert_eq!(counters.l1d_misses, place(Event::L1(CacheId::L1D, CacheResult::MISS)));
        assert_eq!(counters.l1i_reads, place(Event::L1(CacheId::L1I, CacheResult::ACCESS)));
        assert_eq!(counters.cache_misses, place(Event::Hardware(Hardware::CACHE_MISSES)));
        assert_eq!(counters.miss_ratios()[1], Some(7.0 / 6.0));
    }
}
