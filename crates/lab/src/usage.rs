//! The kernel's counts of the threads of a process (`proc(5)`), read from outside, so that reading costs the process
//! nothing.

use std::fs;
use std::io;

/// The time and context switches of a process's threads since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// On a core, user and kernel, in nanoseconds: exact.
    pub(crate) cpu_ns: u64,
    /// Ready to run, but without a core, in nanoseconds.
    pub(crate) waited_ns: u64,
    /// In the program itself, in ticks of 10 ms: most kernels only sample this.
    pub(crate) user_ticks: u64,
    /// In the kernel, in the same ticks.
    pub(crate) kernel_ticks: u64,
    /// Times that a thread left its core, by itself or not.
    pub(crate) context_switches: u64,
}

impl Usage {
    /// Sums up all threads that exist now. A thread that ends meanwhile counts for nothing.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
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
        let mut times = schedstat.split_ascii_whitespace().map(str::parse);
        Some(Self {
            cpu_ns: times.next()?.ok()?,
            waited_ns: times.next()?.ok()?,
            user_ticks: ticks.next()?.ok()?,
            kernel_ticks: ticks.next()?.ok()?,
            context_switches: switches("voluntary_ctxt_switches")?
                + switches("nonvoluntary_ctxt_switches")?,
        })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            waited_ns: self.waited_ns + other.waited_ns,
            user_ticks: self.user_ticks + other.user_ticks,
            kernel_ticks: self.kernel_ticks + other.kernel_ticks,
            context_switches: self.context_switches + other.context_switches,
        }
    }

    /// Returns the usage between an earlier reading and this one.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
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

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a b) c) R 1 1 1 0 -1 4194304 99 0 0 0 31 12 0 0 20 0 1 0 18 31 358";
    const STATUS: &str = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n";

    #[test]
    fn a_thread_is_read_whole_or_not_at_all() {
        let usage = Usage::parse("229048 7323758 2\n", STAT, STATUS).expect("whole");
        let expected = Usage {
            cpu_ns: 229_048,
            waited_ns: 7_323_758,
            user_ticks: 31,
            kernel_ticks: 12,
            context_switches: 7,
        };
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
