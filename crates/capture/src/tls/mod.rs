//! Records and handshake messages in one direction of a stream.
//!
//! A [`Stream`] is fed pieces of any size. It keeps only unfinished hellos, tickets and
//! certificates: of other messages the type and the length are enough. It searches for the first
//! record, so that it finds TLS after STARTTLS, CONNECT or SOCKS too.
//!
//! A message counts once its record is complete, or as far as it was captured if the rest is missing. A
//! ClientHello counts at the end of its stream, too.
//! After a gap the stream resumes at the next segment that begins with a record. Where the capture
//! truncated a segment, the captured part counts, and the record's length gives the start of the next
//! record. Wherever a message may have been missed, the listener is told of a hole.
//!
//! Behind a hole a handshake record may be encrypted. It counts only if whole messages fill it
//! exactly, which encrypted bytes do not.

mod begin;
mod message;
pub(crate) mod openvpn;
mod tds;

use std::net::SocketAddr;

use crate::limits::LARGEST_FLIGHT_BYTES;
use crate::proxy::{self, Header};
use crate::via::request_length;
use begin::{Verdict, is_any_record, is_first_record, is_sslv2_hello};
pub(crate) use message::Message;
use message::{collect, is_filled_by_messages};
use openvpn::Framed;

pub(crate) const CLIENT_HELLO: u8 = 1;
pub(crate) const SERVER_HELLO: u8 = 2;
pub(crate) const HELLO_RETRY_REQUEST: u8 = 6;

pub(crate) const NEW_SESSION_TICKET: u8 = 4;
pub(crate) const CERTIFICATE: u8 = 11;

const HELLO_REQUEST: u8 = 0;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;
const HEARTBEAT: u8 = 24;
/// The type given to a record whose remainder cannot be parsed.
const SKIPPED: u8 = 0;

const RECORD_HEADER_BYTES: usize = 5;
const LARGEST_RECORD: u16 = (1 << 14) + 2048;
/// The most bytes held while it is unclear if a record begins.
const HOLD_BYTES: usize = 512;

