//! The analyser: from the bytes of a capture to its handshakes.

use std::io::Read;
use std::mem;

use crate::bytes::Bytes;
use crate::clock::Clock;
use crate::connections::{self, Connections};
use crate::dtls;
use crate::error::{Error, Stop};
use crate::file::{self, Counted, Ended, Frame};
use crate::fragments::Fragments;
use crate::handshake::Handshake;
use crate::ip::{self, Packet};
use crate::limits::{DEEPEST_TUNNEL, LARGEST_BLOCK_BYTES, Limits, MOST_INTERFACES};
use crate::link::{self, Inside};
use crate::observation::{At, Endpoint};
use crate::openvpn;
use crate::owners::{self, Owners};
use crate::program;
use crate::quic;
use crate::table;
use crate::tcp;
use crate::unsupported::{Unsupported, UnsupportedFrames};

/// The EtherType of service function chains (RFC 8300).
const NSH: u16 = 0x894f;
/// Working memory besides what is kept: reassembled packets, and one segment over a bound.
const WORK_BYTES: usize = 1 << 20;

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
    dtls: dtls::Associations,
    tunnels: openvpn::Tunnels,
    fragments: Fragments,
    owners: Owners,
    clock: Clock,
    is_live: bool,
    unsupported: UnsupportedFrames,
    /// The frames of the capture so far.
    earlier_frames: u64,
    limits: Limits,
}

/// A summary of one capture.
#[derive(Debug)]
pub struct Summary {
    /// The number of frames.
    pub frames: u64,
    /// The number of handshakes.
    pub handshakes: u64,
    /// The frames that were not looked into because their kind is not supported, by kind.
    pub unsupported: Vec<(Unsupported, u64)>,
    /// The packets that were dropped when this was captured, as far as the capture tells (pcapng).
    pub dropped: u64,
    /// The reason the rest was not read, if the capture does not end properly.
    pub stop: Option<Stop>,
}

impl Analyser {
    /// Creates an analyser bounded by `limits`.
    pub fn new(limits: Limits) -> Self {
        Self {
            connections: Connections::new(limits),
            quic: quic::Connections::new(limits),
            dtls: dtls::Associations::within(limits),
            tunnels: openvpn::Tunnels::within(limits),
            fragments: Fragments::new(limits),
            owners: Owners::new(limits),
            clock: Clock::default(),
            is_live: false,
            unsupported: UnsupportedFrames::default(),
            earlier_frames: 0,
            limits,
        }
    }

    /// Tells whether what is read next is still being captured. If it is, a handshake that fails is given once later
    /// packets of TCP or UDP show that its connection has been closed for two seconds, or idle for five minutes. Otherwise, and
    /// by default, it is given at the end, and what the times say ends no handshake.
    pub fn set_live(&mut self, is_live: bool) {
        self.is_live = is_live;
        self.clock = Clock::new(is_live);
    }

    /// Reads a capture to its end and calls `each` with every handshake: as soon as it is complete,
    /// or at the end of the capture. The order is therefore not that of their beginnings.
    ///
    /// # Errors
    ///
    /// [`Error`] if the input is not a capture. A capture that breaks off gives the handshakes
    /// before that point, and the reason in [`Summary::stop`].
    pub fn read(
        &mut self,
        reader: impl Read,
        mut each: impl FnMut(Handshake),
    ) -> Result<Summary, Error> {
        let read = self.read_part(reader, &mut each);
        let left = self.finish(each);
        read.map(|summary| Summary { handshakes: summary.handshakes + left, ..summary })
    }

    /// Reads a capture that goes on in another file, which is the next part to read. Connections go on
    /// there, and frames are counted on. Handshakes that are not complete are given by a later part, or by
    /// [`Self::finish`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::read`]; the connections so far stay.
    pub fn read_part(
        &mut self,
        mut reader: impl Read,
        mut each: impl FnMut(Handshake),
    ) -> Result<Summary, Error> {
        let mut handshakes = 0;
        let before = self.earlier_frames;
        let mut owners = mem::replace(&mut self.owners, Owners::new(self.limits));
        let ended = file::frames(&mut reader, &mut |frame| {
            self.earlier_frames = before + frame.number;
            self.frame(Frame { number: self.earlier_frames, ..frame }, &mut |mut handshake| {
                handshakes += 1;
                owners.name(&mut handshake);
                each(handshake);
            });
            // What it ends was of the programs before.
            owners.note(&frame);
        });
        self.owners = owners;
        let mut unsupported = mem::take(&mut self.unsupported);
        let Ended { counted: Counted { frames, of_no_interface, dropped }, stop } = ended?;
        unsupported.add(Unsupported::NoInterface, of_no_interface);
        let unsupported = unsupported.into_counts();
        Ok(Summary { frames, handshakes, unsupported, dropped, stop })
    }

