//! The client side of a TLS connection, independent of its transport: decryption, and the storing of issued
//! sessions.

use std::io::{self, BufRead, Read};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConnection, HandshakeKind, ProtocolVersion};

use crate::failure::Failure;
use crate::protocol::End;
use crate::sessions::{CacheKey, Collected, ConnectionStore, Family, Offered, Session};
use crate::state::State;
use crate::trust::context::{self, HandshakeContext};
use crate::trust::identity::Identity;
use crate::trust::staple::Stapled;
use crate::upstream::policy::Terms;
use crate::upstream::server_hello::{FirstBytes, Kept, ServerHello};

/// A TLS connection, and the context that rustls's callbacks need.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) tls: ClientConnection,
    pub(crate) peer: SocketAddr,
    pub(crate) context: HandshakeContext,
    identity: Arc<Identity>,
    connection_store: Arc<ConnectionStore>,
    keeper: Option<Keeper>,
    /// True if the server sent a fatal alert, or a record that is none of its own.
    is_broken_off: bool,
    /// The beginning of the handshake.
    first_bytes: FirstBytes,
}

/// The destination of the sessions that a connection's server issues.
#[derive(Debug)]
struct Keeper {
    cache_key: CacheKey,
    family: Arc<Family>,
    alpn: Option<Vec<u8>>,
    terms: Terms,
    /// The expiry of the TLS 1.2 session that was resumed.
    expires_ms: Option<u64>,
}

/// The lifetime of a session whose server gives none: `RFC 5246, section F.1.4` suggests at most 24 hours.
const TLS12_LIFETIME_S: u64 = 24 * 3_600;
/// The reads for one record: rustls reads 4 KiB at once, and a record has up to 16 KiB.
const RECORD_READS: usize = 4;

impl Endpoint {
    pub(crate) fn new(
        tls: ClientConnection,
        peer: SocketAddr,
        (context, identity): (HandshakeContext, Arc<Identity>),
        connection_store: Arc<ConnectionStore>,
    ) -> Self {
        let (keeper, first_bytes) = (None, FirstBytes::default());
        let is_broken_off = false;
        Self { tls, peer, context, identity, connection_store, keeper, is_broken_off, first_bytes }
    }

    /// Reads records of the handshake.
    pub(crate) fn read_handshake(&mut self, from: impl Read) -> io::Result<usize> {
        self.tls.read_tls(&mut Kept(&mut self.first_bytes, from))
    }

    /// Keeps records of the handshake that the program read, for [`server_hello`](Self::server_hello).
    pub(crate) fn note(&mut self, records: &[u8]) {
        self.first_bytes.note(records);
    }

    /// Returns what the server's hello says, if it was of TLS 1.2.
    pub(crate) fn server_hello(&self) -> Option<ServerHello> {
        let is_tls12 = self.version() == Some(ProtocolVersion::TLSv1_2);
        is_tls12.then(|| self.first_bytes.server_hello()).flatten()
    }

    /// Returns true if OpenSSL 3 would have gone on, which refuses a server of TLS 1.2 without secure renegotiation.
    pub(crate) fn renegotiates_securely(&self) -> bool {
        let is_tls12 = self.version() == Some(ProtocolVersion::TLSv1_2);
        !is_tls12 || self.server_hello().is_some_and(|hello| hello.renegotiates_securely)
    }

    /// Processes the records that were read.
    pub(crate) fn process(&mut self) -> Result<(), rustls::Error> {
        let tls = &mut self.tls;
        context::scope(&mut self.context, || tls.process_new_packets()).map(|_| ())
    }

    /// Translates an error of [`process`](Self::process).
    pub(crate) fn failure(&self, error: &rustls::Error) -> Failure {
        let had = self.identity.sha256.is_some();
        Failure::of_tls(error, self.context.certificate_requested, had)
    }

    /// Processes bytes from the server and appends the decrypted plaintext. An empty slice is the end of file; rustls
    /// knows whether it was announced. Returns how the server's direction ended, if it did. The caller
    /// [stores](Self::store_issued) the sessions that the server issued, preferably after delivering the plaintext.
    pub(crate) fn work_on(&mut self, mut rest: &[u8], plaintext: &mut Vec<u8>) -> Option<End> {
        loop {
            let ended = self.decrypt(&mut rest, plaintext);
            if ended.is_some() || rest.is_empty() {
                return ended;
            }
        }
    }

