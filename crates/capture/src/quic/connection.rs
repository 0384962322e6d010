//! The handshake of one QUIC connection, as far as it was seen.

use super::crypto::{Crypto, crypto_frames, google_crypto_frames};
use super::keys::{Keys, VersionParameters};
use super::packet::{Id, Initial};
use super::routes::MOST_ROUTES;
use crate::classify::Facts;
use crate::clock::has_paused;
use crate::connections::Listener;
use crate::copies::Copies;
use crate::handshake::{Carrier, Handshake};
use crate::observation::{At, Endpoint, Side};
use crate::via::Preface;

pub(super) const CLIENT: Side = 0;
pub(super) const SERVER: Side = 1;

/// The most memory of a connection outside it, besides what is counted: its routes, and an ID.
pub(super) const OUTSIDE_BYTES: usize = MOST_ROUTES * size_of::<u64>() + 32;

#[derive(Debug)]
pub(super) struct Connection {
    /// The client and the server, where the connection began.
    pub(super) ends: [Endpoint; 2],
    /// The hashes of the routes to it.
    pub(super) routes: Vec<u64>,
    /// The ID that the keys derive from.
    origin: Box<[u8]>,
    parameters: VersionParameters,
    /// The keys of the client and of the server.
    keys: [Keys; 2],
    crypto: [Crypto; 2],
    pub(super) facts: Facts,
    /// Before TLS there is nothing.
    preface: Preface,
    /// The server sent a Version Negotiation.
    is_refused: bool,
    /// The random of the ClientHello was given.
    has_greeted: bool,
    /// The last Initial.
    last: Option<At>,
    /// The last datagram.
    last_datagram: Option<At>,
    copies: [Copies; 2],
    /// The memory that was counted.
    counted_bytes: usize,
}

impl Connection {
    pub(super) fn new(
        ends: [Endpoint; 2],
        origin: Id<'_>,
        parameters: VersionParameters,
        keys: [Keys; 2],
    ) -> Self {
        Self {
            ends,
            routes: Vec::with_capacity(MOST_ROUTES),
            origin: origin.into(),
            parameters,
            keys,
            crypto: <[Crypto; 2]>::default(),
            facts: Facts::default(),
            preface: Preface::default(),
            is_refused: false,
            has_greeted: false,
            last: None,
            last_datagram: None,
            copies: Default::default(),
            counted_bytes: 0,
        }
    }

    /// Begins the connection anew, with the ID of a Retry.
    pub(super) fn begin_anew(
        &mut self,
        origin: Id<'_>,
        parameters: VersionParameters,
        keys: [Keys; 2],
    ) {
        self.origin = origin.into();
        (self.parameters, self.keys) = (parameters, keys);
        self.crypto = <[Crypto; 2]>::default();
    }

    /// Decrypts an Initial. The server may have chosen another version than the client began with, and
    /// the client then follows.
    pub(super) fn open(
        &mut self,
        sender: Side,
        parameters: VersionParameters,
        initial: &Initial<'_>,
    ) -> Option<Vec<u8>> {
        if parameters == self.parameters {
            return self.keys[sender].open(initial);
        }
        let keys = Keys::both(parameters, &self.origin)?;
        let plain = keys[sender].open(initial)?;
        (self.parameters, self.keys) = (parameters, keys);
        if sender == CLIENT && !self.facts.is_answered() {
            self.crypto = <[Crypto; 2]>::default();
            if self.is_refused {
                self.facts = Facts::default();
            }
        }
        Some(plain)
    }

    /// Takes the frames of an Initial.
    pub(super) fn frames(
        &mut self,
        sender: Side,
        plain: &[u8],
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) {
        self.last = Some(at);
        let has_google_frames = self.parameters.has_google_frames;
        let (crypto, mut listener) = self.listening(sender, at, emit);
        let add = |offset, data: &[u8]| crypto.add(offset, data, &mut listener);
        let _ = match has_google_frames {
            true => google_crypto_frames(plain, add),
            false => crypto_frames(plain, add),
        };
    }

    fn listening<'a>(
        &'a mut self,
        side: Side,
        at: At,
        emit: &'a mut dyn FnMut(Handshake),
    ) -> (&'a mut Crypto, Listener<'a>) {
        let Self { facts, preface, ends, .. } = self;
        let carrier = Carrier::Quic;
        let listener =
            Listener { facts, carrier, side, at, ends: *ends, preface, certificates: None, emit };
        (&mut self.crypto[side], listener)
    }

    /// Notes that the server speaks no such version: the client may begin anew in another.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Counts a datagram of `length` bytes once, and reports the handshake if nothing that follows can change it.
    pub(super) fn datagram(
        &mut self,
        sender: Side,
        (payload, length): (&[u8], usize),
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) {
        self.last_datagram = Some(at);
        if !self.copies[sender].is_one(payload, length) {
            self.facts.datagram(sender, length);
        }
        self.report_if_complete(emit);
    }

    pub(super) fn report_if_complete(&mut self, emit: &mut dyn FnMut(Handshake)) {
        if self.facts.is_complete() && !self.facts.is_reported() {
            emit(self.facts.report(Carrier::Quic, self.ends));
            self.facts.reported();
        }
    }

    /// Returns the random of the ClientHello, once.
    pub(super) fn new_random(&mut self) -> Option<[u8; 32]> {
        let random = self.facts.client_random().filter(|_| !self.has_greeted)?;
        self.has_greeted = true;
        Some(random)
    }

    /// The heap memory in use, in bytes, as counted so far.
    pub(super) fn counted_bytes(&self) -> usize {
        self.counted_bytes
    }

    /// Counts the heap memory in use, in bytes. Returns the counts before and now.
    pub(super) fn count_bytes(&mut self) -> [usize; 2] {
        let now =
            self.crypto.iter().map(Crypto::held_bytes).sum::<usize>() + self.facts.held_bytes();
        [std::mem::replace(&mut self.counted_bytes, now), now]
    }

    /// Reports the handshake, with what is known of messages that are not whole.
    pub(super) fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        if self.facts.is_reported() {
            return;
        }
        if let Some(at) = self.last {
            for sender in [CLIENT, SERVER] {
                let (crypto, mut listener) = self.listening(sender, at, emit);
                crypto.finish(&mut listener);
            }
        }
        if self.facts.has_hello() {
            emit(self.facts.report(Carrier::Quic, self.ends));
            self.facts.reported();
        }
    }

    /// Reports the handshake if it pauses for too long. Returns false if it does not.
    pub(super) fn report_paused(&mut self, now_ns: u64, emit: &mut dyn FnMut(Handshake)) -> bool {
        let has_paused = !self.facts.is_reported() && has_paused(self.last_datagram, now_ns);
        if has_paused {
            self.finish(emit);
            self.last_datagram = None;
        }
        has_paused
    }
}
