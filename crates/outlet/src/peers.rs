//! The users who may ask for keys.

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

/// The users whose processes are answered: this process's own, root, and those that the operator names.
#[derive(Debug, Clone)]
pub struct Peers(Vec<u32>);

impl Peers {
    /// Allows these users, by number, beside this process's own and root.
    pub fn new(allowed: impl IntoIterator<Item = u32>) -> Self {
        Self([0, geteuid().as_raw()].into_iter().chain(allowed).collect())
    }

    fn allows(&self, stream: &UnixStream) -> bool {
        stream.peer_cred().is_ok_and(|peer| self.0.contains(&peer.uid()))
    }
}

/// A socket at which these users are let in.
pub(crate) struct Door<'a> {
    listener: &'a UnixListener,
    peers: &'a Peers,
    complain: fn(&str),
    /// True once it was said that nobody can be let in, until somebody is.
    is_stuck: bool,
}

impl<'a> Door<'a> {
    pub(crate) fn new(listener: &'a UnixListener, peers: &'a Peers, complain: fn(&str)) -> Self {
        Self { listener, peers, complain, is_stuck: false }
    }

    /// Waits for the next connection of one of the users. Others' are closed. The kernel says whose it is.
    pub(crate) async fn next(&mut self) -> UnixStream {
        /// The pause while the process has no descriptor to spare.
        const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    self.is_stuck = false;
                    if self.peers.allows(&stream) {
                        return stream;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_stuck, true) {
                        (self.complain)(&format!(
                            "no server can connect to the socket: {error}; those that are connected go on"
                        ));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
