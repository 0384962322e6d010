//! The events that happen to an nginx under load.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::visitor::Visit;
use crate::process::wait_for;
use crate::site::Site;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A worker was killed.
    Kill,
    /// The master read its configuration again, and replaced its workers.
    Reload,
    /// Another master took over, with a cache of another size.
    Resize,
    /// Another master took over, with another file of the library and a cache of another layout.
    Upgrade,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Kill, Self::Reload, Self::Resize, Self::Upgrade];
}

/// An event, from its signal to the end of the workers that it ends.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: Kind,
    pub(super) from: Instant,
    pub(super) until: Instant,
    /// The workers that were killed, or told to finish.
    workers: Vec<u32>,
}

/// The reason why a connection failed, if it is one that every server would have.
pub(super) enum Reason {
    /// Its worker was killed.
    Killed,
    /// Its worker was told to finish, and closed it between two requests, as HTTP/1.1 allows (RFC 9112, section 9.5).
    Finished,
}

impl Event {
    pub(super) fn overlaps(&self, visit: &Visit) -> bool {
        visit.from <= self.until && self.from <= visit.until
    }

    /// Returns the reason that this event is for a visit's failure.
    pub(super) fn explains(&self, visit: &Visit) -> Option<Reason> {
        let is_of = |worker: u32| self.workers.contains(&worker);
        match (self.kind, visit.worker) {
            _ if !self.overlaps(visit) => None,
            (Kind::Kill, worker) => worker.is_none_or(is_of).then_some(Reason::Killed),
            // It has answered once.
            (_, worker) => worker.is_some_and(is_of).then_some(Reason::Finished),
        }
    }
}

/// The master of an nginx that names its processes in `nginx.pid`. All masters end with it.
pub(super) struct Master {
    pid_file: PathBuf,
}

impl Master {
    pub(super) fn of(site: &Site) -> Self {
        Self { pid_file: site.file("nginx.pid") }
    }

    pub(super) fn pid(&self) -> u32 {
        wait_for("nginx to say which process it is", || read_pid(&self.pid_file))
    }

    /// Kills one of the workers.
    pub(super) fn kill_a_worker(&self) -> Option<Event> {
        let master = self.pid();
        let workers = children(master);
        let random = RandomState::new().build_hasher().finish() as usize;
        let worker = *workers.get(random % workers.len().max(1))?;
        let from = Instant::now();
        send(worker, Signal::KILL);
        Some(ended(Kind::Kill, from, vec![worker]))
    }

    /// Has the configuration read again.
    pub(super) fn reload(&self) -> Event {
        let (master, from) = (self.pid(), Instant::now());
        let workers = children(master);
        send(master, Signal::HUP);
        ended(Kind::Reload, from, workers)
    }

    /// Has another master take over the sockets, which reads OpenSSL's configuration anew.
    pub(super) fn exchange(&self, kind: Kind) -> Event {
        let (old, from) = (self.pid(), Instant::now());
        let workers = children(old);
        send(old, Signal::USR2);
        wait_for("another master with its workers", || {
            let new = read_pid(&self.pid_file).filter(|new| *new != old)?;
            (children(new).len() == workers.len()).then_some(())
        });
        send(old, Signal::WINCH);
        let mut event = ended(kind, from, workers);
        send(old, Signal::QUIT);
        wait_for("the old master's end", || (!is_running(old)).then_some(()));
        event.until = Instant::now();
        event
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        for file in [&self.pid_file, &self.pid_file.with_extension("pid.oldbin")] {
            if let Some(master) = read_pid(file).filter(|master| is_running(*master)) {
                send(master, Signal::TERM);
                wait_for("nginx to end", || (!is_running(master)).then_some(()));
            }
        }
    }
}

/// Waits for the workers' end.
fn ended(kind: Kind, from: Instant, workers: Vec<u32>) -> Event {
    wait_for("workers to end", || (!workers.iter().any(|pid| is_running(*pid))).then_some(()));
    Event { kind, from, until: Instant::now(), workers }
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a pid");
    // It may have ended meanwhile.
    let _ = kill_process(pid, signal);
}

fn read_pid(file: &PathBuf) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the living processes whose parent this is.
pub(super) fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| living_parent(*pid) == Some(parent))
        .collect()
}

fn is_running(pid: u32) -> bool {
    living_parent(pid).is_some()
}

/// Returns the parent of a process, unless that has ended.
fn living_parent(pid: u32) -> Option<u32> {
    // pid (name) state parent …
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit(')').next()?.split_whitespace();
    let state = words.next()?;
    words.next()?.parse().ok().filter(|_| state != "Z")
}
