//! The network of a program: the manager must not lead a program to where it may not go itself.
//!
//! The kernel tells the network namespace of a program's socket (`SO_NETNS_COOKIE`): the one that the program was in when
//! it made the socket. No process is looked up for that, so there is no race. Seccomp filters are a fact about a process,
//! which is looked up by a handle that cannot come to mean another one. Those of the first process are everybody's. What is not told apart: a thread's own filter,
//! Landlock, firewall rules for a user or a control group.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::downstream::connection::ProgramConnection;
use crate::failure::Failure;
use crate::protocol::{Connect, ErrorKind};
use crate::settings::Namespaces;

mod cookie {
    use nix::{getsockopt_impl, libc};

    /// The network namespace of a socket, as a number that no other namespace ever has (Linux 5.14).
    #[derive(Debug, Clone, Copy)]
    pub(super) struct NetworkNamespace;

    getsockopt_impl!(
        NetworkNamespace,
        libc::SOL_SOCKET,
        libc::SO_NETNS_COOKIE,
        u64,
        nix::sys::socket::sockopt::GetStruct<u64>
    );
}

/// Returns the network namespace of a socket. `None`: the kernel does not tell.
pub(crate) fn namespace_of(socket: &impl AsFd) -> Option<u64> {
    getsockopt(socket, cookie::NetworkNamespace).ok()
}

fn unknown() -> Failure {
    refusal("the program's process cannot be looked up")
}

fn refusal(detail: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::NotPermitted, detail)
}

impl ProgramConnection {
    /// Checks that the program is in the manager's network namespace, or in one that the settings name.
    pub(crate) fn is_in_a_served_namespace(&self) -> Result<(), Failure> {
        let served = &self.state.settings.network_namespaces;
        if *served == Namespaces::Any {
            return Ok(());
        }
        let own = self.state.namespace;
        if own.is_some() && own == namespace_of(&*self.stream) {
            return Ok(());
        }
        let Namespaces::Listed(listed) = served else {
            return Err(refusal(match own {
                Some(_) => "the program is in another network namespace",
                None => "this kernel does not tell the network namespace of a program",
            }));
        };
        let process = self.process()?;
        match fs::metadata(process.file("ns/net")) {
            Ok(theirs) if process.lives() => {
                let is_it = |path: &PathBuf| {
                    fs::metadata(path).is_ok_and(|named| {
                        (named.dev(), named.ino()) == (theirs.dev(), theirs.ino())
                    })
                };
                let is_listed = listed.iter().any(is_it);
                let none = || refusal("the program is in a network namespace that is not listed");
                is_listed.then_some(()).ok_or_else(none)
            }
            _ => Err(refusal("the program's network namespace cannot be read")),
        }
    }

    /// Checks that the manager may open a connection of its own for this program.
    pub(crate) fn may_connect(&self, wish: &Connect) -> Result<(), Failure> {
        let rules = &self.state.settings.connect;
        let host = &wish.host;
        if rules.ports.as_ref().is_some_and(|ports| !ports.contains(&wish.port)) {
            return Err(refusal(format!("port {} may not be connected to", wish.port)));
        }
        if let Some(hosts) = &rules.hosts {
            if !hosts.iter().any(|pattern| pattern.matches(host)) {
                return Err(refusal(format!("{host} may not be connected to")));
            }
            // Otherwise the name would decide nothing.
            let is_named = |address: &std::net::IpAddr| address.to_string() == host.as_str();
            if !wish.addresses.iter().all(is_named) {
                return Err(refusal(
                    "the settings list hosts, so a program may not give addresses",
                ));
            }
        }
        if let Some(programs) = &rules.programs {
            let name = self.program.name();
            if !name.is_some_and(|name| programs.iter().any(|program| program == name)) {
                return Err(refusal("this program may not ask for connections"));
            }
        }
        if rules.sandboxed { Ok(()) } else { self.has_no_filter() }
    }

