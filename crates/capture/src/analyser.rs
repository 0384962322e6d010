//! The way from a capture's bytes to its handshakes.

use std::io::Read;

use crate::bytes::Bytes;
use crate::classify::End;
use crate::connections::Connections;
use crate::error::{Error, Stop};
use crate::file::{self, Frame};
use crate::fragments::Fragments;
use crate::handshake::Handshake;
use crate::ip::{self, Packet};
use crate::limits::{DEEPEST_TUNNEL, Limits};
use crate::link;
use crate::quic;
use crate::tcp::{self, At};

/// Finds the handshakes in captures, one capture at a time.
///
/// ```
/// use rejoin_capture::{Analyser, Limits};
///
/// let nothing: &[u8] = b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0";
/// let mut analyser = Analyser::new(Limits::default());
/// let summary = analyser.read(nothing, |handshake| println!("{handshake:?}"))?;
/// assert_eq!((summary.frames, summary.handshakes), (0, 0));
/// # Ok::<(), rejoin_capture::Error>(())
/// ```
#[derive(Debug)]
pub struct Analyser {
    connections: Connections,
    quic: quic::Connections,
    fragments: Fragments,
    limits: Limits,
}

/// What was read of one capture.
#[derive(Debug)]
pub struct Summary {
    /// Frames in it.
    pub frames: u64,
    /// Handshakes in it.
    pub handshakes: u64,
    /// Why the rest was left, if the capture does not end as it should.
    pub stop: Option<Stop>,
}

impl Analyser {
    /// An analyser that keeps no more than `limits` allow.
    pub fn new(limits: Limits) -> Self {
        Self {
            connections: Connections::new(limits),
            quic: quic::Connections::new(limits),
            fragments: Fragments::new(limits),
            limits,
        }
    }

    /// Reads a capture to its end and gives each handshake: once it is complete, and at the end
    /// those that are not; so not in the order in which they began.
    ///
    /// # Errors
    ///
    /// [`Error`] if there is no capture at all. A capture that breaks off gives what came before,
    /// and the reason in [`Summary::stop`].
    pub fn read(
        &mut self,
        mut reader: impl Read,
        mut each: impl FnMut(Handshake),
    ) -> Result<Summary, Error> {
        let mut handshakes = 0;
        let mut emit = |handshake: Handshake| {
            handshakes += 1;
            each(handshake);
        };
        let ended = file::frames(&mut reader, &mut |frame| self.frame(frame, &mut emit));
        self.connections.finish(&mut emit);
        self.quic.finish(&mut emit);
        self.fragments = Fragments::new(self.limits);
        let ended = ended?;
        Ok(Summary { frames: ended.frames, handshakes, stop: ended.stop })
    }

    fn frame(&mut self, frame: Frame<'_>, emit: &mut dyn FnMut(Handshake)) {
        let at = At { frame: frame.number, time_ns: frame.time_ns };
        if let Some(packet) = link::ip_packet(frame.link, frame.data) {
            self.packet(packet, at, 0, emit);
        }
    }

    fn packet(&mut self, packet: &[u8], at: At, depth: u8, emit: &mut dyn FnMut(Handshake)) {
        if depth > DEEPEST_TUNNEL {
            return;
        }
        let Some(packet) = ip::parse(packet) else { return };
        if packet.fragment.is_none() {
            self.payload(&packet, at, depth, emit);
        } else if let Some(whole) = self.fragments.add(&packet) {
            let whole = Packet { payload: &whole, length: whole.len(), fragment: None, ..packet };
            self.payload(&whole, at, depth, emit);
        }
    }

    fn payload(&mut self, packet: &Packet<'_>, at: At, depth: u8, emit: &mut dyn FnMut(Handshake)) {
        let inner = match packet.protocol {
            6 => {
                let Some(segment) = tcp::parse(packet.payload, packet.length) else { return };
                let from = End { ip: packet.source, port: segment.source_port };
                let to = End { ip: packet.destination, port: segment.destination_port };
                self.connections.segment(from, to, &segment, at, emit);
                return;
            }
            17 => self.datagram(packet, at, emit),
            // IP in IP, IPv6 in IP.
            4 | 41 => Some(packet.payload),
            47 => in_gre(packet.payload),
            _ => None,
        };
        if let Some(inner) = inner {
            self.packet(inner, at, depth + 1, emit);
        }
    }

