//! The results of an analysis of sharing.

use serde::Serialize;

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
    /// Averages over full handshakes.
    pub full: Bytes,
    /// Averages over resumed handshakes.
    pub resumed: Bytes,
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
        let mean = |of_full: bool, side: usize| {
            let of_kind = || uses.iter().filter(|used| used.is_full == of_full);
            let sum: u64 = of_kind().map(|used| u64::from(used.bytes[side])).sum();
            sum as f64 / of_kind().count().max(1) as f64
        };
        let bytes =
            |of_full| Bytes { from_client: mean(of_full, 0), from_server: mean(of_full, 1) };
        Self { full: bytes(true), resumed: bytes(false) }
    }
}
