//! Classifies a handshake by its messages.
//!
//! TLS 1.3: a handshake is resumed if its ServerHello (not a HelloRetryRequest) accepts a pre-shared
//! key, and full if the whole ServerHello does not; an echoed session ID means nothing. Before TLS
//! 1.3: it is full if any key-exchange message is seen. It is resumed if a side sent its hello and
//! then its ChangeCipherSpec, and no byte between them is missing: in a full handshake the server
//! sends a ServerHelloDone there, and the client a ClientKeyExchange. A handshake of any version
//! whose client offered nothing is full. Otherwise it is unknown.
//!
//! Verdicts rest on one direction at a time. The order of packets of different directions decides nothing,
//! because they may be captured at different places, under different clocks.

use std::net::SocketAddr;

use crate::certificate::Certificate;
use crate::digest::Digest;
use crate::handshake::{Carrier, Class, Evidence, Handshake, Method, Version};
use crate::hello::{ClientHello, IssuedTicket, Protocol, ServerHello};
use crate::observation::{At, Endpoint, NO_TIME, Side};
use crate::tls::{APPLICATION_DATA, CERTIFICATE, HANDSHAKE};
use crate::via::Via;

const SERVER_KEY_EXCHANGE: u8 = 12;
const CERTIFICATE_REQUEST: u8 = 13;
const SERVER_HELLO_DONE: u8 = 14;
const CLIENT_KEY_EXCHANGE: u8 = 16;
/// The length of a Certificate message with an empty list.
const EMPTY_CERTIFICATE_BYTES: u32 = 3;

/// The observed facts of one handshake.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    client: Option<Side>,
    client_hello: Option<(ClientHello, At)>,
    server_hello: Option<(ServerHello, At)>,
    retry: bool,
    /// The next ClientHello belongs to this handshake, whatever its random.
    expects_repeated_hello: bool,
    /// The first key-exchange message.
    key_exchange: Option<At>,
    /// The messages of each side between its hello and its ChangeCipherSpec.
    flights: [Flight; 2],
    via: Option<Via>,
    /// The client that a balancer names.
    proxied_client: Option<SocketAddr>,
    /// The ChangeCipherSpec of each side.
    cipher_changes: [Option<At>; 2],
    application_data: [Option<At>; 2],
    issued_ticket: Option<IssuedTicket>,
    certificate: Option<Certificate>,
    sent: [Sent; 2],
    is_reported: bool,
}

/// The messages that one side sent.
#[derive(Debug, Default, Clone, Copy)]
struct Flight {
    /// True from the side's hello on, until a message may have been missed.
    is_whole: bool,
    /// A Certificate message that is not empty.
    certificate: bool,
    certificate_request: bool,
    /// The last message of the key exchange was seen, and none before it was missed.
    is_done: bool,
    /// A ChangeCipherSpec that follows the hello without a hole.
    change: Option<At>,
}

/// The bytes one side sent for the handshake.
#[derive(Debug, Default, Clone, Copy)]
struct Sent {
    bytes: u64,
    /// The length of the last counted record or datagram, in bytes.
    last_bytes: u32,
    /// True once the count is final: later bytes do not belong to the handshake.
    is_counted: bool,
}

impl Facts {
    /// Returns true if there is something to report.
    pub(crate) fn has_hello(&self) -> bool {
        self.client_hello.is_some() || self.server_hello.is_some()
    }

    /// The client: the side that sent the ClientHello, or did not send the ServerHello.
    pub(crate) fn client_side(&self) -> Option<Side> {
        self.client
    }

    /// Returns true if nothing that follows can change the report.
    pub(crate) fn is_complete(&self) -> bool {
        self.server_hello.is_some()
            && self.client_hello.is_some()
            && self.encrypted_at().is_some()
            && self.sent.iter().all(|sent| sent.is_counted)
    }

