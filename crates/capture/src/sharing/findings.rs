//! What was found.

use serde::Serialize;

use super::services::Service;
use super::steps::Counts;
use super::used::Use;
use crate::handshake::Method;

/// Handshakes that do not count, each under the first reason that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct PassedOver {
    /// The same handshake stands in an earlier capture, or was begun on another path before.
    pub duplicate: u64,
    /// The capture does not show whether it was full or resumed.
    pub unclassified: u64,
    /// Behind STARTTLS, a proxy or in a tunnel.
    pub indirect: u64,
    /// With a client certificate: such sessions are never shared (paper 004 §VI).
    pub client_certificate: u64,
}

/// How the resumed handshakes were resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Resumed {
    /// By session id.
    pub id: u64,
    /// By ticket, up to TLS 1.2.
    pub ticket: u64,
    /// By pre-shared key.
    pub psk: u64,
    /// By id or ticket.
    pub unknown: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Findings {
    /// Applications among the handshakes that count.
    pub applications: u64,
    /// Services among them: names that were asked for.
    pub services: u64,
    /// Hosts among them.
    pub hosts: u64,
    /// Ideal: every session can be resumed for ever, as often as one likes, in the order of the
    /// captures (the paper's rule).
    #[serde(flatten)]
    pub ideal: Counts,
    /// What would truly be saved: by the clock, within lifetimes, tickets of TLS 1.3 once.
    pub realistic: Counts,
    /// How the observed resumptions were made.
    pub resumed_by: Resumed,
    /// What does not count.
    pub passed_over: PassedOver,
    /// Bytes of handshakes.
    pub wire: Wire,
    /// Services by applications, those of most first.
    pub top_services: Vec<Service>,
}

/// Bytes that handshakes took, TLS records with their headers.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Wire {
    /// Of full handshakes.
    pub full: Bytes,
    /// Of resumed ones.
    pub resumed: Bytes,
}

/// Bytes of one handshake on average.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Bytes {
    /// Sent by the client.
    pub from_client: f64,
    /// Sent by the server.
    pub from_server: f64,
}

impl Bytes {
    /// Of both sides.
    pub fn sum(&self) -> f64 {
        self.from_client + self.from_server
    }
}

impl Resumed {
    pub(super) fn of(uses: &[Use]) -> Self {
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
    pub(super) fn of(uses: &[Use]) -> Self {
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
