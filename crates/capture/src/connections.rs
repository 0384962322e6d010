//! The TCP connections of a capture, and the handshakes on them.
//!
//! The table is bounded: the connection idle longest is reported and evicted first. A connection
//! whose handshake is complete, or that carries no TLS, keeps only its slot. A handshake that is not complete
//! is reported once its connection is closed, or idle for long, by the [clock](crate::clock) of the capture.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::certificate::Certificates;
use crate::classify::Facts;
use crate::clock::LONGEST_PAUSE_NS;
use crate::handshake::{Carrier, Handshake};
use crate::hello::{ClientHello, IssuedTicket, ServerHello};
use crate::limits::Limits;
use crate::observation::{At, Endpoint, NO_TIME, Side};
use crate::tcp::{Flow, Piece, Segment};
use crate::tls::{self, Event, Listen, Stream};
use crate::via::Preface;

const NONE: u32 = u32::MAX;

/// The time for which a closed connection is kept: segments that were captured late still count.
const CLOSED_FOR_NS: u64 = 2_000_000_000;

/// The memory of a connection's slot and of its entry in the table, in bytes.
pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();
pub(crate) const PLACE_BYTES: usize = size_of::<u32>();

/// The watched connections.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    certificates: Certificates,
    hasher: FixedState,
    /// The places of connections, by their ends.
    places: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The ends of a list of connections by last activity: idle longest, and most recent.
    oldest: u32,
    newest: u32,
    held_bytes: usize,
}

#[derive(Debug)]
struct Slot {
    older: u32,
    newer: u32,
    connection: Connection,
}

#[derive(Debug)]
struct Connection {
    ends: [Endpoint; 2],
    /// The SYN of each side.
    begins: [Begin; 2],
    phase: Phase,
}

/// The SYN of a side.
#[derive(Debug, Clone, Copy, Default)]
struct Begin {
    sequence: u32,
    was_seen: bool,
    /// True if the side has sent no byte since.
    is_last: bool,
}

impl Begin {
    fn sequence(self) -> Option<u32> {
        self.was_seen.then_some(self.sequence)
    }
}

#[derive(Debug, Default)]
enum Phase {
    /// No byte was seen.
    #[default]
    Silent,
    Watched(Box<Conversation>),
    /// Already reported, or not TLS.
    Over,
}

#[derive(Debug, Default)]
struct Conversation {
    flows: [Flow; 2],
    streams: [Stream; 2],
    preface: Preface,
    facts: Facts,
    /// The place of the last bytes of each side.
    last_bytes: [Option<At>; 2],
    /// The time of the last segment that has one, or 0.
    last_ns: u64,
    /// The sides whose streams have ended.
    has_ended: [bool; 2],
    /// The memory in use when the last segment had been read, in bytes.
    held_bytes: usize,
}

