//! The record of one handshake.

use std::net::{IpAddr, SocketAddr};

use serde::{Serialize, Serializer};

use crate::certificate::Certificate;
use crate::digest::{self, Digest};
use crate::fingerprint::Ja4;
use crate::numbers::{CipherSuite, Group};
use crate::via::Via;

/// One handshake: a ClientHello (or two, after a HelloRetryRequest) and the server's response.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Handshake {
    /// The protocol that carried it.
    pub carrier: Carrier,
    /// The client's address.
    pub client_ip: IpAddr,
    /// The client's port.
    pub client_port: u16,
    /// The server's address.
    pub server_ip: IpAddr,
    /// The server's port.
    pub server_port: u16,
    /// The ClientHello's random. `None` if only the server's side was captured; empty if the hello
    /// is in SSL 2 format, which has none.
    #[serde(serialize_with = "hex")]
    pub ch_random: Option<Vec<u8>>,
    /// The server name in the ClientHello.
    pub sni: Option<String>,
    /// The version the server chose.
    pub version: Option<Version>,
    /// Full or resumed.
    pub cls: Class,
    /// The resumption mechanism, if the handshake was resumed.
    pub method: Option<Method>,
    /// The evidence for `cls`.
    pub evidence: Option<Evidence>,
    /// True if the server sent a HelloRetryRequest.
    pub hrr: bool,
    /// True if the ClientHello was captured to its end: what is not known of it was not in it, unless
    /// there is an encrypted one in it.
    pub ch_whole: Option<bool>,
    /// True if the client offered a pre-shared key. `None` if the capture does not show it, as with
    /// everything that was offered. Where `ech_offered` is true it may be in the encrypted hello.
    pub psk_offered: Option<bool>,
    /// True if the client offered early data.
    pub early_data_offered: Option<bool>,
    /// Length of the session ID the client offered, in bytes.
    pub offered_sid_len: Option<usize>,
    /// Length of the ticket the client offered (TLS 1.2 and before), in bytes.
    pub offered_ticket_len: Option<usize>,
    /// True if a client certificate was seen, false if the capture shows that none was sent. `None`
    /// in TLS 1.3, which encrypts it.
    pub client_auth: Option<bool>,
    /// True if encrypted records of both sides were seen.
    pub completed: bool,
    /// True if TLS begins with the first byte: no STARTTLS, CONNECT or tunnel precedes it. A
    /// connection through a SOCKS proxy counts as direct, because the client then speaks to the
    /// server unchanged, and so does one with a PROXY header.
    pub direct: bool,
    /// The client's program, where the capture names it. It is certain, or `None`.
    pub program: Option<String>,
    /// The number of the client's process.
    pub process: Option<u32>,
    /// The server's program.
    pub server_program: Option<String>,
    /// The number of the server's process.
    pub server_process: Option<u32>,
    /// The protocol spoken before TLS on the connection.
    pub via: Option<Via>,
    /// The client that a balancer's PROXY header names; `client_ip` is then the balancer.
    pub proxied_client: Option<SocketAddr>,
    /// Eight bytes of the ServerHello's random. With `ch_random` they tell copies of a handshake.
    pub sh_random_part: Option<Digest>,
    /// The time the ClientHello was complete, in seconds since 1970. `None` also if the capture gives its frame no time, as
    /// with all times.
    pub t_ch: Option<f64>,
    /// The time the ServerHello was complete, in seconds since 1970.
    pub t_sh: Option<f64>,
    /// The frame that completed the ClientHello, counted from 1.
    pub frame_ch: Option<u64>,
    /// The frame that completed the ServerHello, counted from 1.
    pub frame_sh: Option<u64>,
    /// The frame of the message that decided `cls`, counted from 1.
    pub proof_frame: Option<u64>,
    /// The time `completed` became true, in seconds since 1970.
    pub t_done: Option<f64>,
    /// The hash of the ticket the client offered (TLS 1.2 and before).
    pub offered_ticket_hash: Option<Digest>,
    /// The hash of the session ID the client offered. It may be made up, for middleboxes.
    pub offered_sid_hash: Option<Digest>,
    /// True if the server issued a ticket, false if the capture shows that it issued none (TLS 1.2 and
    /// before).
    pub ticket_issued: Option<bool>,
    /// Length of the ticket the server issued in the clear (TLS 1.2 and before, RFC 5077), in bytes.
    pub issued_ticket_len: Option<usize>,
    /// The lifetime hint of that ticket, in seconds; 0 leaves it to the client.
    pub issued_ticket_lifetime_s: Option<u32>,
    /// The hash of that ticket.
    pub issued_ticket_hash: Option<Digest>,
    /// Length of the session ID in the ServerHello (TLS 1.2 and before), in bytes.
    pub issued_sid_len: Option<usize>,
    /// The hash of that session ID, if it is not empty.
    pub session_id_hash: Option<Digest>,
    /// The server's certificate, where it is visible (TLS 1.2 and before).
    pub certificate: Option<Certificate>,
    /// The cipher suite that the server chose.
    pub cipher: Option<CipherSuite>,
    /// The group of the server's key share (TLS 1.3).
    pub group: Option<Group>,
    /// The protocol that the server chose (ALPN), where it is visible (TLS 1.2 and before).
    pub alpn: Option<String>,
    /// The protocols that the client offered, separated by commas.
    pub alpn_offered: Option<String>,
    /// The JA4 fingerprint of the client, if its ClientHello is whole.
    pub ja4: Option<Ja4>,
    /// True if there is an encrypted ClientHello (RFC 9849), or one made up: `sni` is then the name of
    /// the client-facing server, and others may stand behind it.
    pub ech_offered: Option<bool>,
    /// The bytes the client sent for the handshake: TLS records with their headers, each counted
    /// once; for QUIC and DTLS, the payload of its datagrams. Up to TLS 1.2 the count ends with its Finished
    /// message, in TLS 1.3 with its first encrypted record after the ServerHello. Bytes missing
    /// from the capture are not counted; `None` if none is there, because the client was not captured, or sent nothing.
    pub bytes_from_client: Option<u64>,
    /// The bytes the server sent; in TLS 1.3, up to the same moment.
    pub bytes_from_server: Option<u64>,
}

