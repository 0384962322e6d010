//! The hellos in QUIC's Initial packets.
//!
//! The keys of Initial packets derive from the client's first connection ID and a public salt per
//! version (RFC 9001, 5.2), so any observer can read the ClientHello and the ServerHello, but
//! nothing more. That is enough to distinguish full from resumed handshakes. A packet that does not
//! decrypt is not QUIC.
//!
//! A connection is known by its connection IDs, so that many may share a socket, and by its addresses
//! only where an ID is empty. `routes` finds it, `connection` holds what was seen of it.
//!
//! One handshake goes on in another connection where the server asks for it: after a Retry, whose ID
//! gives new keys, and after a Version Negotiation. Where the Retry is not in the capture, the random of
//! the repeated ClientHello tells. The server may also answer in another version, with keys of that
//! version (RFC 9369, 4.1).

mod connection;
mod crypto;
mod keys;
mod packet;
mod routes;

use std::collections::{BTreeMap, VecDeque};

use crate::handshake::Handshake;
use crate::limits::Limits;
use crate::observation::{At, Endpoint};
use connection::{CLIENT, Connection, SERVER};
use keys::{Keys, VersionParameters};
use packet::{Content, Id, Initial, Packet};
use routes::{Path, Place, Routes};

/// The number of packets inspected per datagram.
const MOST_COALESCED: usize = 8;

/// The memory of a connection, of its entry in the table, and of its routes, in bytes.
pub(crate) const CONNECTION_BYTES: usize = size_of::<Connection>() + connection::OUTSIDE_BYTES;
pub(crate) const ENTRY_BYTES: usize = 3 * size_of::<(u64, Box<Connection>)>();
pub(crate) const ROUTE_BYTES: usize = routes::ROUTE_BYTES;
pub(crate) const MOST_ROUTES: usize = routes::MOST_ROUTES;

/// The bytes kept of datagrams that came before the ClientHello whose keys open them, as they do where
/// two directions were captured by two clocks.
pub(crate) const EARLY_BYTES: usize = 256 << 10;
/// The most of these datagrams.
const MOST_EARLY: usize = 64;

/// The watched QUIC connections.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    held_bytes: usize,
    /// By number, and so by age.
    connections: BTreeMap<u64, Box<Connection>>,
    begun: u64,
    routes: Routes,
    /// Oldest first.
    early: VecDeque<Early>,
    early_bytes: usize,
}

