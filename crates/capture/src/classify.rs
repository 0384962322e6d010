//! What a handshake was, from the messages that were seen of it.
//!
//! TLS 1.3: resumed exactly when a ServerHello that is no HelloRetryRequest accepts a pre-shared
//! key; an echoed session id means nothing there. Before: full when a message of a key exchange is
//! seen; otherwise resumed when the server's ChangeCipherSpec comes before the client's; otherwise
//! nothing is known.

use std::net::IpAddr;

use crate::handshake::{Carrier, Class, Evidence, Handshake, Method, Version};
use crate::hello::{ClientHello, ServerHello};
use crate::tcp::At;

const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const CERTIFICATE_REQUEST: u8 = 13;
const SERVER_HELLO_DONE: u8 = 14;
const CLIENT_KEY_EXCHANGE: u8 = 16;
/// A Certificate message with an empty list.
const EMPTY_CERTIFICATE_BYTES: u32 = 3;

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct End {
    pub(crate) ip: IpAddr,
    pub(crate) port: u16,
}

/// One of a connection's two ends, by its place in the key.
pub(crate) type Side = usize;

/// What was seen of one handshake.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    client: Option<Side>,
    client_hello: Option<(ClientHello, At)>,
    server_hello: Option<(ServerHello, At)>,
    retry: bool,
    /// The next ClientHello is this handshake's, whatever its random.
    again: bool,
    key_exchange: bool,
    client_certificate: bool,
    is_direct: bool,
    /// When each side's ChangeCipherSpec came.
    cipher_changes: [Option<At>; 2],
    application_data: [bool; 2],
}

impl Facts {
    /// Whether there is anything to report.
    pub(crate) fn has_hello(&self) -> bool {
        self.client_hello.is_some() || self.server_hello.is_some()
    }

    /// The side that sent the ClientHello, or did not send the ServerHello.
    pub(crate) fn client_side(&self) -> Option<Side> {
        self.client
    }

    /// Whether nothing that follows can change the report.
    pub(crate) fn is_complete(&self) -> bool {
        self.server_hello.is_some() && self.client_hello.is_some() && self.is_encrypted()
    }

    /// Whether a HelloRetryRequest is not answered.
    pub(crate) fn is_retrying(&self) -> bool {
        self.retry && self.server_hello.is_none()
    }

    /// Whether this ClientHello begins another handshake.
    pub(crate) fn is_other(&self, hello: &ClientHello) -> bool {
        !self.again
            && self.client_hello.as_ref().is_some_and(|(known, _)| known.random != hello.random)
    }

    pub(crate) fn client_hello(&mut self, side: Side, hello: ClientHello, at: At, direct: bool) {
        self.again = false;
        if self.client_hello.is_none() {
            self.client = Some(side);
            self.client_hello = Some((hello, at));
            self.is_direct = direct;
        }
    }

    pub(crate) fn server_hello(&mut self, side: Side, hello: ServerHello, at: At, direct: bool) {
        if self.client == Some(side) {
            return;
        }
        if self.client.is_none() {
            self.client = Some(1 - side);
            self.is_direct = direct;
        }
        if hello.retry {
            self.retry = true;
        } else if self.server_hello.is_none() {
            self.server_hello = Some((hello, at));
        }
    }

    /// The client is to begin again, by a QUIC Retry.
    pub(crate) fn expect_again(&mut self) {
        self.again = true;
    }

    /// A HelloRetryRequest as a message of its own (drafts of TLS 1.3 up to 21).
    pub(crate) fn retry_request(&mut self) {
        self.retry = true;
    }

    pub(crate) fn message(&mut self, side: Side, kind: u8, length: u32) {
        let is_client = self.client == Some(side);
        if kind == CERTIFICATE && is_client && length > EMPTY_CERTIFICATE_BYTES {
            self.client_certificate = true;
        }
        self.key_exchange |= matches!(
            kind,
            CERTIFICATE
                | SERVER_KEY_EXCHANGE
                | CERTIFICATE_REQUEST
                | SERVER_HELLO_DONE
                | CLIENT_KEY_EXCHANGE
        );
    }