/// The certificate store and the receiver of reports.
struct Output<'a> {
    certificates: &'a mut Certificates,
    emit: &'a mut dyn FnMut(Handshake),
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            certificates: Certificates::new(limits),
            hasher: FixedState::with_seed(limits.hash_seed),
            places: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            held_bytes: 0,
        }
    }

    /// Takes a segment sent between two endpoints.
    pub(crate) fn segment(
        &mut self,
        from: Endpoint,
        to: Endpoint,
        segment: &Segment<'_>,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) {
        let (ends, side) = if from <= to { ([from, to], 0) } else { ([to, from], 1) };
        let hash = self.hasher.hash_one(ends);
        let is_it = |place: &u32| self.slots[*place as usize].connection.ends == ends;
        let place = match self.places.find(hash, is_it) {
            Some(&place) => {
                self.touch(place);
                place
            }
            None if segment.length == 0 && !segment.syn => return,
            None => self.insert(hash, ends, emit),
        };
        let Some(slot) = self.slots.get_mut(place as usize) else { return };
        let connection = &mut slot.connection;
        let before = connection.held_bytes();
        let output = &mut Output { certificates: &mut self.certificates, emit: &mut *emit };
        if connection.is_reused(side, segment) {
            connection.finish(output);
            connection.restart(side);
        }
        connection.segment(side, segment, at, &self.limits, output);
        self.held_bytes = self.held_bytes + connection.held_bytes() - before;
        while self.held_bytes > self.limits.total_bytes && self.oldest != NONE {
            self.remove_oldest(emit);
        }
    }

    /// Ends the capture: reports all remaining connections.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        while self.oldest != NONE {
            self.remove_oldest(emit);
        }
        // Their memory is for what comes next.
        (self.places, self.slots, self.free) = Default::default();
    }

    /// The number of connections that are looked at.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Reports the handshakes on which nothing more will come.
    pub(crate) fn report_ended(&mut self, now_ns: u64, emit: &mut dyn FnMut(Handshake)) {
        for Slot { connection, .. } in &mut self.slots {
            let is_over = match &connection.phase {
                Phase::Watched(conversation) => conversation.has_been_left(now_ns),
                Phase::Silent | Phase::Over => false,
            };
            if is_over {
                self.held_bytes -= connection.held_bytes();
                connection.finish(&mut Output { certificates: &mut self.certificates, emit });
            }
        }
    }

    fn insert(&mut self, hash: u64, ends: [Endpoint; 2], emit: &mut dyn FnMut(Handshake)) -> u32 {
        while self.places.len() >= self.limits.connections.clamp(1, NONE as usize) {
            self.remove_oldest(emit);
        }
        let slot = Slot { older: NONE, newer: NONE, connection: Connection::new(ends) };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).unwrap_or(NONE)
            }
        };
        let Self { hasher, places, slots, .. } = self;
        let hash_of = |place: &u32| hasher.hash_one(slots[*place as usize].connection.ends);
        places.insert_unique(hash, place, hash_of);
        self.append(place);
        place
    }

    fn remove_oldest(&mut self, emit: &mut dyn FnMut(Handshake)) {
        let place = self.oldest;
        self.unlink(place);
        let connection = &mut self.slots[place as usize].connection;
        self.held_bytes -= connection.held_bytes();
        connection.finish(&mut Output { certificates: &mut self.certificates, emit });
        let hash = self.hasher.hash_one(connection.ends);
        if let Ok(entry) = self.places.find_entry(hash, |it| *it == place) {
            entry.remove();
        }
        self.free.push(place);
    }

    fn touch(&mut self, place: u32) {
        if self.newest != place {
            self.unlink(place);
            self.append(place);
        }
    }

    fn append(&mut self, place: u32) {
        let newest = std::mem::replace(&mut self.newest, place);
        self.slots[place as usize].older = newest;
        self.slots[place as usize].newer = NONE;
        match self.slots.get_mut(newest as usize) {
            Some(slot) => slot.newer = place,
            None => self.oldest = place,
        }
    }

    fn unlink(&mut self, place: u32) {
        let Slot { older, newer, .. } = self.slots[place as usize];
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
    }
}

impl Connection {
    fn new(ends: [Endpoint; 2]) -> Self {
        Self { ends, begins: [Begin::default(); 2], phase: Phase::Silent }
    }

    /// The memory in use besides the slot, in bytes.
    fn held_bytes(&self) -> usize {
        match &self.phase {
            Phase::Watched(conversation) => conversation.held_bytes,
            Phase::Silent | Phase::Over => 0,
        }
    }

    /// Returns true if this SYN begins another connection between the same endpoints.
    fn is_reused(&self, side: Side, segment: &Segment<'_>) -> bool {
        let begin = self.begins[side].sequence();
        let is_other = begin.is_some_and(|begin| begin != segment.sequence);
        let has_spoken = !matches!(self.phase, Phase::Silent);
        if !segment.syn {
            return false;
        }
        let is_late = match &self.phase {
            Phase::Silent => true,
            Phase::Watched(conversation) => conversation.flows[side].may_begin(segment.sequence),
            Phase::Over => false,
        };
        let is_first = begin.is_none() && has_spoken && !is_late;
        is_first || (is_other && (has_spoken || !segment.ack))
    }

    /// Begins another connection between the same endpoints with this side's SYN. If the other side's
    /// SYN began it already, that stays known.
    fn restart(&mut self, side: Side) {
        let begin = self.begins[1 - side];
        *self = Self::new(self.ends);
        if begin.is_last {
            self.begins[1 - side] = Begin { is_last: false, ..begin };
        }
    }

