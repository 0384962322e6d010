//! The client's side of a TLS connection, wherever its bytes come from: what it decrypts, and what is stored of
//! what its server issues.

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConnection, HandshakeKind, ProtocolVersion};

use crate::failure::Failure;
use crate::protocol::End;
use crate::sessions::{CacheKey, Collected, ConnectionStore, Family, Offered, Session};
use crate::state::State;
use crate::trust::verifier::{self, Asker};

/// A connection, and what rustls needs to know while it works.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) tls: ClientConnection,
    pub(crate) peer: SocketAddr,
    pub(crate) asker: Asker,
    connection_store: Arc<ConnectionStore>,
    keeper: Option<Keeper>,
}

/// Under what a connection's sessions are stored.
#[derive(Debug)]
struct Keeper {
    cache_key: CacheKey,
    family: Arc<Family>,
    alpn: Option<Vec<u8>>,
    /// That of a session of TLS 1.2 which was resumed.
    expires_ms: Option<u64>,
}

/// `RFC 5246, section F.1.4`: an upper limit of 24 hours is suggested where the server gives none.
const TLS12_LIFETIME_S: u64 = 24 * 3_600;
/// rustls reads 4 KiB at once; a record has four times as much.
const RECORD_READS: usize = 4;

impl Endpoint {
    pub(crate) fn new(
        tls: ClientConnection,
        peer: SocketAddr,
        asker: Asker,
        connection_store: Arc<ConnectionStore>,
    ) -> Self {
        Self { tls, peer, asker, connection_store, keeper: None }
    }

    /// Lets rustls work on what was read.
    pub(crate) fn process(&mut self) -> Result<(), rustls::Error> {
        let tls = &mut self.tls;
        verifier::scope(&mut self.asker, || tls.process_new_packets()).map(|_| ())
    }

    /// What a failure of [`process`](Self::process) means.
    pub(crate) fn failure(&self, error: &rustls::Error) -> Failure {
        let had = self.asker.identity.sha256.is_some();
        Failure::of_tls(error, self.asker.wanted_certificate, had)
    }

    /// Works on what came from the server: nothing, at the end of file, of which rustls says whether it was
    /// announced. What was in it for the program is added to `plaintext`. Returns how the server's direction
    /// has ended, if it has. What the server issued in it is the caller's to [store](Self::store_issued), best when
    /// the program has its plaintext.
    pub(crate) fn work_on(&mut self, mut rest: &[u8], plaintext: &mut Vec<u8>) -> Option<End> {
        loop {
            let ended = self.decrypt(&mut rest, plaintext);
            if ended.is_some() || rest.is_empty() {
                return ended;
            }
        }
    }

    /// Decrypts a record or so. Returns how the server's direction has ended, if it has.
    fn decrypt(&mut self, rest: &mut &[u8], plaintext: &mut Vec<u8>) -> Option<End> {
        let tls = &mut self.tls;
        let mut taken = tls.read_tls(rest).map(|_| ());
        for _ in 1..RECORD_READS {
            // An error says that there is enough for now.
            if taken.is_err() || rest.is_empty() || tls.read_tls(rest).is_err() {
                break;
            }
        }
        taken = taken.and_then(|()| self.process().map_err(io::Error::other));
        self.take_decrypted(plaintext).or_else(|| taken.is_err().then_some(End::Truncated))
    }

    /// Takes what is decrypted. Returns how the server's direction has ended, if it has.
    pub(crate) fn take_decrypted(&mut self, plaintext: &mut Vec<u8>) -> Option<End> {
        let mut reader = self.tls.reader();
        loop {
            let bytes = match reader.fill_buf() {
                Ok([]) => return Some(End::Clean),
                Ok(chunk) => {
                    plaintext.extend_from_slice(chunk);
                    chunk.len()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => return Some(End::Truncated),
            };
            reader.consume(bytes);
        }
    }

    /// Whether the server has issued anything.
    pub(crate) fn was_issued(&self) -> bool {
        self.connection_store.was_issued()
    }

    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        self.tls.protocol_version()
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// From here on what the server issues is [stored](Self::store_issued), under the family that was resumed, or
    /// a new one. `None` if there are no certificates to speak of.
    pub(crate) fn keep_sessions(
        &mut self,
        state: &State,
        cache_key: &CacheKey,
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
        self.keeper = Some(Keeper { cache_key: cache_key.clone(), family, alpn, expires_ms });
        if let Some(group) = self.connection_store.group() {
            state.sessions.set_group(cache_key, group);
        }
        Some(())
    }

    /// Nothing of it is kept.
    pub(crate) fn keep_nothing(&self) {
        self.connection_store.stop();
    }

    /// Stores what the server issued since.
    pub(crate) fn store_issued(&self, state: &State) {
        let Some(keeper) = &self.keeper else { return };
        for Collected { secret, lifetime_s, bytes } in self.connection_store.collected() {
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
            state.sessions.keep(&keeper.cache_key, session);
        }
    }
}
