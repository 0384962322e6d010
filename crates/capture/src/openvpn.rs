//! The handshakes of OpenVPN, whose control packets carry a stream of TLS, over UDP on every port. Those over TCP are found by
//! `tls`.

use crate::classify::Facts;
use crate::connections::Listener;
use crate::handshake::{Carrier, Handshake};
use crate::limits::Limits;
use crate::observation::{At, Endpoint, Side};
use crate::table::{Table, Watched};
use crate::tls::Stream;
use crate::tls::openvpn::{Kind, Order, Packet, Part};
use crate::via::Preface;

/// The memory of a tunnel, in bytes.
pub(crate) const TUNNEL_BYTES: usize = size_of::<Tunnel>();

/// The watched tunnels.
pub(crate) type Tunnels = Table<Tunnel>;

impl Tunnels {
    pub(crate) fn within(limits: Limits) -> Self {
        Self::new(limits.tunnels, limits.tunnel_bytes, limits.hash_seed)
    }

    /// Takes the payload of a datagram that had `length` bytes on the wire. Returns false if it is of no tunnel.
    pub(crate) fn datagram(
        &mut self,
        from: Endpoint,
        to: Endpoint,
        (payload, length): (&[u8], usize),
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) -> bool {
        let (ends, side) = if from <= to { ([from, to], 0) } else { ([to, from], 1) };
        if !self.contains(&ends) {
            match Packet::parse_first(payload) {
                Some((packet, auth_bytes)) if packet.kind == Kind::ClientReset => {
                    self.watch(ends, Tunnel::new(ends, auth_bytes), emit);
                }
                _ => return false,
            }
        }
        self.update(&ends, emit, |tunnel, emit| {
            if payload.len() == length {
                tunnel.packet(side, payload, at, emit);
            }
        });
        true
    }

    /// Ends the tunnel between two endpoints, if there is one, because they begin to speak something else. What began it
    /// may have been a datagram that only looks like OpenVPN.
    pub(crate) fn end(&mut self, from: Endpoint, to: Endpoint, emit: &mut dyn FnMut(Handshake)) {
        self.leave(&if from <= to { [from, to] } else { [to, from] }, emit);
    }
}

/// A tunnel over UDP, with its newest handshake.
#[derive(Debug)]
pub(crate) struct Tunnel {
    ends: [Endpoint; 2],
    auth_bytes: usize,
    key: u8,
    /// The client's session.
    session: Option<[u8; 8]>,
    orders: [Order; 2],
    streams: [Stream; 2],
    facts: Facts,
    last: Option<At>,
}

impl Tunnel {
    fn new(ends: [Endpoint; 2], auth_bytes: usize) -> Self {
        Self {
            ends,
            auth_bytes,
            key: 0,
            session: None,
            orders: Default::default(),
            streams: Default::default(),
            facts: Facts::default(),
            last: None,
        }
    }

    fn packet(&mut self, side: Side, bytes: &[u8], at: At, emit: &mut dyn FnMut(Handshake)) {
        let Some(packet) = Packet::parse(bytes, self.auth_bytes) else { return };
        let is_other_client = packet.kind == Kind::ClientReset
            && self.session.replace(packet.session).is_some_and(|known| known != packet.session);
        let is_other_key = packet.kind == Kind::SoftReset && packet.key != self.key;
        if is_other_client || is_other_key {
            self.finish(emit);
            let session = self.session;
            *self = Self { session, key: packet.key, ..Self::new(self.ends, self.auth_bytes) };
        }
        if packet.key != self.key {
            return;
        }
        self.last = Some(at);
        let mut order = std::mem::take(&mut self.orders[side]);
        order.add(packet.number, packet.payload, &mut |part| self.part(side, &part, at, emit));
        self.orders[side] = order;
        if self.facts.is_complete() {
            self.report(emit);
        }
    }

    fn report(&mut self, emit: &mut dyn FnMut(Handshake)) {
        if self.facts.has_hello() && !self.facts.is_reported() {
            emit(self.facts.report(Carrier::Tls, self.ends));
            self.facts.reported();
        }
    }

    fn part(&mut self, side: Side, part: &Part, at: At, emit: &mut dyn FnMut(Handshake)) {
        let expected = self.streams[1 - side].is_tls();
        let mut preface = Preface::default();
        preface.tunnelled();
        let mut listener = Listener {
            facts: &mut self.facts,
            carrier: Carrier::Tls,
            side,
            at,
            ends: self.ends,
            preface: &mut preface,
            certificates: None,
            emit,
        };
        match part {
            Part::Bytes(bytes) => self.streams[side].bytes(bytes, expected, &mut listener),
            Part::Gap => self.streams[side].gap(1, &mut listener),
        }
    }
}

impl Watched for Tunnel {
    fn held_bytes(&self) -> usize {
        self.orders.iter().map(Order::held_bytes).sum::<usize>()
            + self.streams.iter().map(Stream::held_bytes).sum::<usize>()
            + self.facts.held_bytes()
    }

    fn newest(&mut self) -> (&Facts, &mut Option<At>) {
        (&self.facts, &mut self.last)
    }

    fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        let Some(at) = self.last.filter(|_| !self.facts.is_reported()) else { return };
        let first = self.facts.client_side().unwrap_or(0);
        for side in [first, 1 - first] {
            let mut order = std::mem::take(&mut self.orders[side]);
            order.flush(&mut |part| self.part(side, &part, at, emit));
        }
        self.report(emit);
    }
}