    fn segment(
        &mut self,
        side: Side,
        segment: &Segment<'_>,
        at: At,
        limits: &Limits,
        output: &mut Output<'_>,
    ) {
        if segment.syn {
            self.begins[side] = Begin { sequence: segment.sequence, was_seen: true, is_last: true };
            if let Phase::Watched(conversation) = &mut self.phase {
                conversation.flows[side].begin(segment.sequence);
            }
        }
        if segment.length == 0 || matches!(self.phase, Phase::Over) {
            self.note(side, segment, at);
            return;
        }
        self.begins[side].is_last = false;
        if matches!(self.phase, Phase::Silent) {
            self.phase = Phase::Watched(Box::new(Conversation::after(self.begins)));
        }
        let Phase::Watched(conversation) = &mut self.phase else { return };
        conversation.segment(side, segment, at, self.ends, limits, output);
        match conversation.is_over(side, limits) {
            true => self.finish(output),
            false => conversation.held_bytes = conversation.needed_bytes(),
        }
        self.note(side, segment, at);
    }

    /// Notes that a segment came, and whether it ends a stream.
    fn note(&mut self, side: Side, segment: &Segment<'_>, at: At) {
        let Phase::Watched(conversation) = &mut self.phase else { return };
        if at.time_ns != NO_TIME {
            conversation.last_ns = at.time_ns;
        }
        if conversation.flows[side].is_ended_by(segment) {
            match segment.rst {
                true => conversation.has_ended = [true; 2],
                false => conversation.has_ended[side] = true,
            }
        }
    }

    /// Reports the handshake and forgets everything but the endpoints.
    fn finish(&mut self, output: &mut Output<'_>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        if let Phase::Watched(mut conversation) = phase {
            conversation.finish(self.ends, output);
        }
    }
}

impl Conversation {
    /// Starts a conversation after the SYNs with these sequence numbers.
    fn after(begins: [Begin; 2]) -> Self {
        let mut conversation = Self::default();
        for (flow, begin) in conversation.flows.iter_mut().zip(begins) {
            if let Some(begin) = begin.sequence() {
                flow.begin(begin);
            }
        }
        conversation
    }

    fn segment(
        &mut self,
        side: Side,
        segment: &Segment<'_>,
        at: At,
        ends: [Endpoint; 2],
        limits: &Limits,
        output: &mut Output<'_>,
    ) {
        let mut flow = std::mem::take(&mut self.flows[side]);
        flow.segment(segment, at, limits, &mut |piece, at| {
            self.observe(side, piece, at, ends, output);
        });
        self.flows[side] = flow;
    }

    fn finish(&mut self, ends: [Endpoint; 2], output: &mut Output<'_>) {
        let mut flows = std::mem::take(&mut self.flows);
        let first = self.facts.client_side().unwrap_or(0);
        for side in [first, 1 - first] {
            flows[side].flush(&mut |piece, at| self.observe(side, piece, at, ends, output));
            if let Some(at) = self.last_bytes[side] {
                self.listen(side, at, ends, output, |stream, listener| stream.end(listener));
            }
        }
        if self.facts.has_hello() {
            (output.emit)(self.facts.report(Carrier::Tls, ends));
        }
    }

    fn observe(
        &mut self,
        side: Side,
        piece: Piece<'_>,
        at: At,
        ends: [Endpoint; 2],
        output: &mut Output<'_>,
    ) {
        let expected = self.streams[1 - side].is_tls();
        self.listen(side, at, ends, output, |stream, listener| match piece {
            Piece::Bytes(bytes) => stream.bytes(bytes, expected, listener),
            Piece::Gap(length) => stream.gap(length, listener),
            Piece::Cut(length) => stream.cut(length, listener),
        });
        if matches!(piece, Piece::Bytes(_)) {
            self.last_bytes[side] = Some(at);
        }
    }

