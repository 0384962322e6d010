//! The place and time of an observation: endpoints of a connection, and frames.

use std::net::IpAddr;

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoint {
    pub(crate) ip: IpAddr,
    pub(crate) port: u16,
}

/// The index of one end in a connection's pair of endpoints: 0 or 1.
pub(crate) type Side = usize;

/// The frame that showed something, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) frame: u64,
    pub(crate) time_ns: u64,
}
