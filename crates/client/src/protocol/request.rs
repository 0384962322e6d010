//! The requests of programs.

use std::net::IpAddr;
use std::num::NonZeroU16;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

use super::{
    ADDRESSES, Base64, DEADLINE_MS, Directly, EARLY_DATA_BYTES, FINGERPRINTS, Fingerprint, HopKey,
    Host, Label, MOST_DEADLINE_MS, OFFERED, PROTOCOLS, Protocol, Secret, Token, VERSION,
};

/// One request; a connection to the manager carries one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// A TLS connection. The socket carries its plaintext after the answer.
    Connect(Box<Connect>),
    /// A connection for a program that does its own TLS, with the manager as the server, over a socket that it passes.
    Hop(Box<Hop>),
    /// A connection for a program that carries the records itself, between the manager and a server.
    Records(Box<Records>),
    /// A word after a hop: the program has verified the server, and goes on. The manager may keep the sessions.
    Verified {},
    /// A word after a hop: the program goes on, and has not verified the server. The manager keeps nothing.
    Accepted {},
    /// A question: how a connection ended.
    End {
        /// The connection's identifier, from the answer.
        connection: Token,
    },
    /// A question: the manager's counters.
    Stats {},
    /// A report of connections that went without the manager, for its counters. There is no answer.
    Directly {
        /// The reason.
        why: Directly,
        /// The number of connections since the last report.
        times: u32,
    },
    /// A new manager's request for the listening socket, from root or the manager's own user. `docs/manager-protocol.md`
    /// describes what follows.
    TakeOver {},
}

/// A request for a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// The server's name. Its certificate must be valid for it.
    pub host: Host,
    /// The TCP port.
    pub port: NonZeroU16,
    /// The addresses to connect to, in this order. If there are none, the name is resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "at_most::<ADDRESSES, _, _>")]
    pub addresses: Vec<IpAddr>,
    /// True if a connected TCP socket comes with the message (`SCM_RIGHTS`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub socket: bool,
    /// The ALPN protocols, the preferred one first. If there are none, none is negotiated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "at_most::<PROTOCOLS, _, _>")]
    pub alpn: Vec<Protocol>,
    /// The trust settings for the server's certificate.
    #[serde(default)]
    pub trust: Trust,
    /// The client's own certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// True if sessions are shared. Otherwise the store is neither read nor written.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub share: bool,
    /// The partition: programs of one user share sessions only under the same label.
    #[serde(default, skip_serializing_if = "Label::is_default")]
    pub label: Label,
    /// 0-RTT data, sent with the first flight if a session allows it. An attacker can replay it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "early_data")]
    pub early_data: Option<Base64>,
    /// The time for resolving, connecting and the handshake together.
    #[serde(default = "deadline_ms", deserialize_with = "bounded_deadline_ms")]
    pub deadline_ms: u32,
    /// The certificates that the program has: the answer names them by fingerprint alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "at_most::<FINGERPRINTS, _, _>")]
    pub known: Vec<Fingerprint>,
    /// The lowest version of TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_version: Option<MinVersion>,
    /// True if the server is told the name (RFC 6066, section 3). Addresses are never told.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub server_name: bool,
}

impl Connect {
    /// Makes a request for a connection to `host` and `port`, verified by the system's authorities, with shared
    /// sessions.
    pub fn new(host: Host, port: NonZeroU16) -> Self {
        Self {
            host,
            port,
            addresses: Vec::new(),
            socket: false,
            alpn: Vec::new(),
            trust: Trust::System,
            identity: None,
            share: true,
            label: Label::default(),
            early_data: None,
            deadline_ms: DEADLINE_MS,
            known: Vec::new(),
            min_version: None,
            server_name: true,
        }
    }
}

/// A request for a connection of a program that does its own TLS. Two or three sockets come with the message: the end
/// of a pair, over which the program is the client of a TLS connection with the manager; the connected TCP socket;
/// and an unconnected TCP socket, by which the manager can connect to the server again. The third is left out if that
/// would lead elsewhere. The manager then takes the connection only if it has a session for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hop {
    /// The server's name, as the program gives it.
    pub host: Host,
    /// The TCP port.
    pub port: NonZeroU16,
    /// The ALPN protocols, the preferred one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "at_most::<PROTOCOLS, _, _>")]
    pub alpn: Vec<Protocol>,
    /// The partition: programs of one user share sessions only under the same label.
    #[serde(default, skip_serializing_if = "Label::is_default")]
    pub label: Label,
    /// The lowest version of TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_version: Option<MinVersion>,
    /// The parameters in the program's ClientHello.
    pub offers: Offers,
    /// True if the ClientHello asks for a stapled OCSP response (RFC 6066, section 8). The program then resumes only where
    /// what the server stapled when the session began still stands, and gets that. Managers before this field refuse it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub staple: bool,
    /// The PSK identity in the program's ClientHello.
    pub identity: Token,
    /// The PSK, for this connection alone.
    pub key: HopKey,
}

impl Hop {
    /// Returns the same as a [`Connect`], over a socket that comes with it. The program judges the certificates.
    pub fn wish(&self) -> Connect {
        Connect {
            socket: true,
            alpn: self.alpn.clone(),
            label: self.label.clone(),
            min_version: self.min_version,
            ..Connect::new(self.host.clone(), self.port)
        }
    }
}