    /// Takes a UDP datagram; gives the IP packet in it if it is a tunnel's.
    fn datagram<'a>(
        &mut self,
        packet: &Packet<'a>,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) -> Option<&'a [u8]> {
        let mut bytes = Bytes(packet.payload);
        let source = End { ip: packet.source, port: bytes.u16()? };
        let destination = End { ip: packet.destination, port: bytes.u16()? };
        bytes.take(4)?;
        let inner = in_udp_tunnel(source.port, destination.port, bytes.0);
        if inner.is_none() {
            // The header's 8 bytes are not the payload's.
            let length = packet.length.saturating_sub(8).max(bytes.0.len());
            self.quic.datagram(source, destination, bytes.0, length, at, emit);
        }
        inner
    }
}

/// The IP packet in a GRE packet (RFC 2784, 2890; version 1 is that of PPTP).
fn in_gre(payload: &[u8]) -> Option<&[u8]> {
    let mut bytes = Bytes(payload);
    let flags = bytes.u16()?;
    let kind = bytes.u16()?;
    let version = flags & 7;
    // Checksum, key, sequence; acknowledgement in version 1.
    let words = [0x8000, 0x2000, 0x1000].iter().filter(|flag| flags & **flag != 0).count()
        + usize::from(version == 1 && flags & 0x80 != 0);
    bytes.take(words * 4)?;
    match kind {
        // ERSPAN II has a header of 8 bytes, if there is a sequence number.
        0x88be if flags & 0x1000 != 0 => link::in_ethernet(bytes.0.get(8..)?),
        0x88be => link::in_ethernet(bytes.0),
        _ => link::in_ethertype(kind, bytes.0),
    }
}

/// The IP packet in VXLAN, Geneve, GTP-U or CAPWAP.
fn in_udp_tunnel(source: u16, destination: u16, payload: &[u8]) -> Option<&[u8]> {
    let mut bytes = Bytes(payload);
    match (source, destination) {
        (_, 4789 | 8472) => {
            let [flags, ..] = bytes.array::<8>()?;
            if flags & 8 != 0 { link::in_ethernet(bytes.0) } else { None }
        }
        (_, 6081) => {
            let [options, _, high, low, ..] = bytes.array::<8>()?;
            bytes.take(usize::from(options & 0x3f) * 4)?;
            link::in_ethertype(u16::from_be_bytes([high, low]), bytes.0)
        }
        (2152, _) | (_, 2152) => in_gtp(bytes),
        (5247, _) | (_, 5247) => in_capwap(payload),
        _ => None,
    }
    .filter(|packet| matches!(packet.first().map(|first| first >> 4), Some(4 | 6)))
}

fn in_gtp(mut bytes: Bytes<'_>) -> Option<&[u8]> {
    const USER_DATA: u8 = 255;
    let [flags, kind, ..] = bytes.array::<8>()?;
    if flags >> 4 != 3 || kind != USER_DATA {
        return None;
    }
    if flags & 7 != 0 {
        let [_, _, _, mut extension] = bytes.array()?;
        while extension != 0 {
            let words = usize::from(bytes.u8()?);
            let rest = bytes.take((words * 4).checked_sub(1)?)?;
            extension = *rest.last()?;
        }
    }
    Some(bytes.0)
}

/// The IP packet in a CAPWAP data packet (RFC 5415, 4.3) that is no fragment.
fn in_capwap(payload: &[u8]) -> Option<&[u8]> {
    const NATIVE: u8 = 1;
    const FRAGMENT: u8 = 0x80;
    let [0, length, kind, flags] = *payload.first_chunk()? else { return None };
    let frame = payload.get(usize::from(length >> 3) * 4..)?;
    match (kind & NATIVE, flags & FRAGMENT) {
        (_, FRAGMENT) => None,
        (NATIVE, _) => link::in_wifi(frame),
        _ => link::in_ethernet(frame),
    }
}
