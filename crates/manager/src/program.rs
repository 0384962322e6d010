//! Who asks: the process at the other end of a socket, as the kernel knows it.

use std::io;

use tokio::net::UnixStream;

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) uid: u32,
    /// `/proc/PID/comm`. The program may have written it itself: it names counts, and lets a
    /// program not share; it never lets one share.
    pub(crate) name: Option<String>,
}

/// Under what users of other namespaces come that are none of this one: all of them, as one.
pub(crate) fn overflow_uid() -> u32 {
    let told = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    told.ok().and_then(|uid| uid.trim().parse().ok()).unwrap_or(65_534)
}

impl Program {
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        let name = peer.pid().and_then(|pid| {
            let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
            Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
        });
        Ok(Self { uid: peer.uid(), name })
    }
}