    /// Ends a capture that was read in parts: gives the handshakes that are left, and returns their number.
    pub fn finish(&mut self, mut each: impl FnMut(Handshake)) -> u64 {
        let mut handshakes = 0;
        let Self { connections, quic, dtls, tunnels, owners, .. } = self;
        let mut emit = |mut handshake: Handshake| {
            handshakes += 1;
            owners.name(&mut handshake);
            each(handshake);
        };
        connections.finish(&mut emit);
        quic.finish(&mut emit);
        dtls.finish(&mut emit);
        tunnels.finish(&mut emit);
        self.owners.clear();
        self.clock = Clock::new(self.is_live);
        self.fragments = Fragments::new(self.limits);
        self.earlier_frames = 0;
        handshakes
    }

    fn frame(&mut self, frame: Frame<'_>, emit: &mut dyn FnMut(Handshake)) {
        let at = At { frame: frame.number, time_ns: frame.time_ns };
        if let Some(packet) = self.found(link::ip_packet(frame.link, frame.data)) {
            self.packet(packet, at, 0, emit);
        }
    }

    /// Counts what may hide a packet.
    fn found<'a>(&mut self, inside: Inside<'a>) -> Option<&'a [u8]> {
        if let Err(Some(kind)) = inside {
            self.unsupported.count(kind);
        }
        inside.ok()
    }

    /// Reports the handshakes on which nothing more will come, now and then.
    fn look_for_ended(&mut self, at: At, emit: &mut dyn FnMut(Handshake)) {
        let Self { connections, quic, dtls, tunnels, .. } = self;
        let watched = connections.len() + quic.len() + dtls.len() + tunnels.len();
        if let Some(now_ns) = self.clock.tick(at, watched) {
            connections.report_ended(now_ns, emit);
            quic.report_paused(now_ns, emit);
            dtls.report_paused(now_ns, emit);
            tunnels.report_paused(now_ns, emit);
        }
    }

    fn packet(&mut self, packet: &[u8], at: At, depth: u8, emit: &mut dyn FnMut(Handshake)) {
        if depth > DEEPEST_TUNNEL {
            self.unsupported.count(Unsupported::TooDeep);
            return;
        }
        let Some(packet) = ip::parse(packet) else { return };
        if packet.fragment.is_none() {
            self.payload(&packet, at, depth, emit);
        } else if let Some(whole) = self.fragments.add(&packet, at) {
            let whole = Packet { payload: &whole, length: whole.len(), fragment: None, ..packet };
            self.payload(&whole, at, depth, emit);
        }
    }

    fn payload(&mut self, packet: &Packet<'_>, at: At, depth: u8, emit: &mut dyn FnMut(Handshake)) {
        if matches!(packet.protocol, 6 | 17) {
            self.look_for_ended(at, emit);
        }
        let inner = match packet.protocol {
            6 => {
                let Some(segment) = tcp::parse(packet.payload, packet.length) else { return };
                let from = Endpoint { ip: packet.source, port: segment.source_port };
                let to = Endpoint { ip: packet.destination, port: segment.destination_port };
                self.connections.segment(from, to, &segment, at, emit);
                return;
            }
            17 => self.datagram(packet, at, emit),
            // IP in IP, IPv6 in IP.
            4 | 41 => Some(packet.payload),
            47 => self.found(in_gre(packet.payload)),
            137 => self.found(link::in_mpls(packet.payload)),
            // ESP, EtherIP, IPComp, L2TPv3.
            protocol @ (50 | 97 | 108 | 115) => {
                self.unsupported.count(Unsupported::IpProtocol(protocol));
                None
            }
            _ => None,
        };
        if let Some(inner) = inner {
            self.packet(inner, at, depth + 1, emit);
        }
    }

    /// Takes a UDP datagram. Returns the IP packet in it if it belongs to a tunnel.
    fn datagram<'a>(
        &mut self,
        packet: &Packet<'a>,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) -> Option<&'a [u8]> {
        let mut bytes = Bytes(packet.payload);
        let source = Endpoint { ip: packet.source, port: bytes.u16()? };
        let destination = Endpoint { ip: packet.destination, port: bytes.u16()? };
        bytes.take(4)?;
        let inner = in_udp_tunnel(source.port, destination.port, bytes.0);
        if let Err(hidden) = inner {
            // The payload excludes the 8 bytes of the UDP header.
            let length = packet.length.saturating_sub(8).max(bytes.0.len());
            if dtls::begins_with_hello(bytes.0) || is_quic(bytes.0) {
                self.tunnels.end(source, destination, emit);
            }
            match dtls::may_be_dtls(bytes.0) {
                _ if self.tunnels.datagram(source, destination, (bytes.0, length), at, emit) => {}
                true => self.dtls.datagram(source, destination, bytes.0, length, at, emit),
                false => {
                    let ports = [source.port, destination.port];
                    let hidden = hidden.filter(|_| !is_quic(bytes.0));
                    if let Some(kind) = hidden.or_else(|| hidden_in_udp(ports, bytes.0, length)) {
                        self.unsupported.count(kind);
                    }
                    self.quic.datagram(source, destination, bytes.0, length, at, emit);
                }
            }
        }
        inner.ok()
    }
}

