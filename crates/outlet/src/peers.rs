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

    /// Waits for the next connection of one of them. Others' are closed. The kernel says whose it is.
    pub(crate) async fn accept(&self, listener: &UnixListener) -> UnixStream {
        /// The pause while the process has no descriptor to spare.
        const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
        loop {
            match listener.accept().await {
                Ok((stream, _)) if self.allows(&stream) => return stream,
                Ok(_) => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn allows(&self, stream: &UnixStream) -> bool {
        stream.peer_cred().is_ok_and(|peer| self.0.contains(&peer.uid()))
    }
}