    /// The heap memory in use, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let hello = self.client_hello.as_ref().map(|(hello, _)| hello);
        let name = hello.and_then(|hello| hello.server_name.as_ref());
        let protocols = hello.and_then(|hello| hello.protocols.as_ref());
        name.map_or(0, String::capacity)
            + protocols.map_or(0, |protocols| protocols.len())
            + self.certificate.as_ref().map_or(0, Certificate::held_bytes)
    }

    /// Returns true if the handshake was reported.
    pub(crate) fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// Marks the handshake as reported.
    pub(crate) fn reported(&mut self) {
        self.is_reported = true;
    }

    /// Returns true if the server's choice was seen.
    pub(crate) fn is_answered(&self) -> bool {
        self.server_hello.is_some()
    }

    pub(crate) fn client_random(&self) -> Option<[u8; 32]> {
        self.client_hello.as_ref().and_then(|(hello, _)| hello.random)
    }

    /// Adds what was seen before, with the same ClientHello, to this handshake.
    pub(crate) fn follow(&mut self, before: Self) {
        if let (Some((known, at)), Some((earlier, begun))) =
            (&mut self.client_hello, before.client_hello)
        {
            *at = begun;
            if earlier.is_whole {
                *known = earlier;
            }
        }
        for (sent, earlier) in self.sent.iter_mut().zip(before.sent) {
            sent.bytes += earlier.bytes;
        }
    }

    /// Begins the next handshake, counting the record with which `side` started it.
    pub(crate) fn begin_next(&mut self, side: Side) {
        let last = self.sent.get(side).copied().unwrap_or_default();
        *self = Self { proxied_client: self.proxied_client, ..Self::default() };
        if let Some(sent) = self.sent.get_mut(side) {
            sent.add(last.last_bytes);
        }
    }

    /// Returns true while a HelloRetryRequest is unanswered.
    pub(crate) fn is_retrying(&self) -> bool {
        self.retry && self.server_hello.is_none()
    }

    /// Returns true if this ClientHello begins another handshake.
    pub(crate) fn begins_another(&self, hello: &ClientHello) -> bool {
        !self.expects_repeated_hello
            && self.client_hello.as_ref().is_some_and(|(known, _)| known.random != hello.random)
    }

    /// Returns the frames of the ClientHello and the ServerHello.
    pub(crate) fn hello_frames(&self) -> [Option<u64>; 2] {
        let client = self.client_hello.as_ref().map(|(_, at)| at.frame);
        [client, self.server_hello.map(|(_, at)| at.frame)]
    }

    pub(crate) fn client_hello(
        &mut self,
        side: Side,
        hello: ClientHello,
        at: At,
        via: Option<Via>,
    ) {
        self.expects_repeated_hello = false;
        self.begin_flight(side);
        match &mut self.client_hello {
            None => {
                self.client = Some(side);
                self.client_hello = Some((hello, at));
                self.via = via;
            }
            // A copy of which the capture holds more.
            Some((known, _)) if hello.is_whole && known.random == hello.random => {
                if !known.is_whole {
                    *known = hello;
                }
            }
            Some(_) => {}
        }
    }

    /// Notes that all messages of this side since its hello are known.
    pub(crate) fn begin_flight(&mut self, side: Side) {
        if let Some(flight) = self.flights.get_mut(side) {
            flight.is_whole = true;
        }
    }

    /// Notes that messages of this side may be missing.
    pub(crate) fn hole(&mut self, side: Side) {
        if let Some(flight) = self.flights.get_mut(side) {
            flight.is_whole = false;
        }
    }

    /// Returns true if this ServerHello answers another ClientHello than the known one does.
    pub(crate) fn is_of_another(&self, side: Side, hello: &ServerHello) -> bool {
        self.client == Some(1 - side.min(1))
            && !hello.retry
            && self.server_hello.is_some_and(|(known, _)| known.mark != hello.mark)
    }

    pub(crate) fn server_hello(
        &mut self,
        side: Side,
        hello: ServerHello,
        at: At,
        via: Option<Via>,
    ) {
        if self.client == Some(side) {
            return;
        }
        if self.client.is_none() {
            self.client = Some(1 - side);
            self.via = via;
        }
        if hello.retry {
            self.retry = true;
        } else if self.server_hello.is_none() {
            self.server_hello = Some((hello, at));
            self.begin_flight(side);
        }
    }

    /// Notes the client that a PROXY header names.
    pub(crate) fn proxied(&mut self, client: Option<SocketAddr>) {
        self.proxied_client = client;
    }

    /// Notes a QUIC Retry, after which the client sends its ClientHello again.
    pub(crate) fn expect_repeated_hello(&mut self) {
        self.expects_repeated_hello = true;
    }

    /// Notes a HelloRetryRequest with a message type of its own (drafts of TLS 1.3 up to 21).
    pub(crate) fn retry_request(&mut self) {
        self.retry = true;
    }

    /// Notes a message other than a hello.
    pub(crate) fn message(&mut self, side: Side, kind: u8, length: u32, at: At) {
        if let Some(flight) = self.flights.get_mut(side) {
            match kind {
                CERTIFICATE => flight.certificate |= length > EMPTY_CERTIFICATE_BYTES,
                CERTIFICATE_REQUEST => flight.certificate_request = true,
                SERVER_HELLO_DONE | CLIENT_KEY_EXCHANGE => flight.is_done |= flight.is_whole,
                _ => {}
            }
        }
        if matches!(
            kind,
            CERTIFICATE
                | SERVER_KEY_EXCHANGE
                | CERTIFICATE_REQUEST
                | SERVER_HELLO_DONE
                | CLIENT_KEY_EXCHANGE
        ) {
            self.key_exchange.get_or_insert(at);
        }
    }

    /// Returns true if a Certificate message of this side is the server's and still needed.
    pub(crate) fn wants_certificate(&self, side: Side) -> bool {
        self.client == Some(1 - side) && self.certificate.is_none()
    }

    pub(crate) fn certificate(&mut self, certificate: Option<Certificate>) {
        self.certificate = certificate;
    }

    /// Notes a NewSessionTicket sent in the clear.
    pub(crate) fn new_session_ticket(&mut self, side: Side, ticket: Option<IssuedTicket>) {
        if self.client != Some(side) && self.issued_ticket.is_none() {
            self.issued_ticket = ticket;
        }
    }

    pub(crate) fn change_cipher_spec(&mut self, side: Side, at: At) {
        if let Some(change) = self.cipher_changes.get_mut(side) {
            change.get_or_insert(at);
        }
        if let Some(flight) = self.flights.get_mut(side)
            && flight.is_whole
        {
            flight.change.get_or_insert(at);
        }
    }

    pub(crate) fn application_data(&mut self, side: Side, at: At) {
        if let Some(seen) = self.application_data.get_mut(side) {
            seen.get_or_insert(at);
        }
    }

    /// Counts a record at its start.
    pub(crate) fn record(&mut self, side: Side, kind: u8, length: u32) {
        let is_client = self.client == Some(side);
        let offers_early_data =
            self.client_hello.as_ref().is_some_and(|(hello, _)| hello.early_data == Some(true));
        let is_early = is_client && offers_early_data && self.server_hello.is_none();
        let is_finished = self.cipher_changes.get(side).is_some_and(Option::is_some);
        let is_tls_1_3 = self.is_tls_1_3();
        let Some(sent) = self.sent.get_mut(side) else { return };
        match kind {
            _ if is_tls_1_3 => sent.add(length),
            APPLICATION_DATA if !is_early => sent.is_counted = true,
            _ => sent.add(length),
        }
        match (is_tls_1_3, kind) {
            (true, APPLICATION_DATA) if is_client => self.stop_counting(),
            (false, HANDSHAKE) if is_finished => sent.is_counted = true,
            _ => {}
        }
    }

    /// Counts a datagram.
    pub(crate) fn datagram(&mut self, side: Side, length: usize) {
        let Some(sent) = self.sent.get_mut(side) else { return };
        sent.add(u32::try_from(length).unwrap_or(u32::MAX));
        let is_encrypted = self.application_data.get(side).is_some_and(Option::is_some);
        if self.client == Some(side) && is_encrypted && self.server_hello.is_some() {
            self.stop_counting();
        }
    }

    /// Ends the count of a side whose Finished message was seen, or that sends data already (up to DTLS 1.2).
    pub(crate) fn has_finished(&mut self, side: Side) {
        if let Some(sent) = self.sent.get_mut(side) {
            sent.is_counted = true;
        }
    }

    fn stop_counting(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.is_counted = true);
    }

    fn is_tls_1_3(&self) -> bool {
        self.server_hello.is_some_and(|(hello, _)| hello.version.is_some_and(Version::is_1_3))
    }

    /// The version, as far as it is certain.
    fn version(&self) -> Option<Version> {
        let (hello, _) = self.server_hello?;
        // From TLS 1.3 on, these messages are encrypted.
        hello.version.or_else(|| self.key_exchange.map(|_| hello.legacy_version))
    }

    /// Returns true if the client certainly offered nothing to resume.
    fn offered_nothing(&self) -> bool {
        self.client_hello.as_ref().is_some_and(|(hello, _)| {
            hello.session_id_length == Some(0)
                && hello.ticket_length == Some(0)
                && self.offers_key() == Some(false)
        })
    }

    /// Returns true if the client offered a pre-shared key. An encrypted hello, or one made up, is no offer to a
    /// server that chose a version before TLS 1.3: such a server cannot read it.
    fn offers_key(&self) -> Option<bool> {
        let (hello, _) = self.client_hello.as_ref()?;
        let is_before_1_3 = matches!(self.version(), Some(version) if version.is_before_1_3());
        hello.pre_shared_key.or_else(|| (hello.is_whole && is_before_1_3).then_some(false))
    }

    /// Returns true if the client certainly offered no early data. With it, a client of TLS 1.3 sends a
    /// ChangeCipherSpec before it has an answer (RFC 8446, D.4).
    fn offers_no_early_data(&self) -> bool {
        self.client_hello.as_ref().is_some_and(|(hello, _)| hello.early_data == Some(false))
    }

    /// The time at which both sides had sent encrypted records.
    fn encrypted_at(&self) -> Option<At> {
        let [first, second] = match self.is_tls_1_3() {
            true => self.application_data,
            false => self.cipher_changes,
        };
        Some(first?.max(second?))
    }

    /// The class, the evidence for it, and the frame that showed it.
    fn class(&self) -> (Class, Option<Evidence>, Option<At>) {
        let Some((server_hello, hello_at)) = self.server_hello else {
            return (Class::NoServerhello, None, None);
        };
        let unknown = (Class::Unknown, Some(Evidence::ShOnly), Some(hello_at));
        if self.version().is_some_and(Version::is_1_3) {
            return match (server_hello.pre_shared_key, self.offers_key()) {
                (Some(true), _) => (Class::Resumed, Some(Evidence::ShPreSharedKey), Some(hello_at)),
                (Some(false), _) => (Class::Full, Some(Evidence::ShWithoutPsk), Some(hello_at)),
                (None, Some(false)) => self.nothing_offered(),
                (None, _) => unknown,
            };
        }
        if self.key_exchange.is_some() {
            return (Class::Full, Some(Evidence::KeyExchange), self.key_exchange);
        }
        let client = self.client.unwrap_or(0).min(1);
        let (from_client, from_server) = (self.flights[client], self.flights[1 - client]);
        match (self.version(), from_server.change, from_client.change) {
            (Some(Version::Other(_)), ..) => unknown,
            (Some(_), Some(at), _) => {
                (Class::Resumed, Some(Evidence::ServerCcsFirstNoCert), Some(at))
            }
            (Some(_), None, Some(at)) if self.offers_no_early_data() => {
                (Class::Resumed, Some(Evidence::ClientCcsNoCke), Some(at))
            }
            // Where nothing is missing, the server stopped there.
            _ if !from_server.is_whole && self.offered_nothing() => self.nothing_offered(),
            _ => unknown,
        }
    }

    fn nothing_offered(&self) -> (Class, Option<Evidence>, Option<At>) {
        let at = self.client_hello.as_ref().map(|(_, at)| *at);
        (Class::Full, Some(Evidence::NothingOffered), at)
    }

    /// True if the server sent a ticket in the clear, false if it certainly sent none.
    fn ticket_issued(&self, version: Option<Version>) -> Option<bool> {
        let is_visible = version.is_some_and(|version| !version.is_1_3());
        let server = self.flights[1 - self.client?.min(1)];
        match self.issued_ticket {
            Some(ticket) => Some(ticket.length > 0),
            None => (is_visible && server.change.is_some()).then_some(false),
        }
    }

    fn method(&self, class: Class, evidence: Option<Evidence>) -> Option<Method> {
        if class != Class::Resumed {
            return None;
        }
        let ticket = self.client_hello.as_ref().and_then(|(hello, _)| hello.ticket_length);
        Some(match (ticket, evidence) {
            (_, Some(Evidence::ShPreSharedKey)) => Method::Psk,
            (None, _) => Method::Unknown,
            (Some(0), _) => Method::Id,
            (Some(_), _) => Method::Ticket,
        })
    }

    /// True if the client sent a certificate, false if it certainly sent none.
    fn client_auth(&self, class: Class) -> Option<bool> {
        let client = self.client?.min(1);
        let (from_client, from_server) = (self.flights[client], self.flights[1 - client]);
        let is_visible = self.version().is_some_and(|version| !version.is_1_3());
        let was_not_asked = from_server.is_done && !from_server.certificate_request;
        let sent_none = class == Class::Resumed || was_not_asked || from_client.is_done;
        match from_client.certificate {
            true => Some(true),
            false => (is_visible && sent_none).then_some(false),
        }
    }

    /// Assembles the report.
    pub(crate) fn report(&self, carrier: Carrier, ends: [Endpoint; 2]) -> Handshake {
        let (cls, evidence, proof) = self.class();
        let [first, second] = ends;
        let (client, server) =
            if self.client == Some(1) { (second, first) } else { (first, second) };
        let [first, second] = self.sent;
        let (from_client, from_server) =
            if self.client == Some(1) { (second, first) } else { (first, second) };
        let hello = self.client_hello.as_ref().map(|(hello, _)| hello);
        let chosen = self.server_hello.map(|(hello, _)| hello);
        let (ch, sh) =
            (self.client_hello.as_ref().map(|(_, at)| *at), self.server_hello.map(|(_, at)| at));
        let done = self.encrypted_at();
        let issued = self.issued_ticket;
        let retrying = if carrier == Carrier::Dtls { Version::Dtls13 } else { Version::Tls13 };
        let version = self.version().or_else(|| self.retry.then_some(retrying));
        // In TLS 1.3 a session ID means nothing.
        let session = chosen.filter(|_| version.is_some_and(|version| !version.is_1_3()));
        Handshake {
            carrier,
            client_ip: client.ip,
            client_port: client.port,
            server_ip: server.ip,
            server_port: server.port,
            ch_random: hello.map(|hello| hello.random.map(Vec::from).unwrap_or_default()),
            sni: hello.and_then(|hello| hello.server_name.clone()),
            version,
            cls,
            method: self.method(cls, evidence),
            evidence,
            hrr: self.retry,
            ch_whole: hello.map(|hello| hello.is_whole),
            psk_offered: self.offers_key(),
            early_data_offered: hello.and_then(|hello| hello.early_data),
            offered_sid_len: hello.and_then(|hello| hello.session_id_length),
            offered_ticket_len: hello.and_then(|hello| hello.ticket_length),
            client_auth: self.client_auth(cls),
            completed: done.is_some(),
            direct: self.via.is_none_or(Via::is_direct),
            program: None,
            process: None,
            server_program: None,
            server_process: None,
            via: self.via,
            proxied_client: self.proxied_client,
            sh_random_part: chosen.map(|hello| Digest(hello.mark.to_be_bytes())),
            t_ch: ch.and_then(seconds),
            t_sh: sh.and_then(seconds),
            frame_ch: ch.map(|at| at.frame),
            frame_sh: sh.map(|at| at.frame),
            proof_frame: proof.map(|at| at.frame),
            t_done: done.and_then(seconds),
            offered_ticket_hash: hello.and_then(|hello| hello.ticket),
            offered_sid_hash: hello.and_then(|hello| hello.session_id),
            ticket_issued: self.ticket_issued(version),
            issued_ticket_len: issued.map(|ticket| ticket.length),
            issued_ticket_lifetime_s: issued.map(|ticket| ticket.lifetime_s),
            issued_ticket_hash: issued.and_then(|ticket| ticket.digest),
            issued_sid_len: session.and_then(|hello| hello.session_id_length),
            session_id_hash: session.and_then(|hello| hello.session_id),
            certificate: self.certificate.clone(),
            cipher: chosen.and_then(|hello| hello.cipher),
            group: chosen.and_then(|hello| hello.group),
            alpn: chosen.and_then(|hello| hello.protocol).map(Protocol::name),
            alpn_offered: hello.and_then(|hello| hello.protocols.as_deref()).map(str::to_owned),
            ja4: hello.and_then(|hello| hello.ja4).map(|ja4| ja4.over(carrier)),
            ech_offered: hello.and_then(|hello| hello.encrypted_hello),
            bytes_from_client: from_client.seen_bytes(),
            bytes_from_server: from_server.seen_bytes(),
        }
    }
}

impl Sent {
    /// Returns the bytes, or `None` if there were none: the side was silent, or was not captured.
    fn seen_bytes(self) -> Option<u64> {
        (self.bytes > 0).then_some(self.bytes)
    }

    fn add(&mut self, length: u32) {
        if !self.is_counted {
            self.bytes += u64::from(length);
            self.last_bytes = length;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a double holds today's time to 0.3 µs")]
fn seconds(at: At) -> Option<f64> {
    (at.time_ns != NO_TIME).then_some((at.time_ns / 1_000) as f64 / 1e6)
}
