//! The hellos in QUIC's Initial packets.
//!
//! The keys of Initial packets derive from the client's first connection ID and a public salt per
//! version (RFC 9001, 5.2), so any observer can read the ClientHello and the ServerHello, but
//! nothing more. That is enough to distinguish full from resumed handshakes. A packet that does not
//! decrypt is not QUIC.

use std::collections::{BTreeMap, VecDeque};

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::bytes::Bytes;
use crate::classify::Facts;
use crate::connections::Listener;
use crate::handshake::{Carrier, Handshake};
use crate::limits::{LONGEST_HELLO_BYTES, Limits};
use crate::observation::{At, Endpoint, Side};
use crate::tls::Message;
use crate::via::Preface;

const LONG_HEADER: u8 = 0x80;
const LONGEST_ID: usize = 20;
const SAMPLE_BYTES: usize = 16;
/// The number of packets inspected per datagram.
const MOST_COALESCED: usize = 8;
const MOST_CRYPTO_FRAMES: usize = 512;
/// The memory of a kept frame besides its bytes, and of the first kept frame.
const FRAME_BYTES: usize = 96;
const FIRST_FRAME_BYTES: usize = 512;

/// The memory of a connection and of its entry in the table, in bytes.
pub(crate) const CONNECTION_BYTES: usize = size_of::<Connection>();
pub(crate) const PLACE_BYTES: usize = size_of::<([Endpoint; 2], Box<Connection>)>();

/// The bytes kept of datagrams that came before the ClientHello whose keys open them, as they do where
/// two directions were captured by two clocks.
pub(crate) const EARLY_BYTES: usize = 256 << 10;
/// The most of these datagrams.
const MOST_EARLY: usize = 64;

const SALT_V1: [u8; 20] =
    *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
const SALT_V2: [u8; 20] =
    *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9";
const SALT_DRAFT_29: [u8; 20] =
    *b"\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99";
const SALT_DRAFT_23: [u8; 20] =
    *b"\xc3\xee\xf7\x12\xc7\x2e\xbb\x5a\x11\xa7\xd2\x43\x2b\xb4\x63\x65\xbe\xf9\xf5\x02";

const SALT_DRAFT_21: [u8; 20] =
    *b"\x7f\xbc\xdb\x0e\x7c\x66\xbb\xe9\x19\x3a\x96\xcd\x21\x51\x9e\xbd\x7a\x02\x64\x4a";
const SALT_T051: [u8; 20] =
    *b"\x7a\x4e\xde\xf4\xe7\xcc\xee\x5f\xa4\x50\x6c\x19\x12\x4f\xc8\xcc\xda\x6e\x03\x3d";

/// The parameters that differ between QUIC versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VersionParameters {
    salt: [u8; 20],
    is_v2: bool,
    /// True for Google's frame format, which precedes the IETF's.
    has_google_frames: bool,
}

impl VersionParameters {
    fn of(version: u32) -> Option<Self> {
        let (salt, is_v2) = match version {
            1 | 0xff00_0021 | 0xff00_0022 => (SALT_V1, false),
            0x6b33_43cf => (SALT_V2, true),
            0xff00_001d..=0xff00_0020 => (SALT_DRAFT_29, false),
            // Versions meant to provoke a version negotiation (GREASE); they date from these
            // drafts.
            grease if grease & 0x0f0f_0f0f == 0x0a0a_0a0a => (SALT_DRAFT_29, false),
            // The last two here, and one below, are one client's names for drafts 27 and 22.
            0xff00_0017..=0xff00_001c | 0xface_b002 | 0xface_b00e => (SALT_DRAFT_23, false),
            0xff00_0015 | 0xff00_0016 | 0xface_b001 => (SALT_DRAFT_21, false),
            // Version "T051", used by another client.
            0x5430_3531 => (SALT_T051, false),
            _ => return None,
        };
        Some(Self { salt, is_v2, has_google_frames: salt == SALT_T051 })
    }
}

/// The watched QUIC connections.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    held_bytes: usize,
    connections: HashMap<[Endpoint; 2], Box<Connection>, FixedState>,
    /// Oldest first.
    order: VecDeque<[Endpoint; 2]>,
    /// Oldest first.
    early: VecDeque<Early>,
    early_bytes: usize,
}

/// A datagram that no known key opens.
#[derive(Debug)]
struct Early {
    from: Endpoint,
    to: Endpoint,
    payload: Box<[u8]>,
    length: usize,
    at: At,
}