impl Limits {
    /// The most memory an analyser with these limits ever uses, in bytes. It excludes emitted
    /// handshakes and the memory of the source itself (64 KB for gzip, 10 MB for zstd).
    pub fn most_bytes(&self) -> usize {
        let Self { connections, quic_connections, dtls_associations, tunnels, .. } = *self;
        // A table that doubles keeps its old half until the copy is complete.
        let growing = |count: usize, each: usize| {
            count.max(4).next_power_of_two().saturating_mul(each).saturating_mul(3) / 2
        };
        // A hash table doubles at seven eighths; each entry has one control byte.
        let hashed = |count: usize, each: usize| {
            growing(count.saturating_mul(8).div_ceil(7).saturating_add(1), each + 1)
        };
        let kept = [
            growing(connections, connections::SLOT_BYTES + size_of::<u32>()),
            hashed(connections, connections::PLACE_BYTES),
            hashed(quic_connections.saturating_mul(quic::MOST_ROUTES), quic::ROUTE_BYTES),
            quic_connections.saturating_mul(quic::ENTRY_BYTES + quic::CONNECTION_BYTES),
            self.total_bytes,
            self.quic_bytes,
            quic::EARLY_BYTES,
            growing(dtls_associations, table::PLACE_BYTES),
            hashed(dtls_associations, table::PLACE_BYTES),
            dtls_associations.saturating_mul(dtls::ASSOCIATION_BYTES),
            self.dtls_bytes,
            growing(tunnels, table::PLACE_BYTES),
            hashed(tunnels, table::PLACE_BYTES),
            tunnels.saturating_mul(openvpn::TUNNEL_BYTES),
            self.tunnel_bytes,
            self.fragment_bytes,
            self.certificate_bytes,
            2 * hashed(self.named_connections, owners::PLACE_BYTES),
            owners::NAMES_BYTES,
            program::PROCESSES_BYTES,
            growing(MOST_INTERFACES, file::INTERFACE_BYTES),
            // The buffer doubles until a record fits.
            3 * LARGEST_BLOCK_BYTES,
            WORK_BYTES,
        ];
        kept.into_iter().fold(0, usize::saturating_add)
    }
}

/// Finds the IP packet in a GRE packet.
fn in_gre(payload: &[u8]) -> Inside<'_> {
    let (kind, payload) = carried_by_gre(payload).ok_or(None)?;
    link::in_ethertype(kind, payload)
}

/// The EtherType in a GRE packet (RFC 2784, 2890; PPTP uses version 1), and what follows. That of what ERSPAN mirrors is
/// Ethernet.
fn carried_by_gre(payload: &[u8]) -> Option<(u16, &[u8])> {
    let mut bytes = Bytes(payload);
    let flags = bytes.u16()?;
    let kind = bytes.u16()?;
    let version = flags & 7;
    // Checksum, key, sequence; acknowledgement in version 1.
    let words = [0x8000, 0x2000, 0x1000].iter().filter(|flag| flags & **flag != 0).count()
        + usize::from(version == 1 && flags & 0x80 != 0);
    bytes.take(words * 4)?;
    match kind {
        // ERSPAN II has an 8-byte header if there is a sequence number.
        0x88be if flags & 0x1000 != 0 => Some((link::ETHERNET, bytes.0.get(8..)?)),
        0x88be => Some((link::ETHERNET, bytes.0)),
        // ERSPAN III: 12 bytes, and 8 more if the last bit says so.
        0x22eb => {
            let header = bytes.take(12)?;
            bytes.take(usize::from(header.last()? & 1) * 8)?;
            Some((link::ETHERNET, bytes.0))
        }
        _ => Some((kind, bytes.0)),
    }
}