/// A request for a connection of a program that has its own socket and cannot pass it. The program carries the TLS
/// records between the manager and the server, and judges the server itself. The manager takes the connection only if
/// it has a session for it, or gets one by a connection of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// The server's name, as the program gives it.
    pub host: Host,
    /// The TCP port.
    pub port: NonZeroU16,
    /// The address that the program's socket leads to, as far as the program knows.
    pub address: IpAddr,
    /// The ALPN protocols, the preferred one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "at_most::<PROTOCOLS, _, _>")]
    pub alpn: Vec<Protocol>,
    /// The partition: programs of one user share sessions only under the same label.
    #[serde(default, skip_serializing_if = "Label::is_default")]
    pub label: Label,
    /// The certificates that the program has: the answer names them by fingerprint alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "at_most::<FINGERPRINTS, _, _>")]
    pub known: Vec<Fingerprint>,
    /// The lowest version of TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_version: Option<MinVersion>,
    /// The parameters that the program accepts. Without them, those of the manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offers: Option<Offers>,
    /// True if the server is told the name, as in [`Connect`].
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub server_name: bool,
    /// The trust settings for a connection of the manager's own. With [`Trust::None`] the manager makes none.
    #[serde(default = "nobody", skip_serializing_if = "is_nobody")]
    pub trust: Trust,
}

impl Records {
    /// Returns the same as a [`Connect`], to this address. The program judges the certificates.
    pub fn wish(&self) -> Connect {
        Connect {
            addresses: vec![self.address],
            alpn: self.alpn.clone(),
            label: self.label.clone(),
            known: self.known.clone(),
            min_version: self.min_version,
            server_name: self.server_name,
            ..Connect::new(self.host.clone(), self.port)
        }
    }
}

/// The parameters that a program accepts, by their numbers at IANA, the preferred ones first. The manager offers no others
/// to the server, and uses no session that was made with others. It may offer fewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offers {
    /// The cipher suites.
    #[serde(deserialize_with = "at_most::<OFFERED, _, _>")]
    pub suites: Vec<u16>,
    /// The key-exchange groups.
    #[serde(deserialize_with = "at_most::<OFFERED, _, _>")]
    pub groups: Vec<u16>,
    /// The signature schemes.
    #[serde(deserialize_with = "at_most::<OFFERED, _, _>")]
    pub signatures: Vec<u16>,
}

/// The criterion by which a server's certificate is judged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// The system's authorities.
    #[default]
    System,
    /// The certificates of these authorities in PEM, and revocation lists if there are any.
    Bundle(String),
    /// The digests of certificates or keys. One must match the server's own, or that of an issuer, by which the rest of
    /// the chain is then verified.
    #[serde(deserialize_with = "at_most::<FINGERPRINTS, _, _>")]
    Pins(Vec<Fingerprint>),
    /// No verification. The connection's sessions are not stored, and no stored one is used.
    None,
}

/// A client's certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Certificates in PEM, the client's own first.
    pub chain: String,
    /// The private key in PEM.
    pub key: Secret,
}

/// The lowest version of TLS that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MinVersion {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Message {
            rejoin: u64,
            connect: Option<Box<Connect>>,
            hop: Option<Box<Hop>>,
            records: Option<Box<Records>>,
            verified: Option<Nothing>,
            accepted: Option<Nothing>,
            end: Option<Ended>,
            stats: Option<Nothing>,
            directly: Option<Went>,
            take_over: Option<Nothing>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Ended {
            connection: Token,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Went {
            why: Directly,
            times: u32,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        let message = Message::deserialize(deserializer)?;
        let said = [
            message.connect.map(Self::Connect),
            message.hop.map(Self::Hop),
            message.records.map(Self::Records),
            message.verified.map(|Nothing {}| Self::Verified {}),
            message.accepted.map(|Nothing {}| Self::Accepted {}),
            message.end.map(|Ended { connection }| Self::End { connection }),
            message.stats.map(|Nothing {}| Self::Stats {}),
            message.directly.map(|Went { why, times }| Self::Directly { why, times }),
            message.take_over.map(|Nothing {}| Self::TakeOver {}),
        ];
        let mut said = said.into_iter().flatten();
        match (message.rejoin, said.next(), said.next()) {
            (VERSION, Some(request), None) => Ok(request),
            _ => Err(de::Error::custom(
                "a request has one of connect, hop, records, verified, accepted, end, stats, \
                 directly and take_over",
            )),
        }
    }
}

fn at_most<'de, const MOST: usize, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Visitor<const MOST: usize, T>(std::marker::PhantomData<T>);
    impl<'de, const MOST: usize, T: Deserialize<'de>> de::Visitor<'de> for Visitor<MOST, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a list of at most {MOST}")
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(value) = list.next_element()? {
                if values.len() == MOST {
                    return Err(de::Error::invalid_length(MOST + 1, &self));
                }
                values.push(value);
            }
            Ok(values)
        }
    }
    deserializer.deserialize_seq(Visitor::<MOST, T>(std::marker::PhantomData))
}

fn early_data<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Base64>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    let data = raw.map(Base64::of_secret).transpose().map_err(de::Error::custom)?;
    match &data {
        Some(Base64(bytes)) if bytes.len() > EARLY_DATA_BYTES => {
            Err(de::Error::custom(format!("early_data: at most {EARLY_DATA_BYTES} bytes")))
        }
        _ => Ok(data),
    }
}

fn bounded_deadline_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        ms @ 1..=MOST_DEADLINE_MS => Ok(ms),
        _ => Err(de::Error::custom(format!("deadline_ms: 1 to {MOST_DEADLINE_MS}"))),
    }
}

fn deadline_ms() -> u32 {
    DEADLINE_MS
}

fn nobody() -> Trust {
    Trust::None
}

fn is_nobody(trust: &Trust) -> bool {
    *trust == Trust::None
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_true(value: &bool) -> bool {
    *value
}
