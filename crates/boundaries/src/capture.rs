//! Captures of traffic.

pub(crate) mod dtls;
pub(crate) mod frames;
pub(crate) mod ids;
mod initial;
pub(crate) mod quic;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod wire;
