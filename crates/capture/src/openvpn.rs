//! The handshakes of OpenVPN, whose control packets carry a stream of TLS, over UDP on every port. Those over TCP are found by
//! `tls`.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::classify::Facts;
use crate::clock::has_paused;
use crate::connections::Listener;
use crate::handshake::{Carrier, Handshake};
use crate::limits::Limits;
use crate::observation::{At, Endpoint, Side};
use crate::tls::Stream;
use crate::tls::openvpn::{Kind, Order, Packet, Part};
use crate::via::Preface;

/// The memory of a tunnel and of its entry in the table, in bytes.
pub(crate) const TUNNEL_BYTES: usize = size_of::<Tunnel>();
pub(crate) const PLACE_BYTES: usize = size_of::<([Endpoint; 2], Box<Tunnel>)>();

/// The watched tunnels.
#[derive(Debug)]
pub(crate) struct Tunnels {
    limits: Limits,
    held_bytes: usize,
    tunnels: HashMap<[Endpoint; 2], Box<Tunnel>, FixedState>,
    /// Oldest first.
    order: VecDeque<[Endpoint; 2]>,
}

impl Tunnels {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            held_bytes: 0,
            tunnels: HashMap::with_hasher(FixedState::with_seed(limits.hash_seed)),
            order: VecDeque::new(),
        }
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
        if !self.tunnels.contains_key(&ends) {
            match Packet::parse_first(payload) {
                Some((packet, auth_bytes)) if packet.kind == Kind::ClientReset => {
                    self.watch(ends, auth_bytes, emit);
                }
                _ => return false,
            }
        }
        let Some(tunnel) = self.tunnels.get_mut(&ends) else { return false };
        let before = tunnel.held_bytes();
        if payload.len() == length {
            tunnel.packet(side, payload, at, emit);
        }
        self.held_bytes = self.held_bytes + tunnel.held_bytes() - before;
        while self.held_bytes > self.limits.tunnel_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest, emit);
        }
        true
    }

    /// Ends the tunnel between two endpoints, if there is one, because they begin to speak something else. What began it
    /// may have been a datagram that only looks like OpenVPN.
    pub(crate) fn leave(&mut self, from: Endpoint, to: Endpoint, emit: &mut dyn FnMut(Handshake)) {
        let ends = if from <= to { [from, to] } else { [to, from] };
        if self.tunnels.contains_key(&ends) {
            self.order.retain(|watched| *watched != ends);
            self.remove(ends, emit);
        }
    }

    /// The number of tunnels that are looked at.
    pub(crate) fn len(&self) -> usize {
        self.tunnels.len()
    }

    /// Reports the handshakes that pause for too long.
    pub(crate) fn report_paused(&mut self, now_ns: u64, emit: &mut dyn FnMut(Handshake)) {
        for ends in &self.order {
            let Some(tunnel) = self.tunnels.get_mut(ends) else { continue };
            let before = tunnel.held_bytes();
            tunnel.report_paused(now_ns, emit);
            self.held_bytes = self.held_bytes + tunnel.held_bytes() - before;
        }
    }

    /// Ends the capture: reports all remaining tunnels.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        while let Some(ends) = self.order.pop_front() {
            self.remove(ends, emit);
        }
    }

    fn watch(&mut self, ends: [Endpoint; 2], auth_bytes: usize, emit: &mut dyn FnMut(Handshake)) {
        while self.tunnels.len() >= self.limits.tunnels.max(1) {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest, emit);
        }
        self.order.push_back(ends);
        self.tunnels.insert(ends, Box::new(Tunnel::new(ends, auth_bytes)));
    }

    fn remove(&mut self, ends: [Endpoint; 2], emit: &mut dyn FnMut(Handshake)) {
        let Some(mut tunnel) = self.tunnels.remove(&ends) else { return };
        self.held_bytes -= tunnel.held_bytes();
        tunnel.finish(emit);
    }
}

/// A tunnel over UDP, with its newest handshake.
#[derive(Debug)]
struct Tunnel {
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

    /// The heap memory in use, in bytes.
    fn held_bytes(&self) -> usize {
        self.orders.iter().map(Order::held_bytes).sum::<usize>()
            + self.streams.iter().map(Stream::held_bytes).sum::<usize>()
            + self.facts.held_bytes()
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

    /// Reports the handshake, with what is known of its messages.
    fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        let Some(at) = self.last.filter(|_| !self.facts.is_reported()) else { return };
        let first = self.facts.client_side().unwrap_or(0);
        for side in [first, 1 - first] {
            let mut order = std::mem::take(&mut self.orders[side]);
            order.flush(&mut |part| self.part(side, &part, at, emit));
        }
        self.report(emit);
    }

    /// Reports the handshake if it pauses for too long.
    fn report_paused(&mut self, now_ns: u64, emit: &mut dyn FnMut(Handshake)) {
        if !self.facts.is_reported() && has_paused(self.last, now_ns) {
            self.finish(emit);
            self.last = None;
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