    pub(crate) fn change_cipher_spec(&mut self, side: Side, at: At) {
        if let Some(change) = self.cipher_changes.get_mut(side) {
            change.get_or_insert(at);
        }
    }

    pub(crate) fn application_data(&mut self, side: Side) {
        if let Some(seen) = self.application_data.get_mut(side) {
            *seen = true;
        }
    }

    fn is_encrypted(&self) -> bool {
        match self.server_hello {
            Some((ServerHello { version: Version::Tls13, .. }, _)) => {
                self.application_data == [true; 2]
            }
            _ => self.cipher_changes.iter().all(Option::is_some),
        }
    }

    fn class(&self) -> (Class, Option<Evidence>) {
        let Some((server_hello, _)) = self.server_hello else {
            return (Class::NoServerhello, None);
        };
        if server_hello.version == Version::Tls13 {
            return match server_hello.pre_shared_key {
                true => (Class::Resumed, Some(Evidence::ShPreSharedKey)),
                false => (Class::Full, Some(Evidence::ShWithoutPsk)),
            };
        }
        if self.key_exchange {
            return (Class::Full, Some(Evidence::KeyExchange));
        }
        let client = self.client.unwrap_or(0);
        let change = |side: Side| self.cipher_changes.get(side).copied().flatten();
        let server_first = match (change(1 - client.min(1)), change(client)) {
            (Some(server), Some(client)) => server < client,
            (server, _) => server.is_some(),
        };
        match server_first {
            true => (Class::Resumed, Some(Evidence::ServerCcsFirstNoCert)),
            false => (Class::Unknown, Some(Evidence::ShOnly)),
        }
    }

    fn method(&self, class: Class, evidence: Option<Evidence>) -> Option<Method> {
        if class != Class::Resumed {
            return None;
        }
        Some(match (&self.client_hello, evidence) {
            (_, Some(Evidence::ShPreSharedKey)) => Method::Psk,
            (None, _) => Method::Unknown,
            (Some((hello, _)), _) if hello.ticket_length > 0 => Method::Ticket,
            _ => Method::Id,
        })
    }

    fn client_auth(&self, class: Class) -> Option<bool> {
        let is_visible =
            self.server_hello.is_some_and(|(hello, _)| hello.version != Version::Tls13);
        let is_known = matches!(class, Class::Full | Class::Resumed) && is_visible;
        (self.client_certificate || is_known).then_some(self.client_certificate)
    }

    /// The report.
    pub(crate) fn report(&self, carrier: Carrier, ends: [End; 2]) -> Handshake {
        let (cls, evidence) = self.class();
        let [first, second] = ends;
        let (client, server) =
            if self.client == Some(1) { (second, first) } else { (first, second) };
        let hello = self.client_hello.as_ref().map(|(hello, _)| hello);
        let version = self.server_hello.map(|(hello, _)| hello.version);
        let (ch, sh) =
            (self.client_hello.as_ref().map(|(_, at)| *at), self.server_hello.map(|(_, at)| at));
        Handshake {
            carrier,
            client_ip: client.ip,
            client_port: client.port,
            server_ip: server.ip,
            server_port: server.port,
            ch_random: hello.map(|hello| hello.random.map(Vec::from).unwrap_or_default()),
            sni: hello.and_then(|hello| hello.server_name.clone()),
            version: version.or_else(|| self.retry.then_some(Version::Tls13)),
            cls,
            method: self.method(cls, evidence),
            evidence,
            hrr: self.retry,
            psk_offered: hello.map(|hello| hello.pre_shared_key),
            early_data_offered: hello.map(|hello| hello.early_data),
            offered_sid_len: hello.map(|hello| hello.session_id_length),
            offered_ticket_len: hello.map(|hello| hello.ticket_length),
            client_auth: self.client_auth(cls),
            completed: self.is_encrypted(),
            direct: self.is_direct,
            t_ch: ch.map(seconds),
            t_sh: sh.map(seconds),
            frame_ch: ch.map(|at| at.frame),
            frame_sh: sh.map(|at| at.frame),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a double holds today's time to 0.3 µs")]
fn seconds(at: At) -> f64 {
    (at.time_ns / 1_000) as f64 / 1e6
}