#[derive(Debug)]
struct Connection {
    client: Side,
    has_google_frames: bool,
    /// The keys of the client and of the server.
    keys: [Keys; 2],
    crypto: [Crypto; 2],
    facts: Facts,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            held_bytes: 0,
            connections: HashMap::with_hasher(FixedState::with_seed(limits.hash_seed)),
            order: VecDeque::new(),
            early: VecDeque::new(),
            early_bytes: 0,
        }
    }

    /// Takes the payload of a datagram that had `length` bytes on the wire.
    pub(crate) fn datagram(
        &mut self,
        from: Endpoint,
        to: Endpoint,
        payload: &[u8],
        length: usize,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) {
        let (ends, side) = if from <= to { ([from, to], 0) } else { ([to, from], 1) };
        let before = self.held_bytes_of(&ends);
        let is_known = self.connections.contains_key(&ends);
        let mut rest = payload;
        for count in 0..MOST_COALESCED {
            let Some((packet, next)) = Packet::parse(rest, length > payload.len()) else {
                if count == 0 {
                    return;
                }
                break;
            };
            let is_opened = self.packet(ends, side, &packet, at, emit);
            if !is_opened && !is_known && count == 0 {
                self.keep(Early { from, to, payload: payload.into(), length, at });
                return;
            }
            rest = next;
        }
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.facts.datagram(side, length);
            connection.report_if_complete(ends, emit);
        }
        self.held_bytes = self.held_bytes + self.held_bytes_of(&ends) - before;
        while self.held_bytes > self.limits.quic_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest, emit);
        }
        if !is_known {
            self.take_early(ends, emit);
        }
    }

    fn keep(&mut self, early: Early) {
        self.early_bytes += early.payload.len();
        self.early.push_back(early);
        while self.early_bytes > EARLY_BYTES || self.early.len() > MOST_EARLY {
            let Some(oldest) = self.early.pop_front() else { break };
            self.early_bytes -= oldest.payload.len();
        }
    }

    /// Takes the datagrams that came before the first one of a connection that is now known.
    fn take_early(&mut self, ends: [Endpoint; 2], emit: &mut dyn FnMut(Handshake)) {
        let is_of = |early: &Early| ends.contains(&early.from) && ends.contains(&early.to);
        if !self.connections.contains_key(&ends) || !self.early.iter().any(is_of) {
            return;
        }
        let (taken, left): (VecDeque<_>, _) = self.early.drain(..).partition(is_of);
        self.early = left;
        for Early { from, to, payload, length, at } in taken {
            self.early_bytes -= payload.len();
            self.datagram(from, to, &payload, length, at, emit);
        }
    }

    /// Returns false for an Initial that no key opens.
    fn packet(
        &mut self,
        ends: [Endpoint; 2],
        side: Side,
        packet: &Packet<'_>,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) -> bool {
        if let Packet::Initial(parameters, initial) = packet {
            return self.initial(ends, side, *parameters, initial, at, emit).is_some();
        }
        let Some(connection) = self.connections.get_mut(&ends) else {
            if let Packet::CutInitial(parameters, destination_id) = packet
                && let Some(keys) = Keys::both(*parameters, destination_id)
            {
                self.watch(ends, side, *parameters, keys, emit);
            }
            return true;
        };
        match packet {
            Packet::Handshake => connection.facts.application_data(side, at),
            Packet::Retry => connection.facts.expect_repeated_hello(),
            Packet::Initial(..) | Packet::CutInitial(..) | Packet::EarlyData => {}
        }
        true
    }

    /// Ends the capture: reports all remaining connections.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        while let Some(ends) = self.order.pop_front() {
            self.remove(ends, emit);
        }
        self.early.clear();
        self.early_bytes = 0;
    }

    /// The memory of the connection between two endpoints, in bytes.
    fn held_bytes_of(&self, ends: &[Endpoint; 2]) -> usize {
        self.connections.get(ends).map_or(0, |connection| connection.held_bytes())
    }

    fn remove(&mut self, ends: [Endpoint; 2], emit: &mut dyn FnMut(Handshake)) {
        let Some(connection) = self.connections.remove(&ends) else { return };
        self.held_bytes -= connection.held_bytes();
        if connection.facts.has_hello() && !connection.facts.is_reported() {
            emit(connection.facts.report(Carrier::Quic, ends));
        }
    }

    fn initial(
        &mut self,
        ends: [Endpoint; 2],
        side: Side,
        parameters: VersionParameters,
        initial: &Initial<'_>,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) -> Option<()> {
        let known = self.connections.get_mut(&ends);
        let opened = known.as_ref().and_then(|connection| {
            connection.keys[usize::from(connection.client != side)].open(initial)
        });
        if let (Some(connection), Some(plain)) = (known, &opened) {
            connection.frames(side, plain, at, ends, emit);
            return Some(());
        }
        let keys = Keys::both(parameters, initial.destination_id)?;
        let plain = keys[0].open(initial)?;
        if let Some(connection) = self.connections.get_mut(&ends) {
            // A Retry, or another connection between the same endpoints: the hello decides which.
            connection.keys = keys;
            connection.client = side;
            connection.crypto = <[Crypto; 2]>::default();
        } else {
            self.watch(ends, side, parameters, keys, emit);
        }
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.frames(side, &plain, at, ends, emit);
        }
        Some(())
    }

    /// Starts watching a connection that `side` opened.
    fn watch(
        &mut self,
        ends: [Endpoint; 2],
        side: Side,
        parameters: VersionParameters,
        keys: [Keys; 2],
        emit: &mut dyn FnMut(Handshake),
    ) {
        while self.connections.len() >= self.limits.quic_connections.max(1) {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest, emit);
        }
        self.order.push_back(ends);
        let (crypto, facts) = (<[Crypto; 2]>::default(), Facts::default());
        let has_google_frames = parameters.has_google_frames;
        let connection = Connection { client: side, has_google_frames, keys, crypto, facts };
        self.connections.insert(ends, Box::new(connection));
    }
}

