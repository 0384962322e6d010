//! Reasons for a failed connection, and their remedies.

use std::io;

use rustix::io::Errno;
use rustls::{AlertDescription, CertificateError, Error};

use crate::protocol::{EarlyData, ErrorKind, Malformed, Problem};

/// The reason for a failed connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) detail: String,
    /// True if the connection broke without an alert.
    pub(crate) is_break: bool,
    /// True if 0-RTT data was sent before.
    pub(crate) sent_early: bool,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), is_break: false, sent_early: false }
    }

    /// The failure of a server that ended the connection without an alert.
    pub(crate) fn broken(detail: impl Into<String>) -> Self {
        Self { is_break: true, ..Self::new(ErrorKind::TlsFailed, detail) }
    }

    /// The failure of a socket towards a server.
    pub(crate) fn of_io(error: &io::Error) -> Self {
        let kind = match error.kind() {
            _ if Self::is_want(error) => ErrorKind::Busy,
            io::ErrorKind::ConnectionRefused => ErrorKind::Refused,
            io::ErrorKind::TimedOut => ErrorKind::Timeout,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof => return Self::broken(error.to_string()),
            _ => ErrorKind::Unreachable,
        };
        Self::new(kind, error.to_string())
    }

    /// Returns true if the manager itself lacks memory or descriptors: without the manager, the program would have
    /// connected.
    pub(crate) fn is_want(error: &io::Error) -> bool {
        let number = error.raw_os_error().map(Errno::from_raw_os_error);
        let wants = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
        number.is_some_and(|number| wants.contains(&number))
    }

    /// The failure of a handshake. `wanted`: the server requested a client certificate. `had`: the client had one.
    pub(crate) fn of_tls(error: &Error, wanted: bool, had: bool) -> Self {
        let kind = match error {
            Error::InvalidCertificate(error) => kind_of_certificate(error),
            Error::NoApplicationProtocol => ErrorKind::NoCommonAlpn,
            Error::AlertReceived(alert) => kind_of_alert(*alert, wanted, had),
            _ => ErrorKind::TlsFailed,
        };
        Self::new(kind, error.to_string())
    }
}

fn kind_of_certificate(error: &CertificateError) -> ErrorKind {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ErrorKind::CertificateExpired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ErrorKind::CertificateNotYetValid
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ErrorKind::CertificateWrongName
        }
        CertificateError::UnknownIssuer => ErrorKind::CertificateUnknownIssuer,
        CertificateError::Revoked => ErrorKind::CertificateRevoked,
        CertificateError::ApplicationVerificationFailure => ErrorKind::CertificatePinMismatch,
        _ => ErrorKind::CertificateInvalid,
    }
}

fn kind_of_alert(alert: AlertDescription, wanted: bool, had: bool) -> ErrorKind {
    use AlertDescription as Alert;
    match alert {
        Alert::NoApplicationProtocol => ErrorKind::NoCommonAlpn,
        Alert::CertificateRequired => ErrorKind::ClientCertificateRequired,
        Alert::HandshakeFailure | Alert::BadCertificate if wanted && !had => {
            ErrorKind::ClientCertificateRequired
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError
            if wanted && had =>
        {
            ErrorKind::ClientCertificateInvalid
        }
        _ => ErrorKind::TlsFailed,
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        let kind = match malformed {
            Malformed::TooLarge { .. } => ErrorKind::TooLarge,
            Malformed::Version { .. } => ErrorKind::UnsupportedVersion,
            _ => ErrorKind::BadRequest,
        };
        Self::new(kind, malformed.to_string())
    }
}

impl From<Failure> for Problem {
    fn from(Failure { kind, detail, sent_early, .. }: Failure) -> Self {
        let early_data = sent_early.then_some(EarlyData::Sent);
        Self { kind, detail, remedy: remedy(kind).to_owned(), early_data }
    }
}

fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::BadRequest | ErrorKind::TooLarge => {
            "send a request that docs/manager-protocol.md allows"
        }
        ErrorKind::UnsupportedVersion => "connect directly, or install a newer manager",
        ErrorKind::Busy => "connect directly, or try again later",
        ErrorKind::NotPermitted => {
            "connect directly, or change users, network_namespaces or connect in the manager's settings"
        }
        ErrorKind::NoSession | ErrorKind::ShuttingDown => "connect directly",
        ErrorKind::NameNotFound => "check the name and the machine's resolver",
        ErrorKind::Refused => "check the port, and whether the server runs",
        ErrorKind::Unreachable => "check the network",
        ErrorKind::Timeout => "try again, or allow more time with deadline_ms",
        ErrorKind::TlsFailed => "check that the server speaks TLS 1.2 or 1.3 on this port",
        ErrorKind::CertificateExpired => "the server needs a new certificate; check the clock",
        ErrorKind::CertificateNotYetValid => "check the clock",
        ErrorKind::CertificateWrongName => "use a name that the certificate is valid for",
        ErrorKind::CertificateUnknownIssuer => "trust the authority: pass it as a bundle",
        ErrorKind::CertificateRevoked => "the server needs a new certificate",
        ErrorKind::CertificatePinMismatch => "pin the certificate that the server has now",
        ErrorKind::CertificateInvalid | ErrorKind::Other => {
            "the server needs a different certificate"
        }
        ErrorKind::ClientCertificateRequired => "pass an identity",
        ErrorKind::ClientCertificateInvalid => "pass an identity that the server accepts",
        ErrorKind::NoCommonAlpn => "offer a protocol that the server speaks",
    }
}
