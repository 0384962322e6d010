//! What the manager answers.

use serde::{Deserialize, Deserializer, Serialize, de};

use super::{Base64, Directly, Fingerprint, Token, VERSION};

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The connection stands: what follows on the socket is plaintext, in both directions.
    Connected(Box<Connected>),
    /// The sockets of a hop are the manager's when the program's ClientHello comes; the connection is
    /// described by a second answer, before the manager's own part of that handshake.
    Ready {},
    /// It does not.
    Error(Problem),
    /// How a connection ended.
    End(End),
    /// What the manager did.
    Stats(Box<Stats>),
}

/// A connection that stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    /// Its name, to ask how it ended.
    pub connection: Token,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// Why it was, or why not.
    pub why: Why,
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: String,
    /// The cipher suite, as IANA names it.
    pub cipher: String,
    /// The key-exchange group; absent where TLS 1.2 resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The protocol that ALPN chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpn: Option<String>,
    /// The server's address and port.
    pub peer: String,
    /// The other name whose session was resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_of: Option<String>,
    /// What became of the 0-RTT data.
    pub early_data: EarlyData,
    /// The server's certificates, its own first; of a resumption, those that were verified when
    /// the session began.
    pub chain: Vec<Certificate>,
    /// What the server stapled about its own certificate (RFC 6066, section 8), as it came; of a hop
    /// that began in full alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staple: Option<Base64>,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Its digest.
    pub sha256: Fingerprint,
    /// Itself; absent where the program said that it knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub der: Option<Base64>,
}

/// Why a session was resumed, or why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Resumed: the server took the session.
    Resumed,
    /// Resumed: the server took the session of another name.
    ResumedOtherName,
    /// No session with this server is known to this user, label and client certificate.
    NoSession,
    /// Sessions were known, and each has been used.
    AllUsed,
    /// The sessions known, or their verification, were too old.
    TooOld,
    /// The sessions' certificates do not stand before what this program trusts.
    NotTrusted,
    /// The sessions known are of a version that the program does not accept.
    Version,
    /// A session was offered, and the server wanted a full handshake.
    Refused,
    /// The program did not want to share.
    NotWanted,
    /// The manager's settings do not let this program or this host share.
    NotShared,
    /// The program did not want the certificate to be verified.
    NotVerified,
    /// A reason that this program does not know yet.
    #[serde(other)]
    Other,
}

impl Why {
    /// As the protocol has it.
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

/// What became of 0-RTT data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyData {
    /// The server has it.
    Accepted,
    /// It was sent, and the server has not: the program sends it again if it wants to.
    Rejected,
    /// It was not sent: none was given, or no session allowed it.
    NotOffered,
    /// It was sent, and then the connection failed: nobody knows whether the server has it.
    Sent,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The server said that this was all.
    Clean,
    /// It did not: what came may not be all.
    Truncated,
    /// It has not ended.
    Open,
    /// No connection of this name and user is remembered: take it for truncated.
    Unknown,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// One of a closed list.
    pub kind: ErrorKind,
    /// What happened.
    pub detail: String,
    /// What helps.
    pub remedy: String,
    /// [`EarlyData::Sent`] if 0-RTT data had left: the server may have acted on it.
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

/// What the manager did since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Of all users for root, of the caller's own else.
    pub handshakes: Handshakes,
    /// Connections that stand now.
    pub open: u64,
    /// Sessions stored now, of all users.
    pub sessions: u64,
    /// The bytes they take.
    pub session_bytes: u64,
    /// By program, the busiest first.
    pub programs: Vec<Share>,
    /// By service, the busiest first.
    pub services: Vec<Share>,
    /// Connections of unchanged programs that went without the manager, by why, the most first.
    #[serde(default)]
    pub directly: Vec<Went>,
}

/// Connections that went without the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Went {
    /// The reason.
    pub why: Directly,
    /// How many.
    pub times: u64,
}

/// Counts of handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Handshakes {
    /// Those in full.
    pub full: u64,
    /// Those that resumed: full handshakes saved.
    pub resumed: u64,
    /// Of these, with the session of another name.
    pub across_names: u64,
    /// Of the full ones, those in which a session was offered in vain.
    pub refused: u64,
    /// Connections that did not come to stand.
    pub failed: u64,
    /// 0-RTT data that the server accepted, times.
    pub early_data: u64,
}

/// One program's or one service's part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// A program's name, or a host and port.
    pub name: String,
    /// What was done for it.
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
