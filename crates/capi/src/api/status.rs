//! The outcome of a call, as a number.

use std::ffi::CStr;

use libc::c_int;
use rejoin_client::protocol::ErrorKind;
use rejoin_store::Error;

/// The outcome of a call. Later versions may add numbers; none changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// Success.
    RejoinOk = 0,
    /// A null pointer, a text that is not UTF-8, or an invalid setting or flag.
    RejoinBadArgument = 1,
    /// There is no store of this name, and no capacity is given to create it.
    RejoinNotFound = 2,
    /// The folder has less room than the store needs.
    RejoinNoRoom = 3,
    /// The operating system refused a call.
    RejoinRefused = 4,
    /// The store's file belongs to another user, or is writable by others, or is not a regular file.
    RejoinNotOurs = 5,
    /// The store was created with other settings.
    RejoinOtherSettings = 6,
    /// The store was created by another version.
    RejoinOtherVersion = 7,
    /// The store's file is damaged.
    RejoinDamaged = 8,
    /// Other processes keep creating and removing the store, or hold its ticket keys.
    RejoinBusy = 9,
    /// The context is attached already.
    RejoinAlreadyAttached = 10,
    /// The connection's context, or the process, is not attached.
    RejoinNotAttached = 11,
    /// OpenSSL is out of memory.
    RejoinOpenssl = 12,
    /// An internal error of this library.
    RejoinInternal = 13,
    /// `rejoin manager` is not running, is busy, or does not answer: connect directly.
    RejoinNoManager = 14,
    /// The name does not exist, the server refused the connection, or there is no route to it.
    RejoinUnreachable = 15,
    /// The deadline passed.
    RejoinTimeout = 16,
    /// The TLS handshake failed: an error of the server, no common protocol, or an unacceptable client
    /// certificate.
    RejoinTls = 17,
    /// The server's certificate is not valid, or not trusted.
    RejoinCertificate = 18,
    /// The connection ended without close_notify from the server.
    RejoinTruncated = 19,
}

impl Status {
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::BadName { .. } | Error::Settings(_) => Self::RejoinBadArgument,
            Error::NotFound { .. } => Self::RejoinNotFound,
            Error::NoRoom { .. } => Self::RejoinNoRoom,
            Error::NotOurs { .. } => Self::RejoinNotOurs,
            Error::OtherVersion { .. } => Self::RejoinOtherVersion,
            Error::OtherSettings { .. } => Self::RejoinOtherSettings,
            Error::Damaged { .. } | Error::BadSize { .. } => Self::RejoinDamaged,
            Error::Busy { .. } | Error::KeysLocked { .. } => Self::RejoinBusy,
            Error::Refused { .. } => Self::RejoinRefused,
            _ => Self::RejoinInternal,
        }
    }

    pub(super) fn of_connecting(error: &rejoin_client::Error) -> Self {
        let rejoin_client::Error::Refused(problem) = error else {
            let ours = error.is_the_managers();
            return if ours { Self::RejoinNoManager } else { Self::RejoinBadArgument };
        };
        match problem.kind {
            _ if error.is_the_managers() => Self::RejoinNoManager,
            ErrorKind::BadRequest | ErrorKind::TooLarge => Self::RejoinBadArgument,
            ErrorKind::NameNotFound | ErrorKind::Refused | ErrorKind::Unreachable => {
                Self::RejoinUnreachable
            }
            ErrorKind::Timeout => Self::RejoinTimeout,
            ErrorKind::CertificateExpired
            | ErrorKind::CertificateNotYetValid
            | ErrorKind::CertificateWrongName
            | ErrorKind::CertificateUnknownIssuer
            | ErrorKind::CertificateRevoked
            | ErrorKind::CertificatePinMismatch
            | ErrorKind::CertificateInvalid => Self::RejoinCertificate,
            _ => Self::RejoinTls,
        }
    }

    pub(super) fn text(status: c_int) -> &'static CStr {
        TEXTS.get(status as usize).copied().unwrap_or(c"no status of this library")
    }
}

const TEXTS: [&CStr; Status::RejoinTruncated as usize + 1] = [
    c"done",
    c"bad argument",
    c"no such store",
    c"no room",
    c"refused by the system",
    c"not ours",
    c"made with other settings",
    c"made by another version",
    c"damaged",
    c"busy",
    c"attached already",
    c"not attached",
    c"OpenSSL failed",
    c"a fault of Rejoin",
    c"no manager",
    c"unreachable",
    c"timeout",
    c"TLS failed",
    c"certificate not valid",
    c"truncated",
];