    /// Checks that no seccomp filter limits the program's system calls, beyond those that the first process of the
    /// machine or container has, and so all others.
    fn has_no_filter(&self) -> Result<(), Failure> {
        let process = self.process()?;
        let filters = process.status()?.filters();
        let everywhere = first_process().and_then(Status::filters);
        match filters {
            Some(filters) if filters <= everywhere.unwrap_or_default() => Ok(()),
            Some(_) => Err(refusal("a seccomp filter limits the program")),
            None => Err(unknown()),
        }
    }

    /// Checks that a program which asks for the listening socket is not confined, because with it the program could
    /// deceive all others: its user is root, with the rights of the machine's or container's first process, or the
    /// manager's own; it is in the manager's network and PID namespace; and no filter limits it.
    pub(crate) fn may_take_over(&self) -> Result<(), Failure> {
        let uid = self.program.uid;
        if !self.program.is_in_charge() {
            let detail = "only root and the manager's own user may take its socket over";
            return Err(refusal(detail));
        }
        let own = self.state.namespace;
        if own.is_some() && own != namespace_of(&*self.stream) {
            return Err(refusal("the new manager is in another network namespace"));
        }
        self.has_no_filter()?;
        let status = self.process()?.status()?;
        if status.field("NSpid:").is_none_or(|pids| pids.split_whitespace().count() != 1) {
            return Err(refusal("the new manager is in another PID namespace"));
        }
        let first = first_process().ok_or_else(unknown)?;
        let is_bounded = status.field("CapBnd:") != first.field("CapBnd:");
        match uid == 0 && is_bounded {
            true => Err(refusal("the new manager's capabilities are limited")),
            false => Ok(()),
        }
    }

    fn process(&self) -> Result<Process, Failure> {
        let gone = || refusal("the process that connected is gone, or in another PID namespace");
        let pid = self.program.pid().and_then(Pid::from_raw).ok_or_else(gone)?;
        let handle = match getsockopt(&*self.stream, PeerPidfd) {
            Ok(handle) => handle,
            // Before Linux 6.5: another process may have got the number since the program connected.
            Err(nix::Error::ENOPROTOOPT) => {
                pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?
            }
            Err(_) => return Err(gone()),
        };
        Ok(Process { pid, handle })
    }
}

/// The process that connected.
struct Process {
    pid: Pid,
    handle: OwnedFd,
}

impl Process {
    fn file(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.pid.as_raw_nonzero().to_string()).join(name)
    }

    fn status(&self) -> Result<Status, Failure> {
        Status::read(&self.file("status")).filter(|_| self.lives()).ok_or_else(unknown)
    }

    /// Returns true if the process still runs, so that what was read under its number is its own.
    fn lives(&self) -> bool {
        let mut asked = [PollFd::new(&self.handle, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut asked, Some(&now)) == Ok(0)
    }
}

/// The facts of `/proc/PID/status`, which every user can read.
struct Status(String);

/// The bytes that are read of it. All that is wanted here comes before.
const STATUS_BYTES: usize = 4_096;

/// Returns the status of the first process of the machine or container, as it was when it was asked for first.
fn first_process() -> Option<&'static Status> {
    static FIRST: OnceLock<Option<Status>> = OnceLock::new();
    FIRST.get_or_init(|| Status::read(Path::new("/proc/1/status"))).as_ref()
}

impl Status {
    fn read(path: &Path) -> Option<Self> {
        let mut text = [0; STATUS_BYTES];
        let bytes = File::open(path).ok()?.read(&mut text).ok()?;
        Some(Self(String::from_utf8_lossy(&text[..bytes]).into_owned()))
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    /// Returns how many seccomp filters limit the process. Before Linux 5.9, where they are not counted, one stands for
    /// all.
    fn filters(&self) -> Option<u32> {
        let number = |name| self.field(name)?.parse::<u32>().ok();
        let mode = number("Seccomp:")?;
        Some(number("Seccomp_filters:").unwrap_or_default().max(u32::from(mode > 0)))
    }
}
