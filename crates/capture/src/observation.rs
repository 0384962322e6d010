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
    /// The time since 1970, in nanoseconds, or [`NO_TIME`].
    pub(crate) time_ns: u64,
}

/// The time of a frame that has none, such as a simple packet of a pcapng.
pub(crate) const NO_TIME: u64 = u64::MAX;
