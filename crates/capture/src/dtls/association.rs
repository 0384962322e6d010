//! The handshake of one DTLS association, as far as it was seen.
//!
//! Datagrams are lost and overtake each other, so that what follows what is told by the numbers of the
//! records: a handshake is resumed only where every record between a side's hello and its
//! ChangeCipherSpec was read.

use super::messages::{Message, Messages};
use super::record::{CHANGE_CIPHER_SPEC, Fragment, Plain, Record, WITH_CONNECTION_ID};
use crate::bytes::Bytes;
use crate::classify::Facts;
use crate::copies::Copies;
use crate::handshake::{Carrier, Handshake};
use crate::hello::{ClientHello, IssuedTicket, ServerHello};
use crate::observation::{At, Endpoint, Side};
use crate::table::Watched;
use crate::tls::{APPLICATION_DATA, CLIENT_HELLO, HANDSHAKE, NEW_SESSION_TICKET, SERVER_HELLO};

/// The most records in one datagram.
const MOST_RECORDS: usize = 32;

#[derive(Debug)]
pub(crate) struct Association {
    ends: [Endpoint; 2],
    facts: Facts,
    flights: [Flight; 2],
    /// The last datagram.
    last: Option<At>,
    copies: [Copies; 2],
}

/// The records that one side sent in the clear.
#[derive(Debug, Default)]
struct Flight {
    /// The number of the first record with a hello.
    hello: Option<u64>,
    /// A bit for each record from that one on that was read.
    read: u128,
    /// The first ChangeCipherSpec after it.
    change: Option<(u64, At)>,
    messages: Messages,
}

impl Flight {
    /// Notes a record with a hello.
    fn hello(&mut self, number: u64) {
        let first = *self.hello.get_or_insert(number);
        if let Some(earlier) = first.checked_sub(number) {
            let places = u32::try_from(earlier).unwrap_or(u32::MAX);
            self.read = self.read.checked_shl(places).unwrap_or(0);
            self.hello = Some(number);
        }
    }

    /// Notes a record that was read to its end.
    fn read(&mut self, number: u64) {
        let place = self.hello.and_then(|hello| number.checked_sub(hello));
        if let Some(place @ 0..=127) = place {
            self.read |= 1 << place;
        }
    }

    /// Returns true if every record from the hello on to this one was read.
    fn is_whole_until(&self, number: u64) -> bool {
        let place = self.hello.and_then(|hello| number.checked_sub(hello));
        place.is_some_and(|place| u64::from(self.read.trailing_ones()) >= place)
    }
}

impl Association {
    pub(super) fn new(ends: [Endpoint; 2]) -> Self {
        Self {
            ends,
            facts: Facts::default(),
            flights: Default::default(),
            last: None,
            copies: Default::default(),
        }
    }

    /// Takes a datagram of `length` bytes.
    pub(super) fn datagram(
        &mut self,
        side: Side,
        mut payload: &[u8],
        length: usize,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) {
        self.last = Some(at);
        let is_copy = self.copies[side].is_one(payload, length);
        let mut has_finished = false;
        for _ in 0..MOST_RECORDS {
            let Some((record, rest)) = Record::parse(payload) else { break };
            match record {
                Record::Plain(record) => self.plain(side, &record, at, emit),
                Record::Encrypted(None) => self.facts.application_data(side, at),
                Record::Encrypted(Some(APPLICATION_DATA)) => {
                    self.facts.application_data(side, at);
                    // Behind the Finished message, even if that was lost.
                    if !has_finished {
                        self.facts.has_finished(side);
                    }
                }
                // The first message under keys. A connection ID hides its type.
                Record::Encrypted(Some(HANDSHAKE | WITH_CONNECTION_ID)) => has_finished = true,
                Record::Encrypted(Some(_)) => {}
            }
            payload = rest;
        }
        if !is_copy {
            self.facts.datagram(side, length);
        }
        if has_finished {
            self.facts.has_finished(side);
        }
        if self.facts.is_complete() {
            self.report(emit);
        }
    }

    fn report(&mut self, emit: &mut dyn FnMut(Handshake)) {
        if self.facts.has_hello() && !self.facts.is_reported() {
            emit(self.facts.report(Carrier::Dtls, self.ends));
            self.facts.reported();
        }
    }

