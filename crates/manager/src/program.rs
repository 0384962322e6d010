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
