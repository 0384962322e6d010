//! The properties of a handshake that matter for sharing.

use crate::handshake::{Carrier, Class, Handshake, Method, Version};

/// A handshake that counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountedHandshake {
    pub(super) begun_us: i64,
    pub(super) done_us: i64,
    /// The lifetime of its session, in seconds.
    pub(super) lifetime_s: u32,
    pub(super) ids: Ids,
    pub(super) is_full: bool,
    /// The resumption mechanism, if it was resumed.
    pub(super) method: Option<Method>,
    pub(super) protocol: Protocol,
    /// True if the server gave the client a ticket or a session ID.
    pub(super) is_resumable: bool,
    pub(super) bytes: [u32; 2],
}

/// A protocol family. Sessions of one family cannot resume those of another. From TLS 1.3 on,
/// sessions are tickets for a single resumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    /// TLS 1.2 and before.
    Tls12,
    Tls13,
    Quic,
}

impl Protocol {
    fn of(handshake: &Handshake) -> Self {
        match handshake.version {
            _ if handshake.carrier == Carrier::Quic => Self::Quic,
            Some(Version::Tls13) => Self::Tls13,
            _ => Self::Tls12,
        }
    }
}

/// The name that the client requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Name(u32),
    /// No name was requested; the address takes its place.
    Host(u32),
}

/// A set of servers that could share sessions: an autonomous system, or else one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Network {
    Asn(u32),
    Host(u32),
}

/// The parties of a handshake, as IDs of interned texts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    pub(super) application: u32,
    pub(super) device: u32,
    pub(super) host: u32,
    pub(super) target: Target,
    pub(super) network: Network,
    /// `NONE` if no certificate was seen.
    pub(super) certificate: u32,
}

impl CountedHandshake {
    pub(super) fn of(handshake: &Handshake, ids: Ids) -> Self {
        let is_full = handshake.cls == Class::Full;
        let done = handshake.t_done.or(handshake.t_sh);
        let begun_us = begun_us(handshake);
        Self {
            begun_us,
            done_us: done.map_or(begun_us, microseconds),
            lifetime_s: lifetime_s(handshake),
            ids,
            is_full,
            method: handshake.method,
            protocol: Protocol::of(handshake),
            is_resumable: !is_full || is_resumable(handshake),
            bytes: [handshake.bytes_from_client, handshake.bytes_from_server]
                .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
        }
    }
}

/// The start of the handshake; if it was not captured, the time of the response.
pub(super) fn begun_us(handshake: &Handshake) -> i64 {
    microseconds(handshake.t_ch.or(handshake.t_sh).unwrap_or_default())
}

fn microseconds(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

/// The lifetime hint of the ticket, visible up to TLS 1.2.
fn lifetime_s(handshake: &Handshake) -> u32 {
    handshake.issued_ticket_lifetime_s.filter(|lifetime| *lifetime > 0).unwrap_or(DAY_S)
}

/// The lifetime of a session whose server states none (RFC 5246, F.1.4).
const DAY_S: u32 = 24 * 60 * 60;

/// Visible up to TLS 1.2. In TLS 1.3 tickets are encrypted, and nearly every server sends them.
fn is_resumable(handshake: &Handshake) -> bool {
    Protocol::of(handshake) != Protocol::Tls12
        || handshake.issued_ticket_len.is_some_and(|length| length > 0)
        || handshake.issued_sid_len != Some(0)
}