    /// Begins another handshake between the same ends with this record of `side`.
    fn begin_anew(&mut self, side: Side, number: u64, emit: &mut dyn FnMut(Handshake)) {
        self.report(emit);
        let (last, copies) = (self.last, std::mem::take(&mut self.copies));
        *self = Self { last, copies, ..Self::new(self.ends) };
        self.flights[side].hello = Some(number);
    }

    fn plain(&mut self, side: Side, record: &Plain<'_>, at: At, emit: &mut dyn FnMut(Handshake)) {
        let Plain { kind, number, body, is_whole } = *record;
        let mut bytes = Bytes(body);
        let mut is_read = is_whole;
        if kind == HANDSHAKE {
            while !bytes.0.is_empty() {
                let Some(fragment) = Fragment::parse(&mut bytes) else {
                    is_read = false;
                    break;
                };
                self.fragment(side, &fragment, number, at, emit);
            }
        }
        let flight = &mut self.flights[side];
        if kind == CHANGE_CIPHER_SPEC && flight.hello.is_some_and(|hello| hello < number) {
            let (first, seen) = flight.change.unwrap_or((number, at));
            flight.change = Some((first.min(number), seen));
            self.facts.hole(side);
            self.facts.change_cipher_spec(side, at);
        }
        let flight = &mut self.flights[side];
        if is_read {
            flight.read(number);
        }
        if let Some((change, at)) = flight.change
            && flight.is_whole_until(change)
        {
            self.facts.begin_flight(side);
            self.facts.change_cipher_spec(side, at);
        }
    }

    fn fragment(
        &mut self,
        side: Side,
        fragment: &Fragment<'_>,
        number: u64,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) {
        let is_hello = matches!(fragment.kind, CLIENT_HELLO | SERVER_HELLO);
        if is_hello && self.is_of_another(side, fragment) {
            self.begin_anew(side, number, emit);
        }
        let flight = &mut self.flights[side];
        if is_hello {
            flight.hello(number);
        }
        // What comes before the hello is not known to belong to it.
        if flight.hello.is_none_or(|hello| number < hello) {
            return;
        }
        let is_kept = is_hello || fragment.kind == NEW_SESSION_TICKET;
        if is_kept {
            if let Some(message) = flight.messages.add(fragment) {
                self.message(side, &message, at);
            }
            return;
        }
        match flight.is_whole_until(number) {
            true => self.facts.begin_flight(side),
            false => self.facts.hole(side),
        }
        self.facts.message(side, fragment.kind, fragment.length, at);
    }

    /// Returns true if the beginning of this hello shows that it belongs to another handshake.
    fn is_of_another(&self, side: Side, fragment: &Fragment<'_>) -> bool {
        let Fragment { kind, length, offset: 0, body, .. } = *fragment else { return false };
        match kind {
            CLIENT_HELLO => ClientHello::parse_dtls(body, length)
                .is_some_and(|hello| self.facts.begins_another(&hello)),
            _ => ServerHello::parse(body, length)
                .is_some_and(|hello| self.facts.is_of_another(side, &hello)),
        }
    }

    fn message(&mut self, side: Side, Message { kind, length, body }: &Message, at: At) {
        match *kind {
            CLIENT_HELLO => {
                if let Some(hello) = ClientHello::parse_dtls(body, *length) {
                    self.facts.client_hello(side, hello, at, None);
                }
            }
            SERVER_HELLO => {
                if let Some(hello) = ServerHello::parse(body, *length) {
                    self.facts.server_hello(side, hello, at, None);
                }
            }
            _ => {
                self.facts.message(side, *kind, *length, at);
                self.facts.new_session_ticket(side, IssuedTicket::parse(body));
            }
        }
        self.facts.hole(side);
    }
}

impl Watched for Association {
    fn held_bytes(&self) -> usize {
        self.flights.iter().map(|flight| flight.messages.held_bytes()).sum::<usize>()
            + self.facts.held_bytes()
    }

    fn newest(&mut self) -> (&Facts, &mut Option<At>) {
        (&self.facts, &mut self.last)
    }

    fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        let Some(at) = self.last.filter(|_| !self.facts.is_reported()) else { return };
        for side in [0, 1] {
            for message in self.flights[side].messages.take_begun() {
                self.message(side, &message, at);
            }
        }
        self.report(emit);
    }
}