    /// Lets a side's stream tell its events.
    fn listen(
        &mut self,
        side: Side,
        at: At,
        ends: [Endpoint; 2],
        output: &mut Output<'_>,
        take: impl FnOnce(&mut Stream, &mut Listener<'_>),
    ) {
        let mut listener = Listener {
            facts: &mut self.facts,
            carrier: Carrier::Tls,
            side,
            at,
            ends,
            preface: &mut self.preface,
            certificates: Some(output.certificates),
            emit: output.emit,
        };
        take(&mut self.streams[side], &mut listener);
    }

    /// Returns true if TLS has begun, and nothing more will come: the connection is closed, or idle for long.
    fn has_been_left(&self, now_ns: u64) -> bool {
        let idle_ns = if self.last_ns > 0 { now_ns.saturating_sub(self.last_ns) } else { 0 };
        let most_ns = if self.has_ended == [true; 2] { CLOSED_FOR_NS } else { LONGEST_PAUSE_NS };
        idle_ns >= most_ns && (self.facts.has_hello() || self.streams.iter().any(Stream::is_tls))
    }

    fn is_over(&self, side: Side, limits: &Limits) -> bool {
        let stream = &self.streams[side];
        self.facts.is_complete() || (!stream.is_tls() && stream.skipped > limits.search_bytes)
    }

    /// The memory in use, in bytes.
    fn needed_bytes(&self) -> usize {
        size_of::<Self>()
            + self.streams.iter().map(Stream::held_bytes).sum::<usize>()
            + self.flows.iter().map(Flow::held_bytes).sum::<usize>()
            + self.facts.held_bytes()
    }
}

/// Turns the events of a stream into facts.
pub(crate) struct Listener<'a> {
    pub(crate) facts: &'a mut Facts,
    pub(crate) carrier: Carrier,
    pub(crate) side: Side,
    pub(crate) at: At,
    pub(crate) ends: [Endpoint; 2],
    pub(crate) preface: &'a mut Preface,
    /// `None` where certificates are encrypted.
    pub(crate) certificates: Option<&'a mut Certificates>,
    pub(crate) emit: &'a mut dyn FnMut(Handshake),
}

impl Listener<'_> {
    fn client_hello(&mut self, hello: ClientHello) {
        if self.facts.begins_another(&hello) {
            if self.is_in_datagram_of(self.facts.hello_frames()[0]) {
                return;
            }
            if !self.facts.is_reported() {
                (self.emit)(self.facts.report(self.carrier, self.ends));
            }
            self.facts.begin_next(self.side);
        }
        self.facts.client_hello(self.side, hello, self.at, self.preface.via());
    }

    fn server_hello(&mut self, hello: ServerHello) {
        if self.facts.is_of_another(self.side, &hello) {
            if self.is_in_datagram_of(self.facts.hello_frames()[1]) {
                return;
            }
            if !self.facts.is_reported() {
                (self.emit)(self.facts.report(self.carrier, self.ends));
            }
            self.facts.begin_next(self.side);
        }
        self.facts.server_hello(self.side, hello, self.at, self.preface.via());
    }

    /// Returns true for a hello in the QUIC datagram of an earlier one. A datagram is of one handshake.
    fn is_in_datagram_of(&self, frame: Option<u64>) -> bool {
        self.carrier == Carrier::Quic && frame == Some(self.at.frame)
    }

    fn hello(&mut self, kind: u8, length: u32, body: &[u8]) {
        match kind {
            tls::CLIENT_HELLO => {
                if let Some(hello) = ClientHello::parse(body, length) {
                    self.client_hello(hello);
                }
            }
            tls::SERVER_HELLO => {
                if let Some(hello) = ServerHello::parse(body, length) {
                    self.server_hello(hello);
                }
            }
            _ => self.facts.retry_request(),
        }
    }

    fn message(&mut self, kind: u8, length: u32, body: &[u8]) {
        self.facts.message(self.side, kind, length, self.at);
        match (kind, &mut self.certificates) {
            (tls::NEW_SESSION_TICKET, _) => {
                self.facts.new_session_ticket(self.side, IssuedTicket::parse(body));
            }
            (tls::CERTIFICATE, Some(certificates)) if self.facts.wants_certificate(self.side) => {
                self.facts.certificate(certificates.leaf(body, length));
            }
            _ => {}
        }
    }
}

impl Listen for Listener<'_> {
    fn event(&mut self, event: Event<'_>) -> bool {
        match event {
            Event::Hello(kind, length, body) => self.hello(kind, length, body),
            Event::Sslv2Hello(bytes) => {
                if let Some(hello) = ClientHello::parse_sslv2(bytes) {
                    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    self.facts.record(self.side, tls::HANDSHAKE, length);
                    self.client_hello(hello);
                }
            }
            Event::Record(kind, length) => self.facts.record(self.side, kind, length),
            Event::Skipped(bytes) => self.preface.observe(self.side, bytes),
            Event::Tunnelled => self.preface.tunnelled(),
            Event::Proxied(client) => {
                self.preface.proxied();
                self.facts.proxied(client);
            }
            Event::Message(kind, length, body) => self.message(kind, length, body),
            Event::ChangeCipherSpec => {
                if !self.facts.is_retrying() {
                    self.facts.change_cipher_spec(self.side, self.at);
                }
            }
            Event::ApplicationData => self.facts.application_data(self.side, self.at),
            Event::Hole => self.facts.hole(self.side),
        }
        self.facts.is_retrying()
    }
}
