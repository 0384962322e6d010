//! The control packets of OpenVPN, and the order of what they carry; over TCP each follows its length.
//!
//! A packet has its type and key in a byte, the sender's session, with `tls-auth` an HMAC, a number and a time, then
//! acknowledgements and a number of its own (OpenVPN's "Network protocol", "Control channel packet"). With `tls-crypt`
//! nothing of this can be read.

use std::collections::BTreeMap;

use crate::bytes::Bytes;

const SESSION_BYTES: usize = 8;
/// The number and the time behind an HMAC.
const REPLAY_BYTES: usize = 8;
/// The lengths of no HMAC, and of those of MD5, SHA-1 and the members of SHA-2.
const AUTH_BYTES: [usize; 7] = [0, 16, 20, 28, 32, 48, 64];
const MOST_ACKNOWLEDGED: u8 = 8;
/// The longest control packet that is kept: far more than one that fits an Ethernet frame.
const LONGEST_BYTES: usize = 4 << 10;
/// The most packets that wait for an earlier one.
const MOST_WAITING: usize = 16;

/// The type of a control packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    ClientReset,
    ServerReset,
    /// The begin of another handshake on the same tunnel.
    SoftReset,
    Control,
}

/// A control packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(crate) kind: Kind,
    /// The number of the handshake on the tunnel, modulo 8.
    pub(crate) key: u8,
    /// The sender's session.
    pub(crate) session: [u8; SESSION_BYTES],
    /// The number of the packet among those of its sender.
    pub(crate) number: u32,
    /// A part of the TLS stream.
    pub(crate) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a packet whose HMAC has this length.
    pub(crate) fn parse(bytes: &'a [u8], auth_bytes: usize) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        let first = bytes.u8()?;
        let kind = match first >> 3 {
            1 | 7 => Kind::ClientReset,
            2 | 8 => Kind::ServerReset,
            3 => Kind::SoftReset,
            4 => Kind::Control,
            _ => return None,
        };
        let session = bytes.array()?;
        bytes.take(auth_bytes + if auth_bytes > 0 { REPLAY_BYTES } else { 0 })?;
        let acknowledged = bytes.u8().filter(|count| *count <= MOST_ACKNOWLEDGED)?;
        bytes.take(usize::from(acknowledged) * 4)?;
        // The other side's session follows the numbers that it acknowledges.
        bytes.take(if acknowledged > 0 { SESSION_BYTES } else { 0 })?;
        let number = bytes.u32()?;
        Some(Self { kind, key: first & 7, session, number, payload: bytes.0 })
    }

    /// Parses the first packet of a side, and finds the length of the HMAC: such a packet is empty. The client's
    /// acknowledges nothing, and the server's acknowledges that.
    pub(crate) fn parse_first(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let lengths = AUTH_BYTES.into_iter();
        let mut fitting = lengths.filter_map(|auth_bytes| {
            let packet = Self::parse(bytes, auth_bytes)?;
            let length = match packet.kind {
                Kind::ClientReset => 0,
                Kind::ServerReset => 4 + SESSION_BYTES,
                Kind::SoftReset | Kind::Control => return None,
            };
            let without = 1 + SESSION_BYTES + auth_bytes + 1 + 4;
            let without = without + if auth_bytes > 0 { REPLAY_BYTES } else { 0 };
            let is_first = packet.number == 0 && packet.payload.is_empty() && packet.key == 0;
            (is_first && bytes.len() == without + length).then_some((packet, auth_bytes))
        });
        fitting.next()
    }
}

/// The next part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Bytes(Box<[u8]>),
    /// Packets are missing here.
    Gap,
}

/// The packets of one side, which come in any order, and more than once.
#[derive(Debug, Default)]
pub(crate) struct Order {
    next: u32,
    waiting: BTreeMap<u32, Box<[u8]>>,
}

impl Order {
    pub(crate) fn held_bytes(&self) -> usize {
        self.waiting.values().map(|payload| payload.len() + 64).sum()
    }

    /// Takes a packet's payload. `each` gets what is now in order.
    pub(crate) fn add(&mut self, number: u32, payload: &[u8], each: &mut dyn FnMut(Part)) {
        if number < self.next || payload.len() > LONGEST_BYTES {
            return;
        }
        self.waiting.insert(number, payload.into());
        self.drain(each);
        if self.waiting.len() > MOST_WAITING {
            self.skip(each);
        }
    }

    /// Gives what waits, with the gaps in it.
    pub(crate) fn flush(&mut self, each: &mut dyn FnMut(Part)) {
        while !self.waiting.is_empty() {
            self.skip(each);
        }
    }

    fn skip(&mut self, each: &mut dyn FnMut(Part)) {
        if let Some((&first, _)) = self.waiting.first_key_value() {
            self.next = first;
            each(Part::Gap);
        }
        self.drain(each);
    }