impl Connection {
    fn held_bytes(&self) -> usize {
        self.crypto.iter().map(Crypto::held_bytes).sum::<usize>() + self.facts.held_bytes()
    }

    fn report_if_complete(&mut self, ends: [Endpoint; 2], emit: &mut dyn FnMut(Handshake)) {
        if self.facts.is_complete() && !self.facts.is_reported() {
            emit(self.facts.report(Carrier::Quic, ends));
            self.facts.reported();
        }
    }

    fn frames(
        &mut self,
        side: Side,
        plain: &[u8],
        at: At,
        ends: [Endpoint; 2],
        emit: &mut dyn FnMut(Handshake),
    ) {
        let facts = &mut self.facts;
        let mut listener = Listener {
            facts,
            carrier: Carrier::Quic,
            side,
            at,
            ends,
            preface: &mut Preface::default(),
            certificates: None,
            emit,
        };
        let crypto = &mut self.crypto[side];
        let add = |offset, data: &[u8]| crypto.add(offset, data, &mut listener);
        let _ = match self.has_google_frames {
            true => google_crypto_frames(plain, add),
            false => crypto_frames(plain, add),
        };
    }
}

/// The stream of CRYPTO frames in one direction.
#[derive(Debug, Default)]
struct Crypto {
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_bytes: usize,
    message: Message,
}

impl Crypto {
    fn held_bytes(&self) -> usize {
        let first_bytes = if self.waiting.is_empty() { 0 } else { FIRST_FRAME_BYTES };
        self.waiting_bytes
            + first_bytes
            + self.waiting.len() * FRAME_BYTES
            + self.message.held_bytes()
    }

    fn add(&mut self, offset: u64, data: &[u8], listener: &mut Listener<'_>) {
        let is_new = offset.saturating_add(data.len() as u64) > self.next;
        let fits = self.waiting_bytes + data.len() <= LONGEST_HELLO_BYTES
            && self.waiting.len() < MOST_CRYPTO_FRAMES;
        if !is_new || !fits {
            return;
        }
        if self.waiting.get(&offset).is_some_and(|before| before.len() >= data.len()) {
            return;
        }
        self.waiting_bytes += data.len();
        if let Some(before) = self.waiting.insert(offset, data.to_vec()) {
            self.waiting_bytes -= before.len();
        }
        while let Some(first) = self.waiting.first_entry() {
            let Some(known) = self.next.checked_sub(*first.key()) else { return };
            let data = first.remove();
            self.waiting_bytes -= data.len();
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            let news = data.get(known..).unwrap_or_default();
            self.next += news.len() as u64;
            self.message.feed(news, listener);
        }
    }
}