/// Finds the IP packet in VXLAN, Geneve, GTP-U, CAPWAP, L2TP, Teredo or MPLS over UDP.
fn in_udp_tunnel(source: u16, destination: u16, payload: &[u8]) -> Inside<'_> {
    let mut bytes = Bytes(payload);
    match (source, destination) {
        (_, 4789 | 8472) => {
            let [flags, ..] = bytes.array::<8>().ok_or(None)?;
            if flags & 8 != 0 { link::in_ethernet(bytes.0) } else { Err(None) }
        }
        (_, 6081) => {
            let [options, _, high, low, ..] = bytes.array::<8>().ok_or(None)?;
            bytes.take(usize::from(options & 0x3f) * 4).ok_or(None)?;
            link::in_ethertype(u16::from_be_bytes([high, low]), bytes.0)
        }
        (_, 4790) => {
            let [_, _, _, next, ..] = bytes.array::<8>().ok_or(None)?;
            match next {
                1 | 2 => Ok(bytes.0),
                3 => link::in_ethernet(bytes.0),
                4 => Err(Some(Unsupported::EtherType(NSH))),
                _ => Err(None),
            }
        }
        (_, 6635) => link::in_mpls(bytes.0),
        (3544, _) | (_, 3544) => in_teredo(bytes).ok_or(None),
        (1701, _) | (_, 1701) => link::in_ppp(in_l2tp(bytes).ok_or(None)?),
        (2152, _) | (_, 2152) => in_gtp(bytes).ok_or(None),
        (5247, _) | (_, 5247) => in_capwap(payload),
        _ => Err(None),
    }
    .and_then(link::may_be_ip)
}

/// Returns the kind of tunnel that hides what is in a datagram of this length, which may be cut.
fn hidden_in_udp(ports: [u16; 2], payload: &[u8], length: usize) -> Option<Unsupported> {
    const NAT_TRAVERSAL: u16 = 4500;
    const LEAST_ESP_BYTES: usize = 16;
    // Without a security parameters index it is IKE.
    let is_esp = payload.first_chunk().is_some_and(|spi: &[u8; 4]| *spi != [0; 4]);
    if ports.contains(&NAT_TRAVERSAL) && is_esp && length >= LEAST_ESP_BYTES && !is_quic(payload) {
        return Some(Unsupported::EspInUdp);
    }
    // The type, three zeros, and a length: two of the handshake, a cookie, and data, whose counter is never large.
    let has_counter = || matches!(payload.get(13..16), None | Some([0, 0, 0]));
    let is_wireguard = match payload.first_chunk()? {
        [1, 0, 0, 0] => length == 148,
        [2, 0, 0, 0] => length == 92,
        [3, 0, 0, 0] => length == 64,
        [4, 0, 0, 0] => length >= 32 && has_counter(),
        _ => false,
    };
    is_wireguard.then_some(Unsupported::WireGuard)
}

/// Returns true for a long header of QUIC of version 1, 2, or a draft.
fn is_quic(payload: &[u8]) -> bool {
    let [first, version @ ..] = *payload.first_chunk::<5>().unwrap_or(&[0; 5]);
    let is_known = matches!(version, [0, 0, 0, 1] | [0x6b, 0x33, 0x43, 0xcf] | [0xff, 0, 0, _]);
    first & 0xc0 == 0xc0 && is_known
}

/// The IPv6 packet behind Teredo's headers (RFC 4380, 5.1.1), which state its length.
fn in_teredo(mut bytes: Bytes<'_>) -> Option<&[u8]> {
    if bytes.0.starts_with(&[0, 1]) {
        bytes.take(2)?;
        let lengths: [u8; 2] = bytes.array()?;
        bytes.take(9 + lengths.into_iter().map(usize::from).sum::<usize>())?;
    }
    if bytes.0.starts_with(&[0, 0]) {
        bytes.take(8)?;
    }
    (bytes.0.first()? >> 4 == 6 && bytes.0.len() >= 40).then_some(bytes.0)
}

/// The PPP frame in a data message of L2TP, version 2 (RFC 2661, 3.1).
fn in_l2tp(mut bytes: Bytes<'_>) -> Option<&[u8]> {
    const CONTROL: u16 = 0x8000;
    const LENGTH: u16 = 0x4000;
    const SEQUENCE: u16 = 0x0800;
    const OFFSET: u16 = 0x0200;
    let flags = bytes.u16()?;
    if flags & CONTROL != 0 || flags & 15 != 2 {
        return None;
    }
    bytes.take(if flags & LENGTH != 0 { 6 } else { 4 })?;
    bytes.take(if flags & SEQUENCE != 0 { 4 } else { 0 })?;
    if flags & OFFSET != 0 {
        let offset = usize::from(bytes.u16()?);
        bytes.take(offset)?;
    }
    Some(bytes.0)
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

/// Finds the IP packet in an unfragmented CAPWAP data packet (RFC 5415, 4.3).
fn in_capwap(payload: &[u8]) -> Inside<'_> {
    const NATIVE: u8 = 1;
    const FRAGMENT: u8 = 0x80;
    let Some([0, length, kind, flags]) = payload.first_chunk() else { return Err(None) };
    let frame = payload.get(usize::from(length >> 3) * 4..).ok_or(None)?;
    match (kind & NATIVE, flags & FRAGMENT) {
        (_, FRAGMENT) => Err(None),
        (NATIVE, _) => link::in_wifi(frame),
        _ => link::in_ethernet(frame),
    }
}
