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
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::peers::Door;
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

    /// Sets the listener for the system's refusal to let more programs connect. It is told once until it is over.
    #[must_use]
    pub fn complaining(self, complain: fn(&str)) -> Self {
        Self { complain, ..self }
    }

    /// Serves connections for ever.
    pub async fn serve(self, listener: UnixListener) -> std::convert::Infallible {
        let (share, room) = (Arc::new(self), Arc::new(Semaphore::new(Self::MOST_CONNECTIONS)));
        let mut door = Door::new(&listener, &share.peers, share.complain);
        loop {
            let mut stream = door.next().await;
            let (share, permit) = (Arc::clone(&share), Arc::clone(&room).try_acquire_owned());
            tokio::spawn(async move {
                let Ok(_permit) = permit else {
                    return wire::refuse(&mut stream, &Refusal::Busy).await;
                };
                if let Err(refusal) = share.answer(&mut stream).await {
                    wire::refuse(&mut stream, &refusal).await;
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
