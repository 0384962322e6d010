//! The process at the other end of a socket, as reported by the kernel.

use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;

use rustix::process::geteuid;
use tokio::net::UnixStream;

/// A program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) uid: u32,
    /// The process id. The program's name is read on demand.
    pid: Option<i32>,
    name: OnceLock<Option<String>>,
}

/// The longest name: Linux returns 15 bytes and a line feed, and 63 bytes for kernel threads (`proc_pid_comm(5)`).
const LONGEST_NAME: usize = 64;

/// Returns the uid that the kernel reports for all users of other namespaces that are not mapped into this one.
pub(crate) fn overflow_uid() -> u32 {
    let told = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    told.ok().and_then(|uid| uid.trim().parse().ok()).unwrap_or(65_534)
}

impl Program {
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        Ok(Self { uid: peer.uid(), pid: peer.pid(), name: OnceLock::new() })
    }

    /// Returns true for root and for the manager's own user.
    pub(crate) fn is_in_charge(&self) -> bool {
        [0, geteuid().as_raw()].contains(&self.uid)
    }

    /// Returns the process id. `None`: the process is in a PID namespace that this one does not see.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.pid.filter(|pid| *pid > 0)
    }

    /// Returns `/proc/PID/comm`. The program can write it itself, so the name serves only for counters and for
    /// excluding a program from sharing; it never grants sharing.
    pub(crate) fn name(&self) -> Option<&str> {
        let name = self.name.get_or_init(|| {
            let mut file = File::open(format!("/proc/{}/comm", self.pid?)).ok()?;
            let mut name = [0; LONGEST_NAME];
            let bytes = file.read(&mut name).ok()?;
            Some(String::from_utf8_lossy(name[..bytes].trim_ascii_end()).into_owned())
        });
        name.as_deref()
    }
}
