//! Who asks: the process at the other end of a socket, as the kernel knows it.

use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;

use tokio::net::UnixStream;

/// A program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) uid: u32,
    /// Its process. What that is called is read when somebody wants to know.
    pid: Option<i32>,
    name: OnceLock<Option<String>>,
}

/// Linux gives 15 bytes and a line's end, of its own threads 63 (`proc_pid_comm(5)`): one read.
const LONGEST_NAME: usize = 64;

/// Under what users of other namespaces come that are none of this one: all of them, as one.
pub(crate) fn overflow_uid() -> u32 {
    let told = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    told.ok().and_then(|uid| uid.trim().parse().ok()).unwrap_or(65_534)
}

impl Program {
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        Ok(Self { uid: peer.uid(), pid: peer.pid(), name: OnceLock::new() })
    }

    /// `/proc/PID/comm`. The program may have written it itself: it names counts, and lets a
    /// program not share; it never lets one share.
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