impl Handshake {
    /// The client's address: the one that a balancer names, if there is one.
    pub fn client(&self) -> IpAddr {
        self.proxied_client.map_or(self.client_ip, |client| client.ip())
    }
}

impl Handshake {
    /// Sets the programs of the client and of the server: names, and the numbers of processes.
    pub fn set_programs(&mut self, [client, server]: [Option<(&str, Option<u32>)>; 2]) {
        self.program = client.map(|(name, _)| name.to_owned());
        self.process = client.and_then(|(_, process)| process);
        self.server_program = server.map(|(name, _)| name.to_owned());
        self.server_process = server.and_then(|(_, process)| process);
    }
}

/// The protocol that carries a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Carrier {
    /// TLS over TCP, or in OpenVPN.
    Tls,
    /// QUIC over UDP.
    Quic,
    /// DTLS over UDP.
    Dtls,
}

/// The class of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Authenticated by certificates or a fresh key exchange, without an earlier session.
    Full,
    /// Resumed from an earlier session.
    Resumed,
    /// Not known: the server responded, but the capture does not show what followed.
    Unknown,
    /// Not known: the server's response is not in the capture.
    NoServerhello,
}

impl Class {
    pub(crate) const ALL: [Self; 4] =
        [Self::Full, Self::Resumed, Self::Unknown, Self::NoServerhello];
}

/// The mechanism that resumed a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// A session ticket (RFC 5077).
    Ticket,
    /// A session ID, looked up in the server's cache.
    Id,
    /// A pre-shared key (TLS 1.3).
    Psk,
    /// Ticket or ID: the ClientHello is not in the capture.
    #[serde(rename = "unknown(no CH)")]
    Unknown,
}

/// The evidence for a class.
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
    /// The server's ChangeCipherSpec follows its ServerHello without any key-exchange message, and no
    /// byte between them is missing.
    ServerCcsFirstNoCert,
    /// The client's ChangeCipherSpec follows its ClientHello, which offers no early data, without a
    /// ClientKeyExchange, and no byte between them is missing.
    ClientCcsNoCke,
    /// The client offered nothing that could be resumed.
    NothingOffered,
    /// The ServerHello alone, or a part of it.
    ShOnly,
}

/// A protocol version.
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
    /// DTLS 1.0.
    Dtls10,
    /// DTLS 1.2.
    Dtls12,
    /// DTLS 1.3.
    Dtls13,
    /// Any other number.
    Other(u16),
}

impl Version {
    /// Converts a version number from the wire.
    pub(crate) fn from_wire(number: u16) -> Self {
        match number {
            0x0300 => Self::Ssl3,
            0x0301 => Self::Tls10,
            0x0302 => Self::Tls11,
            0x0303 => Self::Tls12,
            // Drafts of TLS 1.3; a large provider used the second range for experiments.
            0x0304 | 0x7f00..=0x7fff | 0xfb00..=0xfbff => Self::Tls13,
            0xfeff => Self::Dtls10,
            0xfefd => Self::Dtls12,
            0xfefc => Self::Dtls13,
            other => Self::Other(other),
        }
    }
}

impl Version {
    /// Returns true for TLS 1.3 and DTLS 1.3, where pre-shared keys resume and all but the hellos is
    /// encrypted.
    pub(crate) fn is_1_3(self) -> bool {
        matches!(self, Self::Tls13 | Self::Dtls13)
    }

    /// Returns true for the versions before these.
    pub(crate) fn is_before_1_3(self) -> bool {
        !self.is_1_3() && !matches!(self, Self::Other(_))
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
            Self::Dtls10 => serializer.serialize_str("DTLS1.0"),
            Self::Dtls12 => serializer.serialize_str("DTLS1.2"),
            Self::Dtls13 => serializer.serialize_str("DTLS1.3"),
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
