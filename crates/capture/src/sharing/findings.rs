//! The results of an analysis of sharing.

use serde::Serialize;

use super::counted::CountedHandshake;
use super::measured::Measured;
use super::not_resumed::NotResumed;
use super::over_time::OverTime;
use super::services::Service;
use super::steps::Counts;
use super::uses::Uses;
use crate::handshake::Method;

/// The handshakes that were excluded, each under the first reason that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct PassedOver {
    /// Contained in an earlier capture, or begun earlier on another path.
    pub duplicate: u64,
    /// A copy of another in the same capture, made by NAT or a proxy, or seen on another interface.
    pub copy: u64,
    /// Not shown by the capture to be full or resumed.
    pub unclassified: u64,
    /// Preceded by STARTTLS or a proxy, or inside a tunnel.
    pub indirect: u64,
    /// With a client certificate, or of a session that was made with one: such sessions are never shared (paper 004 §VI).
    pub client_certificate: u64,
}

/// The resumed handshakes by mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Resumed {
    /// Resumed by session ID.
    pub id: u64,
    /// Resumed by ticket, up to TLS 1.2.
    pub ticket: u64,
    /// Resumed by pre-shared key.
    pub psk: u64,
    /// Resumed by ID or ticket.
    pub unknown: u64,
}

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Findings {
    /// True if a table of networks was given. Without one an address takes the place of its autonomous
    /// system, and what servers could share is not measured.
    pub networks_given: bool,
    /// The number of applications in the counted handshakes.
    pub applications: u64,
    /// The number of services: distinct requested names.
    pub services: u64,
    /// The number of hosts.
    pub hosts: u64,
    /// The ideal savings: every session can be resumed any number of times, forever, in the order
    /// of the captures (the paper's rule).
    #[serde(flatten)]
    pub ideal: Counts,
    /// The realistic savings: by the clock, within lifetimes, each TLS 1.3 ticket once.
    pub realistic: Counts,
    /// The observed resumptions by mechanism.
    pub resumed_by: Resumed,
    /// The excluded handshakes.
    pub passed_over: PassedOver,
    /// The counted handshakes of which the captures give no time. They are in the ideal savings alone, and their reasons are
    /// unknown.
    pub without_time: u64,
    /// The reasons why handshakes were full.
    pub not_resumed: NotResumed,
    /// The times and bytes of these handshakes, by protocol.
    pub measured: Vec<Measured>,
    /// The handshakes in the course of time.
    pub over_time: OverTime,
    /// Bytes per handshake.
    pub wire: Wire,
    /// The services used by most applications, most first.
    pub top_services: Vec<Service>,
}

/// Average bytes per handshake, counted as TLS records with their headers.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Wire {
    /// Averages over full handshakes; `None` if none was measured.
    pub full: Option<Bytes>,
    /// Averages over resumed handshakes; `None` if none was measured.
    pub resumed: Option<Bytes>,
}

/// The average bytes of one handshake.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Bytes {
    /// Bytes sent by the client.
    pub from_client: f64,
    /// Bytes sent by the server.
    pub from_server: f64,
}

impl Bytes {
    /// Bytes sent by both sides.
    pub fn sum(&self) -> f64 {
        self.from_client + self.from_server
    }

    /// Averages over these handshakes, without those of which the capture lacks a side. `None`: there are no others.
    pub(super) fn mean(handshakes: impl Iterator<Item = CountedHandshake>) -> Option<Self> {
        let (mut count, mut sums) = (0_u64, [0_u64; 2]);
        for bytes in handshakes.map(|it| it.bytes).filter(|bytes| !bytes.contains(&0)) {
            count += 1;
            sums = [sums[0] + u64::from(bytes[0]), sums[1] + u64::from(bytes[1])];
        }
        let [from_client, from_server] = sums.map(|sum| sum as f64 / count as f64);
        (count > 0).then_some(Self { from_client, from_server })
    }
}

impl Resumed {
    pub(super) fn of(uses: &Uses) -> Self {
        let mut by = Self::default();
        for used in uses.iter().filter(|used| !used.is_full) {
            let count = match used.method {
                Some(Method::Id) => &mut by.id,
                Some(Method::Ticket) => &mut by.ticket,
                Some(Method::Psk) => &mut by.psk,
                Some(Method::Unknown) | None => &mut by.unknown,
            };
            *count += 1;
        }
        by
    }
}

impl Wire {
    pub(super) fn of(uses: &Uses) -> Self {
        let mean = |is_full| Bytes::mean(uses.iter().filter(|used| used.is_full == is_full));
        Self { full: mean(true), resumed: mean(false) }
    }
}
