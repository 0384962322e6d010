//! The kernel's counts of the threads of a process (`proc(5)`): the server's alone, read from outside, so that
//! reading costs the server nothing.

use std::fs;
use std::io;

use serde::Serialize;

use super::counters::Counters;

/// The time and context switches of a process's threads since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usage {
    /// On a core, user and kernel, in nanoseconds: exact.
    pub(super) cpu_ns: u64,
    /// In the program itself, in ticks of 10 ms: most kernels only sample this.
    pub(super) user_ticks: u64,
    /// In the kernel, in the same ticks.
    pub(super) kernel_ticks: u64,
    /// Times that a thread left its core, by itself or not.
    pub(super) context_switches: u64,
}

impl Usage {
    /// Sums up all threads that exist now. A thread that ends meanwhile counts for nothing.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let mut all = Self::default();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?.path();
            let read = |file: &str| fs::read_to_string(thread.join(file));
            let (schedstat, stat, status) = match (read("schedstat"), read("stat"), read("status"))
            {
                (Ok(schedstat), Ok(stat), Ok(status)) => (schedstat, stat, status),
                (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) if is_over(&error) => {
                    continue;
                }
                (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => return Err(error),
            };
            let told = Self::parse(&schedstat, &stat, &status);
            let told = told.ok_or_else(|| io::Error::other("/proc tells no CPU time here"))?;
            all = all.plus(told);
        }
        Ok(all)
    }

    /// `None` where the kernel counts less.
    fn parse(schedstat: &str, stat: &str, status: &str) -> Option<Self> {
        // The name may have spaces and parentheses in it; state is the third field, utime the 14th.
        let after_name = stat.rsplit_once(')')?.1;
        let mut ticks = after_name.split_ascii_whitespace().skip(11).map(str::parse);
        let switches = |kind: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(kind));
            line?.strip_prefix(':')?.trim().parse().ok()
        };
        Some(Self {
            cpu_ns: schedstat.split_ascii_whitespace().next()?.parse().ok()?,
            user_ticks: ticks.next()?.ok()?,
            kernel_ticks: ticks.next()?.ok()?,
            context_switches: switches("voluntary_ctxt_switches")?
                + switches("nonvoluntary_ctxt_switches")?,
        })
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            user_ticks: self.user_ticks + other.user_ticks,
            kernel_ticks: self.kernel_ticks + other.kernel_ticks,
            context_switches: self.context_switches + other.context_switches,
        }
    }

    /// Returns the usage between an earlier reading and this one.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            user_ticks: self.user_ticks.saturating_sub(earlier.user_ticks),
            kernel_ticks: self.kernel_ticks.saturating_sub(earlier.kernel_ticks),
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
        }
    }
}

/// Returns true if a reading failed because its thread has ended.
fn is_over(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The work of the server's threads for a transaction. The clients' work is not in it, but over loopback the kernel
/// may charge part of the receiver's work to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PerTransaction {
    /// CPU time, user and kernel, in nanoseconds: the median over rounds.
    pub cpu_ns: f64,
    /// The lowest of a round.
    pub cpu_ns_lowest: f64,
    /// The highest of a round.
    pub cpu_ns_highest: f64,
    /// CPU time in the program, in nanoseconds. Most kernels only sample which half of the CPU time
    /// is whose, 100 to 1,000 times a second. `None` if there were too few samples to say.
    pub user_ns: Option<f64>,
    /// CPU time in the kernel, in nanoseconds; as `user_ns`.
    pub kernel_ns: Option<f64>,
    /// Times that a thread left its core.
    pub context_switches: f64,
    /// The processor's counts.
    pub counters: Counters,
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a b) c) R 1 1 1 0 -1 4194304 99 0 0 0 31 12 0 0 20 0 1 0 18 31 358";
    const STATUS: &str = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n";

    #[test]
    fn a_thread_is_read_whole_or_not_at_all() {
        let usage = Usage::parse("229048 7323758 2\n", STAT, STATUS).expect("whole");
        let expected =
            Usage { cpu_ns: 229_048, user_ticks: 31, kernel_ticks: 12, context_switches: 7 };
        assert_eq!(usage, expected);
        assert_eq!(Usage::parse("", STAT, STATUS), None);
        assert_eq!(Usage::parse("1 2 3", "7 x", STATUS), None);
        assert_eq!(Usage::parse("1 2 3", STAT, "voluntary_ctxt_switches:\t5\n"), None);
    }

    #[test]
    fn work_is_seen_and_rest_is_not() {
        let read = || Usage::of(std::process::id()).expect("told");
        let before = read();
        let mut sum = 0_u64;
        let began = std::time::Instant::now();
        while read().since(before).cpu_ns < 20_000_000 && began.elapsed().as_secs() < 20 {
            sum = (0..1_000_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(read().since(before).cpu_ns >= 20_000_000, "{sum}");
    }
}