/// A part of a TLS stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event<'a> {
    /// A ClientHello, ServerHello or HelloRetryRequest: type, length, and the captured part.
    Hello(u8, u32, &'a [u8]),
    /// A ClientHello in SSL 2 format.
    Sslv2Hello(&'a [u8]),
    /// Any other message: type, length, and the kept part of a ticket or a certificate.
    Message(u8, u32, &'a [u8]),
    /// The start of a record: type, and length including its header.
    Record(u8, u32),
    /// Bytes that are not TLS.
    Skipped(&'a [u8]),
    /// The first packet of an OpenVPN tunnel.
    Tunnelled,
    /// A PROXY header, with the client it names.
    Proxied(Option<SocketAddr>),
    ChangeCipherSpec,
    ApplicationData,
    /// Messages may be missing here.
    Hole,
}

/// A receiver of the events in a stream.
pub(crate) trait Listen {
    /// Handles an event. Returns true while a HelloRetryRequest is unanswered: handshake messages
    /// then stay readable after a ChangeCipherSpec.
    fn event(&mut self, event: Event<'_>) -> bool;
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Search,
    Header,
    Body,
    Lost,
    /// Too much is missing: what follows does not belong to the handshake.
    Ended,
}

/// One direction of a connection that may carry TLS.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    state: State,
    header: [u8; RECORD_HEADER_BYTES],
    header_length: u8,
    kind: u8,
    left: u16,
    encrypted: bool,
    /// True once the first bytes were a PROXY header.
    is_proxied: bool,
    /// The packets in which the records lie, in TDS.
    packets: Option<tds::Packets>,
    /// The packets in which the records lie, in OpenVPN.
    tunnel: Option<Box<Framed>>,
    /// True if a change to encryption may have been missed.
    is_doubtful: bool,
    message: Message,
    /// Messages in the unfinished record.
    deferred: Vec<Deferred>,
    /// Bytes whose beginning may or may not be TLS, or a record that may be encrypted.
    hold: Vec<u8>,
    /// Bytes that were not TLS.
    pub(crate) skipped: u32,
}

impl Stream {
    pub(crate) fn held_bytes(&self) -> usize {
        let deferred = self.deferred.iter().map(|deferred| match deferred {
            Deferred::Hello(_, _, body) | Deferred::Message(_, _, body) => body.capacity(),
        });
        self.hold.capacity()
            + self.message.held_bytes()
            + self.deferred.capacity() * size_of::<Deferred>()
            + deferred.sum::<usize>()
            + self.tunnel.as_ref().map_or(0, |it| size_of::<Framed>() + it.held_bytes())
    }

    /// Returns true once a record was seen.
    pub(crate) fn is_tls(&self) -> bool {
        self.state != State::Search
    }

    /// Takes the next bytes of the stream. `expected` is true if the other side already speaks TLS.
    pub(crate) fn bytes(&mut self, bytes: &[u8], expected: bool, listener: &mut impl Listen) {
        match (&self.packets, &self.tunnel) {
            (Some(_), _) => self.packed(bytes, expected, listener),
            (None, Some(_)) => self.tunnelled(bytes, expected, listener),
            (None, None) => self.unpacked(bytes, expected, listener),
        }
    }

    /// Takes bytes in packets of OpenVPN.
    fn tunnelled(&mut self, mut bytes: &[u8], expected: bool, listener: &mut impl Listen) {
        let Some(mut tunnel) = self.tunnel.take() else { return };
        while let Some(part) = tunnel.next(&mut bytes) {
            self.unpacked(&part, expected, listener);
        }
        self.tunnel = Some(tunnel);
    }

    /// Takes bytes in packets of TDS.
    fn packed(&mut self, mut bytes: &[u8], expected: bool, listener: &mut impl Listen) {
        while let Some(packets) = &mut self.packets {
            match packets.next(bytes) {
                tds::Part::Tls(part, rest) => {
                    self.unpacked(part, expected, listener);
                    bytes = rest;
                }
                tds::Part::Over(rest) => {
                    self.packets = None;
                    self.unpacked(rest, expected, listener);
                }
                tds::Part::Broken => {
                    self.packets = None;
                    self.lose(listener);
                }
                tds::Part::None => return,
            }
        }
    }

    fn unpacked(&mut self, bytes: &[u8], expected: bool, listener: &mut impl Listen) {
        match self.state {
            State::Search => self.search(bytes, expected, listener),
            State::Lost => {
                if is_any_record(bytes) == Verdict::Record {
                    self.begin_header();
                    self.records(bytes, listener);
                }
            }
            State::Ended => {}
            State::Header | State::Body => self.records(bytes, listener),
        }
    }

    /// Notes that segments with `length` bytes are missing. The rest of their record is lost, and so
    /// is everything up to the next segment that begins with a record.
    pub(crate) fn gap(&mut self, length: u32, listener: &mut impl Listen) {
        self.hold.clear();
        (self.packets, self.tunnel) = (None, None);
        self.tell_deferred(listener);
        if self.state == State::Body && !self.encrypted {
            self.message.cut(u32::MAX, listener);
        }
        self.message = Message::default();
        if self.state != State::Search {
            self.lose(listener);
            if length > LARGEST_FLIGHT_BYTES {
                self.state = State::Ended;
            }
        }
    }

    /// Notes that nothing more will come: what is there of an unfinished ClientHello counts.
    pub(crate) fn end(&mut self, listener: &mut impl Listen) {
        if self.state == State::Body && !self.encrypted && self.message.is_client_hello() {
            self.message.cut(u32::MAX, listener);
        }
    }

    /// Notes that the next record's place is unknown.
    fn lose(&mut self, listener: &mut impl Listen) {
        self.state = State::Lost;
        self.is_doubtful = true;
        listener.event(Event::Hole);
    }

    /// Notes that the capture truncated a segment by `length` bytes.
    pub(crate) fn cut(&mut self, length: u32, listener: &mut impl Listen) {
        self.tell_deferred(listener);
        if self.packets.take().is_some() || self.tunnel.take().is_some() {
            // The place of the next packet is unknown.
            return self.gap(length, listener);
        }
        match self.state {
            State::Search => self.hold.clear(),
            State::Lost | State::Ended => {}
            State::Header => self.lose(listener),
            State::Body => {
                if self.kind == HANDSHAKE && !self.encrypted {
                    let is_followed = !self.is_doubtful
                        && self.message.header_length == 4
                        && length <= self.message.left;
                    self.hold.clear();
                    self.message.cut(length, listener);
                    if !is_followed {
                        self.kind = SKIPPED;
                        listener.event(Event::Hole);
                    }
                }
                match u16::try_from(length).ok().and_then(|gap| self.left.checked_sub(gap)) {
                    Some(left) => {
                        self.left = left;
                        if left == 0 {
                            self.begin_header();
                        }
                    }
                    None => {
                        self.message = Message::default();
                        self.lose(listener);
                    }
                }
            }
        }
    }

    fn search(&mut self, bytes: &[u8], expected: bool, listener: &mut impl Listen) {
        let mut held = std::mem::take(&mut self.hold);
        if !held.is_empty() {
            let before = held.len();
            held.extend_from_slice(bytes);
            if !self.searched(&held, expected, listener) {
                return;
            }
            held.truncate(before);
            self.skip(&held, listener);
        }
        if self.searched(bytes, expected, listener) {
            self.skip(bytes, listener);
        }
    }

    fn skip(&mut self, bytes: &[u8], listener: &mut impl Listen) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.skipped = self.skipped.saturating_add(length);
        listener.event(Event::Skipped(bytes));
    }

    /// Handles bytes that may be TLS. Returns true if they are not.
    fn searched(&mut self, bytes: &[u8], expected: bool, listener: &mut impl Listen) -> bool {
        if self.skipped == 0 && !self.is_proxied {
            match proxy::header(bytes) {
                Header::No => {}
                Header::Unclear if bytes.len() > HOLD_BYTES => return true,
                Header::Unclear => {
                    self.hold = bytes.to_vec();
                    return false;
                }
                Header::Found(length, client) => {
                    self.is_proxied = true;
                    listener.event(Event::Proxied(client));
                    return self.searched(&bytes[length..], expected, listener);
                }
            }
        }
        if let Some((request, rest)) = split_request(bytes) {
            self.skip(request, listener);
            return !rest.is_empty() && self.searched(rest, expected, listener);
        }
        if let Some(tunnel) = Framed::beginning(bytes).filter(|_| self.skipped == 0) {
            self.tunnel = Some(Box::new(tunnel));
            listener.event(Event::Tunnelled);
            self.tunnelled(bytes, expected, listener);
            return false;
        }
        if tds::wraps_hello(bytes) {
            self.packets = Some(tds::Packets::default());
            self.packed(bytes, expected, listener);
            return false;
        }
        let verdict = match is_first_record(bytes) {
            Verdict::No if expected => {
                self.is_doubtful = true;
                is_any_record(bytes)
            }
            Verdict::No => is_sslv2_hello(bytes),
            verdict => verdict,
        };
        match verdict {
            Verdict::No => return true,
            Verdict::Unclear if bytes.len() > HOLD_BYTES => return true,
            Verdict::Unclear => self.hold = bytes.to_vec(),
            Verdict::Record => {
                self.begin_header();
                self.records(bytes, listener);
            }
            Verdict::Sslv2Hello(length) => {
                let (hello, rest) = bytes.split_at(length.min(bytes.len()));
                self.begin_header();
                listener.event(Event::Sslv2Hello(hello));
                self.records(rest, listener);
            }
        }
        false
    }

    fn begin_header(&mut self) {
        self.state = State::Header;
        self.header_length = 0;
    }

    fn records(&mut self, mut bytes: &[u8], listener: &mut impl Listen) {
        while !bytes.is_empty() {
            match self.state {
                State::Header => bytes = self.record_header(bytes, listener),
                State::Body => {
                    let (body, rest) = bytes.split_at(bytes.len().min(self.left.into()));
                    if self.kind == HANDSHAKE && !self.encrypted {
                        match self.is_doubtful {
                            true => self.doubtful(body, listener),
                            false => self.handshake(body, listener),
                        }
                    }
                    self.left -= u16::try_from(body.len()).unwrap_or(self.left);
                    if self.left == 0 {
                        self.begin_header();
                    }
                    bytes = rest;
                }
                State::Search | State::Lost | State::Ended => return,
            }
        }
    }

    /// Takes handshake messages, and reports them once their record is complete.
    fn handshake(&mut self, body: &[u8], listener: &mut impl Listen) {
        let is_whole = body.len() == usize::from(self.left);
        let is_readable = match is_whole {
            true => {
                self.tell_deferred(listener);
                self.message.feed(body, listener)
            }
            false => self.message.feed(body, &mut Deferring(&mut self.deferred)),
        };
        if !is_readable {
            self.encrypted = true;
            listener.event(Event::Hole);
        }
    }

    /// Takes a part of a record that may be encrypted, and its messages once it is complete.
    fn doubtful(&mut self, body: &[u8], listener: &mut impl Listen) {
        self.hold.extend_from_slice(body);
        if body.len() < usize::from(self.left) {
            return;
        }
        let record = std::mem::take(&mut self.hold);
        self.encrypted = !is_filled_by_messages(&record);
        if !self.encrypted {
            self.is_doubtful = false;
            self.message = Message::default();
            self.message.feed(&record, listener);
        }
    }

    fn tell_deferred(&mut self, listener: &mut impl Listen) {
        for deferred in std::mem::take(&mut self.deferred) {
            match deferred {
                Deferred::Hello(kind, length, body) => {
                    listener.event(Event::Hello(kind, length, &body))
                }
                Deferred::Message(kind, length, body) => {
                    listener.event(Event::Message(kind, length, &body))
                }
            };
        }
    }

    fn record_header<'a>(&mut self, bytes: &'a [u8], listener: &mut impl Listen) -> &'a [u8] {
        let rest = collect(&mut self.header, &mut self.header_length, bytes);
        if usize::from(self.header_length) < RECORD_HEADER_BYTES {
            return rest;
        }
        let [kind, major, _, high, low] = self.header;
        self.kind = kind;
        self.left = u16::from_be_bytes([high, low]);
        if !(CHANGE_CIPHER_SPEC..=HEARTBEAT).contains(&kind)
            || major != 3
            || self.left > LARGEST_RECORD
        {
            self.lose(listener);
            return rest;
        }
        self.state = State::Body;
        let record_length = u32::from(self.left) + u32::from(self.header_length);
        listener.event(Event::Record(kind, record_length));
        match kind {
            CHANGE_CIPHER_SPEC => {
                if self.message.header_length > 0 {
                    self.message = Message::default();
                    listener.event(Event::Hole);
                }
                let retrying = listener.event(Event::ChangeCipherSpec);
                self.encrypted = !retrying;
            }
            APPLICATION_DATA if self.left > 0 => {
                listener.event(Event::ApplicationData);
            }
            _ => {}
        }
        if self.left == 0 {
            self.begin_header();
        }
        rest
    }
}

/// Splits off a request for TLS, or the answer to one, if a record may follow: a side that does not wait sends both in one
/// segment.
fn split_request(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (request, rest) = bytes.split_at_checked(request_length(bytes)?)?;
    matches!(is_first_record(rest), Verdict::Record | Verdict::Unclear).then_some((request, rest))
}

#[derive(Debug)]
enum Deferred {
    Hello(u8, u32, Vec<u8>),
    Message(u8, u32, Vec<u8>),
}

/// Stores the messages of an unfinished record.
struct Deferring<'a>(&'a mut Vec<Deferred>);

impl Listen for Deferring<'_> {
    fn event(&mut self, event: Event<'_>) -> bool {
        match event {
            Event::Hello(kind, length, body) => {
                self.0.push(Deferred::Hello(kind, length, body.to_vec()));
            }
            Event::Message(kind, length, body) => {
                self.0.push(Deferred::Message(kind, length, body.to_vec()));
            }
            _ => {}
        }
        false
    }
}
