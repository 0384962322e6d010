//! One line for each decision, where `REJOIN_DEBUG` is set.

use std::fmt::{self, Display};
use std::io::Write;
use std::sync::OnceLock;

use rejoin_client::protocol::Connected;

/// Why a connection goes as it would have without the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

impl Directly {
    fn text(self) -> &'static str {
        match self {
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
        }
    }
}

impl Display for Directly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| {
        std::env::var_os("REJOIN_DEBUG").is_some_and(|said| !said.is_empty() && said != "0")
    })
}

/// A connection goes directly.
pub fn directly(service: Option<&str>, why: Directly) {
    tell(|| match service {
        Some(service) => format!("{service}: directly: {why}"),
        None => format!("directly: {why}"),
    });
}

/// The manager said why not.
pub(crate) fn refused(service: &str, why: Directly, error: &rejoin_client::Error) {
    tell(|| format!("{service}: directly: {why}: {error}"));
}

/// A connection stands by the manager.
pub fn stands(found: &Connected, is_verified: bool) {
    tell(|| {
        let how = if found.resumed { "resumed" } else { "in full" };
        let verified = if is_verified { "verified" } else { "not verified" };
        format!("{}: through the manager: {how}, {}, {verified}", found.peer, found.version)
    });
}

fn tell(line: impl FnOnce() -> String) {
    if is_on() {
        // Without standard error there is nobody to tell.
        let _ = std::io::stderr().write_all(format!("rejoin: {}\n", line()).as_bytes());
    }
}