/// Calls `each` with every CRYPTO frame of an Initial packet (RFC 9000, 17.2.2 forbids most other
/// frames).
fn crypto_frames(plain: &[u8], mut each: impl FnMut(u64, &[u8])) -> Option<()> {
    let mut bytes = Bytes(plain);
    loop {
        match bytes.u8()? {
            // PADDING, PING.
            0 | 1 => {}
            kind @ (2 | 3) => acknowledgement(&mut bytes, kind == 3)?,
            6 => crypto_frame(&mut bytes, &mut each)?,
            _ => return None,
        }
    }
}

fn crypto_frame(bytes: &mut Bytes<'_>, each: &mut impl FnMut(u64, &[u8])) -> Option<()> {
    let offset = variable(bytes)?;
    let length = usize::try_from(variable(bytes)?).ok()?;
    each(offset, bytes.take(length)?);
    Some(())
}

/// Does the same for Google's frame format (version T051).
fn google_crypto_frames(plain: &[u8], mut each: impl FnMut(u64, &[u8])) -> Option<()> {
    let mut bytes = Bytes(plain);
    loop {
        match bytes.u8()? {
            // PADDING, PING.
            0 | 7 => {}
            8 => crypto_frame(&mut bytes, &mut each)?,
            kind @ 0x40..=0x7f => google_acknowledgement(&mut bytes, kind)?,
            _ => return None,
        }
    }
}

/// Skips the largest packet number, delay, blocks and timestamps, whose widths the type gives.
fn google_acknowledgement(bytes: &mut Bytes<'_>, kind: u8) -> Option<()> {
    const WIDTHS: [usize; 4] = [1, 2, 4, 6];
    let largest_width = WIDTHS[usize::from(kind >> 2 & 3)];
    let block_width = WIDTHS[usize::from(kind & 3)];
    bytes.take(largest_width + 2)?;
    let blocks = if kind & 0x20 != 0 { usize::from(bytes.u8()?) } else { 0 };
    bytes.take(block_width + blocks * (1 + block_width))?;
    match usize::from(bytes.u8()?) {
        0 => Some(()),
        timestamps => bytes.take(5 + (timestamps - 1) * 3).map(|_| ()),
    }
}

fn acknowledgement(bytes: &mut Bytes<'_>, has_counts: bool) -> Option<()> {
    variable(bytes)?;
    variable(bytes)?;
    let ranges = variable(bytes)?;
    variable(bytes)?;
    for _ in 0..ranges {
        variable(bytes)?;
        variable(bytes)?;
    }
    for _ in 0..if has_counts { 3 } else { 0 } {
        variable(bytes)?;
    }
    Some(())
}

/// Reads a variable-length integer (RFC 9000, 16).
fn variable(bytes: &mut Bytes<'_>) -> Option<u64> {
    let first = bytes.u8()?;
    let rest = bytes.take((1 << (first >> 6)) - 1)?;
    Some(rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)))
}

/// A packet with a long header.
enum Packet<'a> {
    Initial(VersionParameters, Initial<'a>),
    /// A truncated Initial: only the connection ID is captured, which determines the keys.
    CutInitial(VersionParameters, &'a [u8]),
    EarlyData,
    Handshake,
    Retry,
}

/// An Initial packet, still protected.
struct Initial<'a> {
    destination_id: &'a [u8],
    /// The entire packet.
    bytes: &'a [u8],
    /// The offset of its packet number.
    number_at: usize,
}

impl<'a> Packet<'a> {
    /// Parses the first packet of a datagram. Returns it with the bytes that follow.
    fn parse(datagram: &'a [u8], is_cut: bool) -> Option<(Self, &'a [u8])> {
        let mut bytes = Bytes(datagram);
        let first = bytes.u8()?;
        if first & LONG_HEADER == 0 {
            return None;
        }
        let parameters = VersionParameters::of(bytes.u32()?)?;
        let destination_length = usize::from(bytes.u8()?);
        let destination_id = bytes.take(destination_length)?;
        let source_length = usize::from(bytes.u8()?);
        bytes.take(source_length)?;
        if destination_length > LONGEST_ID || source_length > LONGEST_ID {
            return None;
        }
        let kind = first >> 4 & 3;
        // Version 2 shifts the type codes by one.
        let kind = if parameters.is_v2 { kind.wrapping_sub(1) & 3 } else { kind };
        match kind {
            0 => {
                let token_length = usize::try_from(variable(&mut bytes)?).ok()?;
                bytes.take(token_length)?;
            }
            3 => return Some((Self::Retry, &[])),
            _ => {}
        }
        let length = usize::try_from(variable(&mut bytes)?).ok()?;
        let number_at = datagram.len() - bytes.0.len();
        let end = number_at.checked_add(length)?;
        if kind == 0 && is_cut && end > datagram.len() {
            return Some((Self::CutInitial(parameters, destination_id), &[]));
        }
        let (packet, rest) = datagram.split_at_checked(end)?;
        let packet = match kind {
            0 => Self::Initial(parameters, Initial { destination_id, bytes: packet, number_at }),
            1 => Self::EarlyData,
            _ => Self::Handshake,
        };
        Some((packet, rest))
    }
}

