//! A program under watch, of whose processes none is left when it ends or is told to.
//!
//! Who starts servers ends them when it is done. A signal takes that turn from it, and servers that have a process group
//! of their own, or became daemons, do not hear of it. So this process becomes the parent of all orphans below it
//! (`PR_SET_CHILD_SUBREAPER`), and ends whatever is below it.

use std::collections::HashMap;
use std::fs;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as Caught};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use rustix::process::{
    getpid, getppid, kill_process, set_child_subreaper, set_parent_process_death_signal, wait,
};

use crate::folder::Folder;
use crate::process::STEP;

/// The process that watches, in the environment of the one under watch.
const WATCHER: &str = "REJOIN_TESTKIT_WATCHER";
/// The time that processes have to end by themselves, and then by force.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns true if [`run`] started this process. It then ends with the one that watches.
pub fn is_watched() -> bool {
    let watcher = std::env::var(WATCHER).ok().and_then(|pid| pid.parse().ok());
    let is_watched = watcher.is_some() && watcher == getppid().map(Pid::as_raw_pid);
    if is_watched {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    is_watched
}

/// Runs a command, to its end or to SIGINT, SIGTERM or SIGHUP, and ends all that it started. Returns its exit code, or
/// 128 and the signal's number. To be called in a process without other threads, and without other children.
///
/// # Panics
///
/// If it cannot be started.
#[expect(clippy::zombie_processes, reason = "it waits for all that end")]
pub fn run(command: &mut Command) -> ExitCode {
    set_child_subreaper(Some(getpid())).expect("Linux");
    command.env(WATCHER, getpid().as_raw_pid().to_string());
    let child = command.spawn().unwrap_or_else(|error| {
        panic!("{}: {error}", command.get_program().display());
    });
    let child = Pid::from_child(&child);
    // Blocked now and not before, because the child inherits what is.
    let signals = heard();
    signals.thread_block().expect("signals");
    let (code, is_ended) = loop {
        if let Some(status) = reaped(child) {
            break (code(status), true);
        }
        match signals.wait().expect("signals") {
            Caught::SIGCHLD => {}
            signal => break (128 + signal as i32, false),
        }
    };
    if !is_ended {
        // It would start more.
        let _ = kill_process(child, Signal::KILL);
    }
    if !is_all_ended(Signal::TERM) && !is_all_ended(Signal::KILL) {
        eprintln!("processes that cannot be ended are left: {:?}", descendants());
    }
    if code > 128 {
        Folder::remove_all_of(child.as_raw_pid().cast_unsigned());
    }
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// The signals that end a program, without those that this one ignores (`nohup`), and the word of a child's end.
fn heard() -> SigSet {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    let ends = [Caught::SIGINT, Caught::SIGTERM, Caught::SIGHUP];
    let is_heard = |signal: &Caught| ignored >> (*signal as u32 - 1) & 1 == 0;
    ends.into_iter().filter(is_heard).chain([Caught::SIGCHLD]).collect()
}

/// Waits for all processes that have ended. Returns the child's status if it is among them.
fn reaped(child: Pid) -> Option<WaitStatus> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == child {
            return Some(status);
        }
    }
    None
}

fn code(status: WaitStatus) -> i32 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(signal).unwrap_or(1)
}

/// Sends a signal to all processes below this one, also to those that come meanwhile, and waits until there is none.
/// Returns false if there is one after [`PATIENCE`].
fn is_all_ended(signal: Signal) -> bool {
    let (until, mut told) = (Instant::now() + PATIENCE, Vec::new());
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => continue,
            Err(Errno::CHILD) => return true,
            _ => {}
        }
        if Instant::now() > until {
            return false;
        }
        for pid in descendants() {
            // Some take a second signal for a reason to end at once, and leave something.
            if signal == Signal::KILL || !told.contains(&pid) {
                let _ = kill_process(pid, signal);
                told.push(pid);
            }
        }
        thread::sleep(STEP);
    }
}

/// The processes below this one.
fn descendants() -> Vec<Pid> {
    let mut below = HashMap::<i32, Vec<i32>>::new();
    for entry in fs::read_dir("/proc").expect("mounted").flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let parent = pid.and_then(parent_of);
        if let (Some(pid), Some(parent)) = (pid, parent) {
            below.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![getpid().as_raw_pid()];
    let mut at = 0;
    while at < found.len() {
        found.extend(below.remove(&found[at]).unwrap_or_default());
        at += 1;
    }
    found.into_iter().skip(1).filter_map(Pid::from_raw).collect()
}

/// The parent of a process, if there is that process (`proc_pid_stat(5)`).
pub fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may have any characters.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
