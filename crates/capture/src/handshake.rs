//! What is known about one handshake.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

use crate::certificate::Certificate;
use crate::digest::{self, Digest};
use crate::via::Via;

/// One handshake: one ClientHello (a retry after HelloRetryRequest included) and its answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Handshake {
    /// What carried it.
    pub carrier: Carrier,
    /// The client's address.
    pub client_ip: IpAddr,
    /// The client's port.
    pub client_port: u16,
    /// The server's address.
    pub server_ip: IpAddr,
    /// The server's port.
    pub server_port: u16,
    /// The ClientHello's random: absent if only the server's side was captured, empty if the hello
    /// is in the format of SSL 2, which has none.
    #[serde(serialize_with = "hex")]
    pub ch_random: Option<Vec<u8>>,
    /// The name the client asked for.
    pub sni: Option<String>,
    /// The version the server chose.
    pub version: Option<Version>,
    /// Full or resumed.
    pub cls: Class,
    /// How it was resumed.
    pub method: Option<Method>,
    /// What the class rests on.
    pub evidence: Option<Evidence>,
    /// The server asked for another ClientHello.
    pub hrr: bool,
    /// The client offered a pre-shared key.
    pub psk_offered: Option<bool>,
    /// The client offered early data.
    pub early_data_offered: Option<bool>,
    /// Length of the session id the client offered, in bytes.
    pub offered_sid_len: Option<usize>,
    /// Length of the ticket the client offered (TLS 1.2 and before), in bytes.
    pub offered_ticket_len: Option<usize>,
    /// A client certificate was seen; unknown in TLS 1.3, where it is encrypted.
    pub client_auth: Option<bool>,
    /// Both sides came as far as encrypted records.
    pub completed: bool,
    /// TLS from the first byte: no STARTTLS, no CONNECT, no tunnel before it. What a SOCKS proxy
    /// passes on is direct: the client speaks to the server as if nothing was between.
    pub direct: bool,
    /// What stood before TLS on the connection.
    pub via: Option<Via>,
    /// When the ClientHello was complete, in seconds since 1970.
    pub t_ch: Option<f64>,
    /// When the ServerHello was complete, in seconds since 1970.
    pub t_sh: Option<f64>,
    /// The frame that completed the ClientHello, counted from 1.
    pub frame_ch: Option<u64>,
    /// The frame that completed the ServerHello, counted from 1.
    pub frame_sh: Option<u64>,
    /// The frame of the message that decided `cls`, counted from 1.
    pub proof_frame: Option<u64>,
    /// When both sides had come as far as `completed` says, in seconds since 1970.
    pub t_done: Option<f64>,
    /// The ticket the client offered (TLS 1.2 and before).
    pub offered_ticket_hash: Option<Digest>,
    /// Length of the ticket the server issued in the clear (TLS 1.2 and before, RFC 5077), in bytes.
    pub issued_ticket_len: Option<usize>,
    /// How long the server means to accept that ticket, in seconds; 0 leaves it to the client.
    pub issued_ticket_lifetime_s: Option<u32>,
    /// That ticket.
    pub issued_ticket_hash: Option<Digest>,
    /// Length of the session id in the ServerHello (TLS 1.2 and before), in bytes.
    pub issued_sid_len: Option<usize>,
    /// That session id, if it is not empty.
    pub session_id_hash: Option<Digest>,
    /// The server's certificate, where it is visible (TLS 1.2 and before).
    pub certificate: Option<Certificate>,
    /// What the client sent for the handshake, in bytes: TLS records with their headers, each
    /// once; for QUIC the payload of its datagrams. Up to TLS 1.2 until its Finished message, from
    /// TLS 1.3 on until its first encrypted record after the ServerHello. What the capture misses
    /// is not counted.
    pub bytes_from_client: u64,
    /// The same for the server; from TLS 1.3 on until the same moment.
    pub bytes_from_server: u64,
}

/// What carries a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Carrier {
    /// TLS over TCP.
    Tls,
    /// QUIC over UDP.
    Quic,
}

/// What a handshake was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Certificates or a fresh key exchange, without an earlier session.
    Full,
    /// Resumed from an earlier session.
    Resumed,
    /// The server answered, but the capture does not show how it went on.
    Unknown,
    /// The server's answer is not in the capture.
    NoServerhello,
}

/// How a session was resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// By a session ticket (RFC 5077).
    Ticket,
    /// By a session id, from the server's cache.
    Id,
    /// By a pre-shared key (TLS 1.3).
    Psk,
    /// By ticket or id: the ClientHello that would tell is not in the capture.
    #[serde(rename = "unknown(no CH)")]
    Unknown,
}

/// What a class rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Certificate, ServerKeyExchange, CertificateRequest, ServerHelloDone or ClientKeyExchange.
    #[serde(rename = "cert/ske/shd/cke")]
    KeyExchange,
    /// A TLS 1.3 ServerHello without a pre-shared key.
    ShWithoutPsk,
    /// A TLS 1.3 ServerHello that accepts a pre-shared key.
    ShPreSharedKey,
    /// The server's ChangeCipherSpec came first, and no message of a key exchange.
    ServerCcsFirstNoCert,
    /// Nothing but the ServerHello.
    ShOnly,
}

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// SSL 3.0.
    Ssl3,
    /// TLS 1.0.
    Tls10,
    /// TLS 1.1.
    Tls11,
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3 and its drafts.
    Tls13,
    /// Any other number.
    Other(u16),
}

impl Version {
    /// The version of a number on the wire.
    pub(crate) fn from_wire(number: u16) -> Self {
        match number {
            0x0300 => Self::Ssl3,
            0x0301 => Self::Tls10,
            0x0302 => Self::Tls11,
            0x0303 => Self::Tls12,
            // Drafts of TLS 1.3; the second range was used by a large provider's experiments.
            0x0304 | 0x7f00..=0x7fff | 0xfb00..=0xfbff => Self::Tls13,
            other => Self::Other(other),
        }
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Ssl3 => serializer.serialize_str("SSLv3"),
            Self::Tls10 => serializer.serialize_str("TLS1.0"),
            Self::Tls11 => serializer.serialize_str("TLS1.1"),
            Self::Tls12 => serializer.serialize_str("TLS1.2"),
            Self::Tls13 => serializer.serialize_str("TLS1.3"),
            Self::Other(number) => serializer.collect_str(&format_args!("{number:#06x}")),
        }
    }
}

fn hex<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => serializer.serialize_str(&digest::hex(bytes)),
        None => serializer.serialize_none(),
    }
}
