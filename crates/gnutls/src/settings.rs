//! The settings of a program's session that libgnutls cannot be asked for, recorded as the program makes them.

use std::ffi::{c_char, c_uint};

use rejoin_hop::Directly;

use crate::ffi::{AnyCallback, TypedData, Verify};
use crate::priorities::Priorities;

/// The settings of one session.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) priorities: Option<Priorities>,
    /// True if the session's priorities take keys.
    pub(crate) takes_keys: bool,
    pub(crate) verification: Verification,
    pub(crate) flags: Vec<Flags>,
    pub(crate) output: AnyCallback,
    /// True in compatibility mode: the server's key may be used for purposes that its certificate does not list.
    pub(crate) is_compatible: bool,
    /// A setting that the manager does not support.
    pub(crate) directly: Option<Directly>,
}

impl Settings {
    /// Returns true if the server's key may be used for purposes that its certificate does not list.
    pub(crate) fn is_lenient(&self) -> bool {
        self.is_compatible || self.priorities.as_ref().is_some_and(Priorities::are_lenient)
    }
}

/// The verification that a program wants GnuTLS to do before a handshake succeeds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Verification {
    /// None that the session says; the credentials may say one.
    #[default]
    Unset,
    /// GnuTLS verifies the certificates for this name, or for none if it is null.
    Name(*const c_char),
    /// GnuTLS verifies the certificates for these data, of this number.
    Data(*mut TypedData, c_uint),
    /// A function of the program verifies them.
    Function(Verify),
}

// SAFETY: the pointers are the program's, and stay valid while its session is in use.
unsafe impl Send for Verification {}

/// The flags of a verification, by the function that they were passed to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flags {
    /// `gnutls_session_set_verify_cert`.
    One(c_uint),
    /// `gnutls_session_set_verify_cert2`.
    Two(c_uint),
}
