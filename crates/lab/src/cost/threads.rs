//! The work of the server's threads for a transaction.

use serde::Serialize;

use super::counters::Counters;

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