/// The keys of one direction. They are public, so `Debug` may show them.
#[derive(Debug, Clone, Copy)]
struct Keys {
    key: [u8; 16],
    iv: [u8; 12],
    header: [u8; 16],
}

impl Keys {
    /// Derives the keys of the client and of the server.
    fn both(parameters: VersionParameters, destination_id: &[u8]) -> Option<[Self; 2]> {
        let secret = Salt::new(HKDF_SHA256, &parameters.salt).extract(destination_id);
        let client = Self::of(parameters, &expand::<32>(&secret, "client in")?)?;
        let server = Self::of(parameters, &expand::<32>(&secret, "server in")?)?;
        Some([client, server])
    }

    fn of(parameters: VersionParameters, secret: &[u8]) -> Option<Self> {
        let secret = Prk::new_less_safe(HKDF_SHA256, secret);
        let [key, iv, header] = match parameters.is_v2 {
            true => ["quicv2 key", "quicv2 iv", "quicv2 hp"],
            false => ["quic key", "quic iv", "quic hp"],
        };
        Some(Self {
            key: expand(&secret, key)?,
            iv: expand(&secret, iv)?,
            header: expand(&secret, header)?,
        })
    }

    /// Decrypts an Initial (RFC 9001, 5.3 and 5.4).
    fn open(&self, initial: &Initial<'_>) -> Option<Vec<u8>> {
        let sample = initial.bytes.get(initial.number_at + 4..)?.get(..SAMPLE_BYTES)?;
        let mask = HeaderProtectionKey::new(&AES_128, &self.header).ok()?.new_mask(sample).ok()?;
        let mut packet = initial.bytes.to_vec();
        packet[0] ^= mask[0] & 0x0f;
        let number_length = usize::from(packet[0] & 3) + 1;
        let (header, payload) = packet.split_at_mut_checked(initial.number_at + number_length)?;
        let mut number = 0u64;
        for (byte, mask) in header.get_mut(initial.number_at..)?.iter_mut().zip(&mask[1..]) {
            *byte ^= mask;
            number = number << 8 | u64::from(*byte);
        }
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &self.key).ok()?);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plain = key.open_in_place(nonce, Aad::from(&*header), payload).ok()?;
        Some(plain.to_vec())
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label (RFC 8446, 7.1) without a context.
fn expand<const N: usize>(secret: &Prk, label: &str) -> Option<[u8; N]> {
    let length = u16::try_from(N).ok()?.to_be_bytes();
    let label_length = [u8::try_from(label.len() + 6).ok()?];
    let info = [&length[..], &label_length, b"tls13 ", label.as_bytes(), &[0]];
    let mut key = [0; N];
    secret.expand(&info, Length(N)).ok()?.fill(&mut key).ok()?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors: RFC 9001, appendix A.1; RFC 9369, appendix A.1.
    #[test]
    fn keys_are_those_of_the_rfcs() {
        let id = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let [client, server] = Keys::both(VersionParameters::of(1).unwrap(), &id).unwrap();
        assert_eq!(client.key[..4], [0x1f, 0x36, 0x96, 0x13]);
        assert_eq!(client.header[..4], [0x9f, 0x50, 0x44, 0x9e]);
        assert_eq!(server.iv[..4], [0x0a, 0xc1, 0x49, 0x3c]);
        let [client, _] = Keys::both(VersionParameters::of(0x6b33_43cf).unwrap(), &id).unwrap();
        assert_eq!(client.key[..4], [0x8b, 0x1a, 0x0b, 0xc1]);
    }

    #[test]
    fn integers_have_four_lengths() {
        let read = |bytes: &[u8]| variable(&mut Bytes(bytes));
        assert_eq!(read(&[0x25]), Some(37));
        assert_eq!(read(&[0x7b, 0xbd]), Some(15_293));
        assert_eq!(read(&[0x9d, 0x7f, 0x3e, 0x7d]), Some(494_878_333));
        assert_eq!(read(&[0xc0, 0]), None);
    }
}
