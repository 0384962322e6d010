//! Why a program's connection went without the manager.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

/// Why a connection goes as it would have without the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directly {
    /// DTLS.
    Datagrams,
    /// Nothing is verified.
    NotVerified,
    /// A session of its own is offered.
    OwnSession,
    /// There is a client certificate, or may be.
    ClientCertificate,
    /// Keys are logged.
    KeyLog,
    /// The ClientHello asks for what the manager does not pass on.
    Extension,
    /// A callback or a setting that the manager knows nothing of.
    Callback,
    /// No TLS 1.3.
    Versions,
    /// Not all suites that the manager speaks.
    Suites,
    /// Nobody answers.
    NoManager,
    /// It says no.
    ManagerRefused,
    /// It could not connect, and passed on.
    ManagerFailed,
    /// It is no TCP connection.
    NoSocket,
    /// Nobody knows where the program waits for the socket.
    Registered,
    /// A call failed.
    System,
    /// A reason that this program does not know yet.
    #[serde(other)]
    Other,
}

impl Directly {
    /// All of them, in their order: `ALL[why as usize]` is `why`.
    pub const ALL: [Self; 16] = [
        Self::Datagrams,
        Self::NotVerified,
        Self::OwnSession,
        Self::ClientCertificate,
        Self::KeyLog,
        Self::Extension,
        Self::Callback,
        Self::Versions,
        Self::Suites,
        Self::NoManager,
        Self::ManagerRefused,
        Self::ManagerFailed,
        Self::NoSocket,
        Self::Registered,
        Self::System,
        Self::Other,
    ];

    /// As the protocol has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams",
            Self::NotVerified => "not_verified",
            Self::OwnSession => "own_session",
            Self::ClientCertificate => "client_certificate",
            Self::KeyLog => "key_log",
            Self::Extension => "extension",
            Self::Callback => "callback",
            Self::Versions => "versions",
            Self::Suites => "suites",
            Self::NoManager => "no_manager",
            Self::ManagerRefused => "manager_refused",
            Self::ManagerFailed => "manager_failed",
            Self::NoSocket => "no_socket",
            Self::Registered => "registered",
            Self::System => "system",
            Self::Other => "other",
        }
    }

    /// Whether the manager sees it for itself, or nobody is there to be told.
    pub fn is_known_there(self) -> bool {
        matches!(self, Self::NoManager | Self::ManagerRefused | Self::ManagerFailed)
    }
}

/// For people.
impl Display for Directly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Datagrams => "it is DTLS",
            Self::NotVerified => "the program does not have its TLS library verify certificates",
            Self::OwnSession => "the program resumes a session of its own",
            Self::ClientCertificate => "the program has a client certificate",
            Self::KeyLog => "the program logs the keys of its connections (SSLKEYLOGFILE)",
            Self::Extension => {
                "the program asks the server for more than the manager does (OCSP, timestamps)"
            }
            Self::Callback => {
                "the program has callbacks for keys or certificates of its own, or DANE"
            }
            Self::Versions => "the program does not speak TLS 1.3",
            Self::Suites => "the program does not take all suites that the manager may agree on",
            Self::NoManager => "no manager answers",
            Self::ManagerRefused => "the manager has no use for it",
            Self::ManagerFailed => "the manager does not get on with the server",
            Self::NoSocket => {
                "what the program sends over is no TCP connection that it may give away"
            }
            Self::Registered => "the program waits for the socket in too many ways",
            Self::System => "the system refused something",
            Self::Other => "for another reason",
        })
    }
}