    fn drain(&mut self, each: &mut dyn FnMut(Part)) {
        while let Some(payload) = self.waiting.remove(&self.next) {
            self.next = self.next.saturating_add(1);
            if !payload.is_empty() {
                each(Part::Bytes(payload));
            }
        }
    }
}

/// Packets behind their lengths in a stream of TCP.
#[derive(Debug, Default)]
struct Framing {
    /// The length of a packet, and what came of it.
    packet: Vec<u8>,
    /// Bytes of a longer packet that are still to come.
    skipped: usize,
}

impl Framing {
    fn held_bytes(&self) -> usize {
        self.packet.capacity()
    }

    /// Takes bytes. Returns the next packet that is whole.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        loop {
            let (_, rest) = bytes.split_at(self.skipped.min(bytes.len()));
            self.skipped -= bytes.len() - rest.len();
            *bytes = rest;
            let length = self.packet.first_chunk().map(|length| u16::from_be_bytes(*length).into());
            let wanted = 2 + length.unwrap_or(0);
            if length.is_some_and(|length: usize| length > LONGEST_BYTES) {
                self.packet.clear();
                self.skipped = wanted - 2;
                continue;
            }
            if length.is_some() && self.packet.len() == wanted {
                return Some(std::mem::take(&mut self.packet).split_off(2));
            }
            let (part, rest) = bytes.split_at((wanted - self.packet.len()).min(bytes.len()));
            if part.is_empty() {
                return None;
            }
            self.packet.extend_from_slice(part);
            *bytes = rest;
        }
    }
}

/// One direction of a tunnel over TCP.
#[derive(Debug)]
pub(crate) struct Framed {
    auth_bytes: usize,
    key: u8,
    framing: Framing,
    order: Order,
}

impl Framed {
    /// Returns a tunnel that begins with these bytes.
    pub(crate) fn beginning(bytes: &[u8]) -> Option<Self> {
        let (length, packet) = bytes.split_first_chunk()?;
        let packet = packet.get(..usize::from(u16::from_be_bytes(*length)))?;
        let (_, auth_bytes) = Packet::parse_first(packet)?;
        Some(Self { auth_bytes, key: 0, framing: Framing::default(), order: Order::default() })
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.framing.held_bytes() + self.order.held_bytes()
    }

    /// Takes bytes out of the front. Returns the next part of the TLS stream of the first handshake, or `None` if more are
    /// needed.
    pub(crate) fn next(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        let mut parts = Vec::new();
        while parts.is_empty() {
            let packet = self.framing.next(bytes)?;
            let packet = Packet::parse(&packet, self.auth_bytes);
            if let Some(packet) = packet.filter(|packet| packet.key == self.key) {
                self.order.add(packet.number, packet.payload, &mut |part| {
                    if let Part::Bytes(payload) = part {
                        parts.extend_from_slice(&payload);
                    }
                });
            }
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_packet_shows_the_length_of_the_hmac() {
        for (auth, between) in [(0, vec![]), (20, vec![9; 28]), (64, vec![9; 72])] {
            let client = [&[0x38][..], &[1; 8], &between, &[0; 5]].concat();
            let server = [&[0x40][..], &[2; 8], &between, &[1, 0, 0, 0, 0], &[1; 8], &[0; 4]];
            let server = server.concat();
            for bytes in [client, server] {
                assert_eq!(Packet::parse_first(&bytes).unwrap().1, auth);
                assert_eq!(Packet::parse_first(&bytes[1..]), None);
                assert_eq!(Packet::parse_first(&bytes[..bytes.len() - 1]), None);
            }
        }
    }

    #[test]
    fn packets_are_put_in_order_and_holes_are_told() {
        let (mut order, mut given) = (Order::default(), Vec::new());
        for number in [0, 2, 1, 1, 4] {
            order.add(number, &[number as u8], &mut |part| given.push(part));
        }
        order.flush(&mut |part| given.push(part));
        let bytes = |byte: u8| Part::Bytes([byte].into());
        assert_eq!(given, [bytes(0), bytes(1), bytes(2), Part::Gap, bytes(4)]);
    }

    #[test]
    fn packets_may_be_cut_anywhere_and_long_ones_are_skipped() {
        let stream = [&[0, 2, 7, 8][..], &[0x20, 0], &[5; 0x2000], &[0, 1, 9]].concat();
        for piece in [1, 3, 5_000, 10_000] {
            let (mut framing, mut packets) = (Framing::default(), Vec::new());
            for mut bytes in stream.chunks(piece) {
                while let Some(packet) = framing.next(&mut bytes) {
                    packets.push(packet);
                }
            }
            assert_eq!(packets, [vec![7, 8], vec![9]], "{piece}");
        }
    }
}
