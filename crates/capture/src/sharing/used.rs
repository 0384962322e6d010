//! A handshake, as far as sharing depends on it.

use crate::handshake::{Carrier, Class, Handshake, Method, Version};

/// A handshake that counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub(super) begun_us: i64,
    pub(super) done_us: i64,
    /// How long its session can be resumed.
    pub(super) lifetime_s: u32,
    pub(super) places: Places,
    pub(super) is_full: bool,
    /// How it was resumed.
    pub(super) method: Option<Method>,
    pub(super) protocol: Protocol,
    /// The server gave the client something to resume by.
    pub(super) is_resumable: bool,
    pub(super) bytes: [u32; 2],
}

/// What resumes sessions of its own kind only. From TLS 1.3 on they are in tickets for one
/// resumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    /// And before.
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

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    Name(u32),
    /// Nothing: the address stands for the name.
    Host(u32),
}

/// Where servers might share: an autonomous system, or else one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Network {
    Asn(u32),
    Host(u32),
}

/// Who and where, as places among the texts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) application: u32,
    pub(super) device: u32,
    pub(super) host: u32,
    pub(super) asked: Asked,
    pub(super) network: Network,
    /// `NONE` if it was not seen.
    pub(super) certificate: u32,
}

impl Use {
    pub(super) fn of(handshake: &Handshake, places: Places) -> Self {
        let is_full = handshake.cls == Class::Full;
        let done = handshake.t_done.or(handshake.t_sh);
        let begun_us = begun_us(handshake);
        Self {
            begun_us,
            done_us: done.map_or(begun_us, microseconds),
            lifetime_s: lifetime_s(handshake),
            places,
            is_full,
            method: handshake.method,
            protocol: Protocol::of(handshake),
            is_resumable: !is_full || is_resumable(handshake),
            bytes: [handshake.bytes_from_client, handshake.bytes_from_server]
                .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
        }
    }
}

/// When it began; what was not seen to begin began when it was answered.
pub(super) fn begun_us(handshake: &Handshake) -> i64 {
    microseconds(handshake.t_ch.or(handshake.t_sh).unwrap_or_default())
}

fn microseconds(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

/// What the ticket says, up to TLS 1.2; it cannot be seen later.
fn lifetime_s(handshake: &Handshake) -> u32 {
    handshake.issued_ticket_lifetime_s.filter(|lifetime| *lifetime > 0).unwrap_or(DAY_S)
}

/// How long a session can be resumed if nobody says otherwise (RFC 5246, F.1.4).
const DAY_S: u32 = 24 * 60 * 60;

/// Up to TLS 1.2 it shows; in TLS 1.3 tickets are encrypted, and nearly every server sends some.
fn is_resumable(handshake: &Handshake) -> bool {
    Protocol::of(handshake) != Protocol::Tls12
        || handshake.issued_ticket_len.is_some_and(|length| length > 0)
        || handshake.issued_sid_len != Some(0)
}
