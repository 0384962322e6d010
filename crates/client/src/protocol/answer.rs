//! The manager's answers.

use serde::{Deserialize, Deserializer, Serialize, de};

use super::{Base64, Directly, Fingerprint, Token, VERSION};

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The connection is made: the socket carries plaintext from here on, in both directions.
    Connected(Box<Connected>),
    /// The manager takes the sockets of a hop over when the program's ClientHello comes. A second answer describes the
    /// connection, before the manager's own part of that handshake.
    Ready {},
    /// There is no connection.
    Error(Problem),
    /// The end of a connection.
    End(End),
    /// The manager's counters.
    Stats(Box<Stats>),
}

/// A connection that the manager has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    /// The connection's identifier, to ask how it ended.
    pub connection: Token,
    /// True if a session was resumed.
    pub resumed: bool,
    /// The reason why a session was resumed or not.
    pub why: Why,
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: String,
    /// The cipher suite by its IANA name.
    pub cipher: String,
    /// The key-exchange group; absent after a TLS 1.2 resumption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The protocol that ALPN chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpn: Option<String>,
    /// The server's address and port.
    pub peer: String,
    /// The other server name whose session was resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_of: Option<String>,
    /// The outcome of the 0-RTT data.
    pub early_data: EarlyData,
    /// The server's certificates, its own first. After a resumption, those that were verified when the session began.
    pub chain: Vec<Certificate>,
    /// The OCSP response that the server stapled (RFC 6066, section 8), unchanged. After a resumption, the one of the
    /// handshake with which the session began, and only for a hop that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staple: Option<Base64>,
    /// True if the server supports extended master secrets (RFC 7627); only for a hop over TLS 1.2. Absent if it is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_master_secret: Option<bool>,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The certificate's digest.
    pub sha256: Fingerprint,
    /// The certificate in DER; absent if the request listed it as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub der: Option<Base64>,
}

/// The reason why a session was resumed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Resumed: the server took the session.
    Resumed,
    /// Resumed: the server took the session of another name.
    ResumedOtherName,
    /// No session with this server is stored for this user, label and client certificate.
    NoSession,
    /// Sessions were stored, and each has been used.
    AllUsed,
    /// The stored sessions, or their verification, are too old, or a hop asked for a stapled response and theirs no longer
    /// stands.
    TooOld,
    /// The program's trust settings do not accept the certificates of the stored sessions.
    NotTrusted,
    /// The stored sessions are of a version that the program does not accept.
    Version,
    /// A session was offered, and the server made a full handshake.
    Refused,
    /// The request asked not to share sessions.
    NotWanted,
    /// The manager's settings do not allow this program or this host to share sessions.
    NotShared,
    /// The request asked not to verify the server.
    NotVerified,
    /// A reason that this program does not know yet.
    #[serde(other)]
    Other,
}

impl Why {
    /// Returns the word of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resumed => "resumed",
            Self::ResumedOtherName => "resumed_other_name",
            Self::NoSession => "no_session",
            Self::AllUsed => "all_used",
            Self::TooOld => "too_old",
            Self::NotTrusted => "not_trusted",
            Self::Version => "version",
            Self::Refused => "refused",
            Self::NotWanted => "not_wanted",
            Self::NotShared => "not_shared",
            Self::NotVerified => "not_verified",
            Self::Other => "other",
        }
    }
}

/// The outcome of 0-RTT data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyData {
    /// The server has accepted the data.
    Accepted,
    /// The server has rejected the data. The program may send it again.
    Rejected,
    /// No data was sent: the request had none, or no session allowed it.
    NotOffered,
    /// The data was sent, and then the connection failed. The server may have accepted it.
    Sent,
}

/// The end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The server closed it with close_notify.
    Clean,
    /// The server did not: the data may be truncated.
    Truncated,
    /// It has not ended.
    Open,
    /// The manager remembers no connection of this identifier and user: treat it as truncated.
    Unknown,
}

/// The reason why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The kind of problem.
    pub kind: ErrorKind,
    /// The event, for people.
    pub detail: String,
    /// The remedy, for people.
    pub remedy: String,
    /// [`EarlyData::Sent`] if 0-RTT data was sent: the server may have acted on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_data: Option<EarlyData>,
}

/// The kinds of [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "docs/manager-protocol.md has a line for each")]
pub enum ErrorKind {
    BadRequest,
    TooLarge,
    UnsupportedVersion,
    Busy,
    NameNotFound,
    Refused,
    Unreachable,
    Timeout,
    TlsFailed,
    CertificateExpired,
    CertificateNotYetValid,
    CertificateWrongName,
    CertificateUnknownIssuer,
    CertificateRevoked,
    CertificatePinMismatch,
    CertificateInvalid,
    ClientCertificateRequired,
    ClientCertificateInvalid,
    NoCommonAlpn,
    NotPermitted,
    NoSession,
    ShuttingDown,
    #[serde(other)]
    Other,
}

/// The manager's counters since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Handshakes for the caller's own programs, or for those of all users if the caller is root.
    pub handshakes: Handshakes,
    /// Connections that are open now.
    pub open: u64,
    /// Sessions of all users that are stored now.
    pub sessions: u64,
    /// The bytes of these sessions.
    pub session_bytes: u64,
    /// Handshakes by program, the busiest first.
    pub programs: Vec<Share>,
    /// Handshakes by service, the busiest first.
    pub services: Vec<Share>,
    /// Connections of unmodified programs that went without the manager, by reason, the most frequent first.
    #[serde(default)]
    pub directly: Vec<Went>,
}

/// Connections that went without the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Went {
    /// The reason.
    pub why: Directly,
    /// The number of connections.
    pub times: u64,
}

/// Counts of handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Handshakes {
    /// Full handshakes.
    pub full: u64,
    /// Resumptions: full handshakes that were saved.
    pub resumed: u64,
    /// Resumptions of the session of another name, which `resumed` includes.
    pub across_names: u64,
    /// Full handshakes in which the server refused a session, which `full` includes.
    pub refused: u64,
    /// Connections that failed.
    pub failed: u64,
    /// Connections whose 0-RTT data the server accepted.
    pub early_data: u64,
}

/// The share of one program or one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// A program's name, or a host and port.
    pub name: String,
    /// The handshakes for it.
    pub handshakes: Handshakes,
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Message {
            rejoin: u64,
            connected: Option<Box<Connected>>,
            ready: Option<Nothing>,
            error: Option<Problem>,
            end: Option<End>,
            stats: Option<Box<Stats>>,
        }
        #[derive(Deserialize)]
        struct Nothing {}
        let message = Message::deserialize(deserializer)?;
        let Message { rejoin, connected, ready, error, end, stats } = message;
        let said = [
            connected.map(Self::Connected),
            ready.map(|Nothing {}| Self::Ready {}),
            error.map(Self::Error),
            end.map(Self::End),
            stats.map(Self::Stats),
        ];
        let none =
            || de::Error::custom("an answer has one of connected, ready, error, end and stats");
        let mut said = said.into_iter().flatten();
        match (rejoin, said.next(), said.next()) {
            (VERSION, Some(answer), None) => Ok(answer),
            _ => Err(none()),
        }
    }
}
