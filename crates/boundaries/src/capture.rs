//! Captures of traffic.

pub(crate) mod frames;
pub(crate) mod quic;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod wire;
