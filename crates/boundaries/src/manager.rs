//! The manager's socket, and the protocol on it.

pub(crate) mod protocol;
pub(crate) mod socket;