/// A datagram that no known key opens.
#[derive(Debug)]
struct Early {
    path: Path,
    payload: Box<[u8]>,
    length: usize,
    at: At,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            held_bytes: 0,
            connections: BTreeMap::new(),
            begun: 0,
            routes: Routes::new(limits.hash_seed),
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
        let path = Path { from, to };
        let Some((first, rest)) = Packet::parse(payload, length > payload.len()) else { return };
        let begun = self.begun;
        let Some(place) = self.packet(path, &first, at, emit) else {
            if matches!(first.content, Content::Initial(..)) {
                self.keep(Early { path, payload: payload.into(), length, at });
            }
            return;
        };
        self.coalesced(path, first.to, rest, at, emit);
        if let Some(connection) = self.connections.get_mut(&place.number) {
            connection.datagram(place.sender, (payload, length), at, emit);
            let [before, now] = connection.count_bytes();
            self.held_bytes = self.held_bytes + now - before;
        }
        while self.held_bytes > self.limits.quic_bytes {
            let Some((&oldest, _)) = self.connections.first_key_value() else { break };
            self.remove(oldest, emit);
        }
        if self.begun > begun {
            self.take_early(self.begun, emit);
        }
    }

    /// Takes the packets behind the first one of a datagram. Those with another destination are ignored, as receivers
    /// do (RFC 9000, 12.2).
    fn coalesced(
        &mut self,
        path: Path,
        to: Id<'_>,
        mut rest: &[u8],
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) {
        for _ in 1..MOST_COALESCED {
            let Some((packet, next)) = Packet::parse(rest, false) else { return };
            if packet.to == to {
                self.packet(path, &packet, at, emit);
            }
            rest = next;
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

    /// Takes the datagrams that came before the first one of this connection.
    fn take_early(&mut self, number: u64, emit: &mut dyn FnMut(Handshake)) {
        let routes = &self.routes;
        let is_of = |early: &Early| {
            let first = Packet::parse(&early.payload, early.length > early.payload.len());
            let place = first.and_then(|(packet, _)| routes.find(early.path, packet.to));
            place.is_some_and(|place| place.number == number)
        };
        if !self.early.iter().any(is_of) {
            return;
        }
        let (taken, left): (VecDeque<_>, _) = self.early.drain(..).partition(is_of);
        self.early = left;
        for Early { path: Path { from, to }, payload, length, at } in taken {
            self.early_bytes -= payload.len();
            self.datagram(from, to, &payload, length, at, emit);
        }
    }

    /// Takes a packet. Returns its connection and its sender, or `None` if they are not known.
    fn packet(
        &mut self,
        path: Path,
        packet: &Packet<'_>,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) -> Option<Place> {
        let known = self.routes.find(path, packet.to);
        match &packet.content {
            Content::Initial(parameters, initial) => {
                return self.initial(path, packet, *parameters, initial, at, emit);
            }
            Content::CutInitial(parameters) if known.is_none() => {
                let keys = Keys::both(*parameters, packet.to)?;
                let number = self.watch(path, packet, *parameters, keys, emit);
                return Some(Place { number, sender: CLIENT });
            }
            _ => {}
        }
        let place = known.or_else(|| self.routes.find_anywhere(packet.to))?;
        let connection = self.connections.get_mut(&place.number)?;
        match packet.content {
            Content::Handshake => connection.facts.application_data(place.sender, at),
            Content::Retry if place.sender == SERVER => connection.facts.expect_repeated_hello(),
            Content::VersionNegotiation if place.sender == SERVER => {
                connection.refuse();
                self.routes.refused(connection, place.number);
            }
            _ => {}
        }
        if place.sender == SERVER {
            self.routes.add(connection, place.number, SERVER, packet.from);
        }
        Some(place)
    }

    fn initial(
        &mut self,
        path: Path,
        packet: &Packet<'_>,
        parameters: VersionParameters,
        initial: &Initial<'_>,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) -> Option<Place> {
        let known = self.routes.find(path, packet.to);
        let known =
            known.filter(|place| self.opened(*place, packet, parameters, initial, at, emit));
        let place = known.or_else(|| {
            // The first flight of a connection, also of one that a Retry has begun anew.
            let keys = Keys::both(parameters, packet.to)?;
            let plain = keys[CLIENT].open(initial)?;
            let number = self.begin(path, packet, parameters, keys, emit);
            let connection = self.connections.get_mut(&number)?;
            connection.frames(CLIENT, &plain, at, emit);
            Some(Place { number, sender: CLIENT })
        });
        let place = place.or_else(|| {
            let place = self.routes.find_anywhere(packet.to)?;
            self.opened(place, packet, parameters, initial, at, emit).then_some(place)
        })?;
        self.recognise(place, emit);
        Some(place)
    }

    /// Reads an Initial of a known connection. Returns false if the connection's keys do not open it.
    fn opened(
        &mut self,
        Place { number, sender }: Place,
        packet: &Packet<'_>,
        parameters: VersionParameters,
        initial: &Initial<'_>,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        let Some(plain) = connection.open(sender, parameters, initial) else { return false };
        self.routes.add(connection, number, sender, packet.from);
        connection.frames(sender, &plain, at, emit);
        true
    }

    /// Begins a connection, or begins one anew whose server sent a Retry.
    fn begin(
        &mut self,
        path: Path,
        packet: &Packet<'_>,
        parameters: VersionParameters,
        keys: [Keys; 2],
        emit: &mut dyn FnMut(Handshake),
    ) -> u64 {
        if let Some(Place { number, sender: CLIENT }) = self.routes.find(path, packet.to)
            && let Some(connection) = self.connections.get_mut(&number)
        {
            connection.begin_anew(packet.to, parameters, keys);
            return number;
        }
        if let Some(refused) = self.routes.take_refused(path)
            && self.is_unanswered(refused)
        {
            self.forget(refused);
        }
        self.watch(path, packet, parameters, keys, emit)
    }

    /// Starts watching a connection. Returns its number.
    fn watch(
        &mut self,
        path: Path,
        packet: &Packet<'_>,
        parameters: VersionParameters,
        keys: [Keys; 2],
        emit: &mut dyn FnMut(Handshake),
    ) -> u64 {
        while self.connections.len() >= self.limits.quic_connections.max(1) {
            let Some((&oldest, _)) = self.connections.first_key_value() else { break };
            self.remove(oldest, emit);
        }
        self.begun += 1;
        let ends = [path.from, path.to];
        let mut connection = Box::new(Connection::new(ends, packet.to, parameters, keys));
        self.routes.add(&mut connection, self.begun, SERVER, packet.to);
        self.routes.add(&mut connection, self.begun, CLIENT, packet.from);
        self.connections.insert(self.begun, connection);
        self.begun
    }

    /// Joins a connection with an earlier one that began with the same ClientHello, between the same
    /// ends, and was not answered: the server sent a Retry that the capture lacks.
    fn recognise(&mut self, Place { number, sender }: Place, emit: &mut dyn FnMut(Handshake)) {
        let Some(connection) = self.connections.get_mut(&number).filter(|_| sender == CLIENT)
        else {
            return;
        };
        let Some(random) = connection.new_random() else { return };
        let Some(before) = self.routes.greeted(connection, number, &random) else { return };
        if before == number || !self.is_unanswered(before) {
            return;
        }
        let Some(before) = self.forget(before) else { return };
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.facts.follow(before.facts);
            connection.report_if_complete(emit);
        }
    }

    fn is_unanswered(&self, number: u64) -> bool {
        let connection = self.connections.get(&number);
        connection.is_some_and(|it| !it.facts.is_answered() && !it.facts.is_reported())
    }

    /// The number of connections that are looked at.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Reports the handshakes that pause for too long.
    pub(crate) fn report_paused(&mut self, now_ns: u64, emit: &mut dyn FnMut(Handshake)) {
        for connection in self.connections.values_mut() {
            if connection.report_paused(now_ns, emit) {
                let [before, now] = connection.count_bytes();
                self.held_bytes = self.held_bytes + now - before;
            }
        }
    }

    /// Ends the capture: reports all remaining connections.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        while let Some((&oldest, _)) = self.connections.first_key_value() {
            self.remove(oldest, emit);
        }
        self.early.clear();
        self.early_bytes = 0;
    }

    fn remove(&mut self, number: u64, emit: &mut dyn FnMut(Handshake)) {
        if let Some(mut connection) = self.forget(number) {
            connection.finish(emit);
        }
    }

    /// Stops watching a connection without a report.
    fn forget(&mut self, number: u64) -> Option<Box<Connection>> {
        let connection = self.connections.remove(&number)?;
        self.held_bytes -= connection.counted_bytes();
        self.routes.remove(&connection, number);
        Some(connection)
    }
}