    /// Decrypts about one record. Returns how the server's direction ended, if it did.
    fn decrypt(&mut self, rest: &mut &[u8], plaintext: &mut Vec<u8>) -> Option<End> {
        let tls = &mut self.tls;
        let mut taken = tls.read_tls(rest).map(|_| ());
        for _ in 1..RECORD_READS {
            // An error means that rustls's buffer is full for now.
            if taken.is_err() || rest.is_empty() || tls.read_tls(rest).is_err() {
                break;
            }
        }
        let processed = taken.is_ok().then(|| self.process());
        self.is_broken_off |= matches!(processed, Some(Err(_)));
        taken = taken.and_then(|()| processed.unwrap_or(Ok(())).map_err(io::Error::other));
        self.take_decrypted(plaintext).or_else(|| taken.is_err().then_some(End::Truncated))
    }

    /// Takes the decrypted plaintext. Returns how the server's direction ended, if it did.
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

    /// Returns true if the server sent a fatal alert, or a record that is none of its own: TLS itself has failed.
    pub(crate) fn is_broken_off(&self) -> bool {
        self.is_broken_off
    }

    /// Returns true if the server has issued a session.
    pub(crate) fn was_issued(&self) -> bool {
        self.connection_store.was_issued()
    }

    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        self.tls.protocol_version()
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Enables [storing](Self::store_issued) of issued sessions, in the family that was resumed or in a new one.
    /// `None`: the server presented no usable certificates. What the server stapled is only in the family afterwards.
    pub(crate) fn keep_sessions(
        &mut self,
        state: &State,
        cache_key: &CacheKey,
        offered: Option<&(Offered, u64)>,
    ) -> Option<()> {
        let staple = self.context.staple.take();
        let resumed = offered.filter(|_| self.is_resumed());
        let family = match resumed {
            Some((offered, _)) => Arc::clone(&offered.family),
            None => {
                let chain = state.certificates.intern(self.tls.peer_certificates()?)?;
                state.sessions.settle(cache_key, &chain, self.peer.ip());
                let now_ms = state.settings.clock.now_ms();
                let stapled = Stapled::of(staple.as_ref(), &chain);
                Arc::new(Family::new(chain, now_ms, stapled, Arc::clone(&self.identity)))
            }
        };
        let is_tls12 = self.version() == Some(ProtocolVersion::TLSv1_2);
        let expires_ms = resumed.filter(|_| is_tls12).map(|(_, expires_ms)| *expires_ms);
        let alpn = self.tls.alpn_protocol().map(<[u8]>::to_vec);
        let terms = resumed.map_or(Terms::NONE, |(offered, _)| offered.terms).and(self.terms());
        if let Some(group) = self.connection_store.group() {
            state.sessions.set_group(cache_key, group, self.context.policy.accepts());
        }
        let cache_key = cache_key.clone();
        self.keeper = Some(Keeper { cache_key, family, alpn, terms, expires_ms });
        Some(())
    }

    /// Returns true if the server stapled a response that does not stand for another handshake's.
    pub(crate) fn has_unusable_staple(&self, state: &State) -> bool {
        let Some(staple) = &self.context.staple else { return false };
        let presented = self.tls.peer_certificates().unwrap_or_default();
        let chain = state.certificates.intern(presented);
        chain.is_none_or(|chain| Stapled::of(Some(staple), &chain) == Stapled::Unusable)
    }

    /// Returns the terms of this handshake.
    fn terms(&self) -> Terms {
        let suite = self.tls.negotiated_cipher_suite();
        let group = self.tls.negotiated_key_exchange_group();
        let suite = suite.map_or(Terms::NONE, |suite| Terms::suite(suite.suite()));
        let group = group.map_or(Terms::NONE, |group| Terms::group(group.name()));
        suite.and(group).and(self.context.signed)
    }

    /// Returns the family of the sessions that the server issues, if they are stored.
    pub(crate) fn family(&self) -> Option<&Family> {
        self.keeper.as_ref().map(|keeper| &*keeper.family)
    }

    /// Drops the sessions that the server issues, and what it stapled.
    pub(crate) fn keep_nothing(&mut self) {
        self.context.staple = None;
        self.connection_store.stop();
    }

    /// Stores the sessions that the server issued since the last call.
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
                terms: keeper.terms,
                // rustls stores a copy of the certificates with each session.
                bytes: bytes + keeper.family.chain.bytes + keeper.family.stapled.bytes(),
            };
            state.sessions.keep(&keeper.cache_key, session);
        }
    }
}
