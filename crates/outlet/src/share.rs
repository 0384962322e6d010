//! The share: a Unix socket by which programs follow the ring and keep their sessions in the cache.
//! docs/share-protocol.md describes it.

mod keys;
pub mod messages;
mod sessions;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use rejoin_store::Store;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::peers::{Door, Room};
use crate::{Peers, Rings};
use messages::{First, Refusal};

/// A share of one cache.
#[derive(Debug)]
pub struct Share {
    store: Arc<Store>,
    rings: Rings,
    peers: Peers,
    complain: fn(&str),
}

impl Share {
    /// The most connections at a time.
    pub const MOST_CONNECTIONS: usize = 256;
    /// The longest wait for a connection's first message, and for a client to take an answer.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Shares a cache, and the ring that is followed, with these users.
    pub fn new(store: Arc<Store>, rings: Rings, peers: Peers) -> Self {
        Self { store, rings, peers, complain: |_| {} }
    }

    /// Sets the listener for the refusal to let more programs connect, by the system or at [`Self::MOST_CONNECTIONS`]. It is told
    /// once until that is over.
    #[must_use]
    pub fn complaining(self, complain: fn(&str)) -> Self {
        Self { complain, ..self }
    }

    /// Serves connections for ever.
    pub async fn serve(self, listener: UnixListener) -> std::convert::Infallible {
        let share = Arc::new(self);
        let happens = "turned away, and get no keys and no sessions: end programs that need none";
        let mut room = Room::new(Self::MOST_CONNECTIONS, &listener, happens, share.complain);
        let mut door = Door::new(&listener, &share.peers, share.complain);
        loop {
            let mut stream = door.next().await;
            let (share, place) = (Arc::clone(&share), room.take());
            tokio::spawn(async move {
                let Some(_place) = place else {
                    return wire::refuse(&mut stream, &Refusal::Busy).await;
                };
                match share.answer(&mut stream).await {
                    // Whoever has a part of an answer would take the reason for the rest.
                    Ok(()) | Err(Refusal::Broken) => {}
                    Err(refusal) => wire::refuse(&mut stream, &refusal).await,
                }
            });
        }
    }

    async fn answer(&self, stream: &mut UnixStream) -> Result<(), Refusal> {
        let first = timeout(Self::PATIENCE, wire::read(stream)).await;
        let first = first.map_err(|_| Refusal::Late)??;
        let Some(first) = first else { return Ok(()) };
        match First::parse(&first)? {
            First::Keys { context, form } => {
                keys::follow(stream, self.rings.clone(), &context, form).await
            }
            First::Sessions { context } => sessions::serve(stream, &self.store, &context).await,
        }
    }
}
