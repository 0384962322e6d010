//! The reasons why a program's connection goes without the manager.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

/// The reason why a connection goes directly, as it would without the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directly {
    /// The connection is DTLS.
    Datagrams,
    /// The program does not have its TLS library verify the server.
    NotVerified,
    /// The program resumes a session of its own.
    OwnSession,
    /// The program has a client certificate, or may have one.
    ClientCertificate,
    /// The program logs its keys.
    KeyLog,
    /// The ClientHello asks for something that the manager does not forward.
    Extension,
    /// The program has a callback or a setting that the manager does not support.
    Callback,
    /// The program does not support TLS 1.3.
    Versions,
    /// The program lacks the suite of hops.
    Suites,
    /// No manager answers.
    NoManager,
    /// The manager refused the connection.
    ManagerRefused,
    /// The manager could not connect, and forwarded the connection.
    ManagerFailed,
    /// The socket is not a TCP connection that can be handed over.
    NoSocket,
    /// The program waits for the socket in a way that cannot be determined.
    Registered,
    /// A system call failed.
    System,
    /// The program's calls do not lead to the library.
    Unseen,
    /// A reason that this program does not know yet.
    #[serde(other)]
    Other,
}

impl Directly {
    /// All of them, in their order: `ALL[why as usize]` is `why`.
    pub const ALL: [Self; 17] = [
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
        Self::Unseen,
        Self::Other,
    ];

    /// Returns the word of the protocol.
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
            Self::Unseen => "unseen",
            Self::Other => "other",
        }
    }

    /// Returns true if the manager need not be told: it knows the reason, or there is no manager.
    pub fn is_known_there(self) -> bool {
        matches!(self, Self::NoManager | Self::ManagerRefused | Self::ManagerFailed)
    }
}

/// Describes the reason for people.
impl Display for Directly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Datagrams => "it is DTLS or QUIC",
            Self::NotVerified => "the program does not have its TLS library verify certificates",
            Self::OwnSession => "the program resumes a session of its own",
            Self::ClientCertificate => "the program has a client certificate",
            Self::KeyLog => "the program logs the keys of its connections (SSLKEYLOGFILE)",
            Self::Extension => {
                "the program asks the server for something that the manager does not (OCSP, timestamps, \
                 smaller records)"
            }
            Self::Callback => {
                "the program has callbacks for keys or certificates of its own, DANE or Suite B"
            }
            Self::Versions => "the program does not speak TLS 1.3",
            Self::Suites => "the program does not take TLS_AES_128_GCM_SHA256",
            Self::NoManager => "no manager answers",
            Self::ManagerRefused => "the manager has no use for it",
            Self::ManagerFailed => "the manager does not get on with the server",
            Self::NoSocket => {
                "what the program sends over is no TCP connection that it may give away"
            }
            Self::Registered => "the program waits for the socket in too many ways",
            Self::System => "the system refused something",
            Self::Unseen => {
                "the program calls its TLS library past Rejoin (dlsym, or a library with RTLD_DEEPBIND)"
            }
            Self::Other => "for another reason",
        })
    }
}
