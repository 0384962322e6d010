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

use crate::{Peers, Rings};
use messages::{First, Refusal};

/// A share of one cache.
#[derive(Debug)]
pub struct Share {
    store: Arc<Store>,
    rings: Rings,
    peers: Peers,
}

impl Share {
    /// The most connections at a time.
    pub const MOST_CONNECTIONS: usize = 256;
    /// The longest wait for a connection's first message, and for a client to take an answer.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Shares a cache, and the ring that is followed, with these users.
    pub fn new(store: Arc<Store>, rings: Rings, peers: Peers) -> Self {
        Self { store, rings, peers }
    }

    /// Serves connections for ever.
    pub async fn serve(self, listener: UnixListener) -> std::convert::Infallible {
        let (share, room) = (Arc::new(self), Arc::new(Semaphore::new(Self::MOST_CONNECTIONS)));
        loop {
            let mut stream = share.peers.accept(&listener).await;
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
