//! A TLS connection to a server: its handshake, and what is stored of it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConnection, HandshakeKind, ProtocolVersion};
use tokio::io::Interest;
use tokio::time::{Duration, Instant, timeout_at};

use crate::failure::Failure;
use crate::protocol::ErrorKind;
use crate::sessions::{Collected, Family, Offered, PlaceName, Session, Slip};
use crate::state::State;
use crate::tcp::{Sink, Source, Tcp};
use crate::verifier::{self, Asker};

/// A connection, and what rustls needs to know while it works.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) tls: ClientConnection,
    pub(crate) tcp: Tcp,
    pub(crate) peer: SocketAddr,
    pub(crate) asker: Asker,
    slip: Arc<Slip>,
    keeper: Option<Keeper>,
}

/// Under what a connection's sessions are stored.
#[derive(Debug)]
struct Keeper {
    place: PlaceName,
    family: Arc<Family>,
    alpn: Option<Vec<u8>>,
    /// That of a session of TLS 1.2 which was resumed.
    expires_ms: Option<u64>,
}

/// `RFC 5246, section F.1.4`: an upper limit of 24 hours is suggested where the server gives none.
const TLS12_LIFETIME_S: u64 = 24 * 3_600;
/// A server that wanted a client's certificate says only after the handshake that it does not take
/// it. It is waited for, this long at most.
const VERDICT: Duration = Duration::from_millis(300);

impl Upstream {
    pub(crate) fn new(
        tls: ClientConnection,
        (tcp, peer): (Tcp, SocketAddr),
        asker: Asker,
        slip: Arc<Slip>,
    ) -> Self {
        Self { tls, tcp, peer, asker, slip, keeper: None }
    }

    /// Does the handshake.
    pub(crate) async fn handshake(&mut self, deadline: Instant) -> Result<(), Failure> {
        let late = || Failure::new(ErrorKind::Timeout, "the handshake took too long");
        match timeout_at(deadline, self.until_connected()).await {
            Ok(done) => done,
            Err(_) => Err(late()),
        }
    }

    async fn until_connected(&mut self) -> Result<(), Failure> {
        loop {
            self.send().map_err(|error| Failure::of_io(&error))?;
            if !self.tls.is_handshaking() && !self.tls.wants_write() {
                break;
            }
            if self.tls.is_handshaking() && self.receive()? {
                continue;
            }
            let interest = match (self.tls.wants_write(), self.tls.is_handshaking()) {
                (true, true) => Interest::READABLE | Interest::WRITABLE,
                (true, false) => Interest::WRITABLE,
                _ => Interest::READABLE,
            };
            self.tcp.ready(interest).await.map_err(|error| Failure::of_io(&error))?;
        }
        Ok(())
    }

    /// Whether the server may still say that it does not take the client's certificate, or wants
    /// one.
    pub(crate) fn is_to_be_judged(&self) -> bool {
        self.asker.wanted_certificate && self.version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Waits until the server says something, whatever it is. Returns whether it may yet.
    pub(crate) async fn await_verdict(&mut self, deadline: Instant) -> Result<bool, Failure> {
        let whole = Instant::now() + VERDICT;
        let until = deadline.min(whole);
        while !self.slip.was_issued() {
            if self.receive()? {
                if self.tls.reader().into_first_chunk().is_ok() {
                    break;
                }
                continue;
            }
            match timeout_at(until, self.tcp.readable()).await {
                Ok(ready) => ready.map_err(|error| Failure::of_io(&error))?,
                // A program that has no more time learns nothing of the server.
                Err(_) => return Ok(until < whole),
            }
        }
        Ok(true)
    }

    /// Reads what is there. Returns whether there was anything.
    fn receive(&mut self) -> Result<bool, Failure> {
        match self.tls.read_tls(&mut Source(&self.tcp)) {
            Ok(0) => Err(Failure::broken("the server broke off the handshake")),
            Ok(_) => self.process().map(|()| true).map_err(|error| {
                // The alert that says why. If it cannot be sent, it is not.
                let _ = self.send();
                let had = self.asker.identity.sha256.is_some();
                Failure::of_tls(&error, self.asker.wanted_certificate, had)
            }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(Failure::of_io(&error)),
        }
    }

    /// Lets rustls work on what was read.
    pub(crate) fn process(&mut self) -> Result<(), rustls::Error> {
        let tls = &mut self.tls;
        verifier::scope(&mut self.asker, || tls.process_new_packets()).map(|_| ())
    }

    /// Sends what is to be sent, as far as the socket takes it.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Sink(&self.tcp)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        self.tls.protocol_version()
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// From here on what the server issues is stored, under the family that was resumed, or a new
    /// one. `None` if there are no certificates to speak of.
    pub(crate) fn keep_sessions(
        &mut self,
        state: &State,
        place: &PlaceName,
        offered: Option<&(Offered, u64)>,
    ) -> Option<()> {
        let resumed = offered.filter(|_| self.is_resumed());
        let family = match resumed {
            Some((offered, _)) => Arc::clone(&offered.family),
            None => {
                let chain = state.certificates.intern(self.tls.peer_certificates()?)?;
                let now_ms = state.settings.clock.now_ms();
                let identity = Arc::clone(&self.asker.identity);
                Arc::new(Family::new(chain, now_ms, identity))
            }
        };
        let is_tls12 = self.version() == Some(ProtocolVersion::TLSv1_2);
        let expires_ms = resumed.filter(|_| is_tls12).map(|(_, expires_ms)| *expires_ms);
        let alpn = self.tls.alpn_protocol().map(<[u8]>::to_vec);
        self.keeper = Some(Keeper { place: place.clone(), family, alpn, expires_ms });
        self.store_issued(state);
        if let Some(group) = self.slip.group() {
            state.sessions.set_group(place, group);
        }
        Some(())
    }

    /// Nothing of it is kept.
    pub(crate) fn keep_nothing(&self) {
        self.slip.stop();
    }

    /// Stores what the server issued since.
    pub(crate) fn store_issued(&self, state: &State) {
        let Some(keeper) = &self.keeper else { return };
        for Collected { secret, lifetime_s, bytes } in self.slip.collected() {
            let now_ms = state.settings.clock.now_ms();
            let lifetime_s = match u64::from(lifetime_s) {
                0 => TLS12_LIFETIME_S,
                said => said,
            };
            let lifetime_s = lifetime_s.min(state.settings.session_lifetime_s);
            let until_ms = now_ms + lifetime_s * 1_000;
            let session = Session {
                secret,
                family: Arc::clone(&keeper.family),
                address: self.peer.ip(),
                expires_ms: keeper.expires_ms.map_or(until_ms, |old| old.min(until_ms)),
                alpn: keeper.alpn.clone(),
                // rustls keeps a copy of them with each session.
                bytes: bytes + keeper.family.chain.bytes,
            };
            state.sessions.keep(&keeper.place, session);
        }
    }
}
