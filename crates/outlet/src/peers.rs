//! The users who may ask for keys.

use std::sync::Arc;

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

/// The places of a socket's connections.
pub(crate) struct Room {
    places: Arc<Semaphore>,
    most: usize,
    /// The line that says that it is full.
    full: String,
    complain: fn(&str),
    /// True once it was said, until half of the places are free: one that comes and goes is no news each time.
    was_full: bool,
}

impl Room {
    /// Makes room for so many connections. `happens` says what becomes of more.
    pub(crate) fn new(
        most: usize,
        listener: &UnixListener,
        happens: &str,
        complain: fn(&str),
    ) -> Self {
        let address = listener.local_addr().ok();
        let socket = address.as_ref().and_then(|address| address.as_pathname());
        let socket =
            socket.map_or_else(|| "a socket".to_owned(), |path| path.display().to_string());
        let full = format!("{socket}: {most} connections are open, and more are {happens}");
        Self { places: Arc::new(Semaphore::new(most)), most, full, complain, was_full: false }
    }

    /// Takes a place until the result is dropped. `None` if there is none.
    pub(crate) fn take(&mut self) -> Option<OwnedSemaphorePermit> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            if !std::mem::replace(&mut self.was_full, true) {
                (self.complain)(&self.full);
            }
            return None;
        };
        self.was_full &= self.places.available_permits() < self.most / 2;
        Some(place)
    }
}
