//! The properties of a handshake that matter for sharing.

use super::duplicates::Nature;
use crate::handshake::{Carrier, Class, Handshake, Method, Version};

/// A handshake that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedHandshake {
    /// The time of its beginning, 0 if it has none.
    pub(super) begun_us: i64,
    /// True if the capture shows when it began.
    pub(super) has_time: bool,
    /// The time from its beginning to its end; less than 0 if the clocks of the two directions contradict each other.
    pub(super) lasted_us: i32,
    /// True if both sides had sent encrypted records then, and the clocks do not contradict each other.
    pub(super) is_timed: bool,
    /// The lifetime of its session, in seconds.
    pub(super) lifetime_s: u32,
    pub(super) ids: Ids,
    pub(super) nature: Nature,
    pub(super) is_full: bool,
    /// The resumption mechanism, if it was resumed.
    pub(super) method: Option<Method>,
    pub(super) protocol: Protocol,
    /// True if the server gave the client a ticket or a session ID.
    pub(super) is_resumable: bool,
    /// The bytes of each side, 0 if none were seen.
    pub(super) bytes: [u32; 2],
    pub(super) visit: Visit,
}

/// The facts that decide whether a session could be offered and taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Visit {
    pub(super) version: Option<Version>,
    pub(super) offer: Offer,
    pub(super) given: Given,
    /// True if the server chose a version in which nothing of the offer can be used.
    pub(super) is_of_other_version: bool,
    /// True if the server stated the lifetime of its ticket.
    pub(super) states_lifetime: bool,
}

/// The offer of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Offer {
    /// A ticket or a pre-shared key.
    Certain,
    /// A session ID alone, which may be made up.
    SessionOnly,
    Nothing,
    Unknown,
}

/// The means that a server gave for the next connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Given {
    Something,
    /// Nothing new: the client keeps the session that it resumed.
    Kept,
    Nothing,
    /// Tickets of TLS 1.3.
    Encrypted,
    Unknown,
}

/// A protocol family. Sessions of one family cannot resume those of another. From TLS 1.3 on,
/// sessions are tickets for a single resumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Protocol {
    /// TLS 1.2 and before.
    Tls12,
    Tls13,
    Quic,
    /// DTLS 1.2 and before.
    Dtls12,
    Dtls13,
}

impl Protocol {
    /// All protocol families.
    pub(super) const ALL: [Self; 5] =
        [Self::Tls12, Self::Tls13, Self::Quic, Self::Dtls12, Self::Dtls13];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLS up to 1.2",
            Self::Tls13 => "TLS 1.3",
            Self::Quic => "QUIC",
            Self::Dtls12 => "DTLS up to 1.2",
            Self::Dtls13 => "DTLS 1.3",
        }
    }

    /// Returns true where tickets are encrypted, and used once.
    pub(super) fn is_1_3(self) -> bool {
        !matches!(self, Self::Tls12 | Self::Dtls12)
    }

    fn of(handshake: &Handshake) -> Self {
        let is_1_3 = handshake.version.is_some_and(Version::is_1_3);
        match (handshake.carrier, is_1_3) {
            (Carrier::Quic, _) => Self::Quic,
            (Carrier::Tls, true) => Self::Tls13,
            (Carrier::Tls, false) => Self::Tls12,
            (Carrier::Dtls, true) => Self::Dtls13,
            (Carrier::Dtls, false) => Self::Dtls12,
        }
    }
}

/// The name that the client requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Target {
    Name(u32),
    /// No name was requested; the address takes its place.
    Host(u32),
}

/// A set of servers that could share sessions: an autonomous system, or else one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Network {
    Asn(u32),
    Host(u32),
}

/// The parties of a handshake, as IDs of interned texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) application: u32,
    pub(super) device: u32,
    pub(super) client: u32,
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
            has_time: handshake.t_ch.or(handshake.t_sh).is_some(),
            lasted_us: done.map_or(0, |done| within_i32(microseconds(done) - begun_us)),
            is_timed: is_timed(handshake),
            lifetime_s: lifetime_s(handshake),
            ids,
            nature: Nature::of(handshake),
            is_full,
            method: handshake.method,
            protocol: Protocol::of(handshake),
            is_resumable: !is_full || is_resumable(handshake),
            visit: Visit::of(handshake),
            bytes: [handshake.bytes_from_client, handshake.bytes_from_server]
                .map(|bytes| u32::try_from(bytes.unwrap_or(0)).unwrap_or(u32::MAX)),
        }
    }

    /// The time of its end.
    pub(super) fn done_us(&self) -> i64 {
        self.begun_us.saturating_add(self.lasted_us.into())
    }
}

impl Visit {
    fn of(handshake: &Handshake) -> Self {
        let offers_ticket = handshake.offered_ticket_len.is_some_and(|length| length > 0);
        let offers_key = handshake.psk_offered == Some(true);
        Self {
            version: handshake.version,
            offer: Offer::of(handshake, offers_ticket || offers_key),
            given: Given::of(handshake),
            is_of_other_version: is_of_other_version(handshake.version, offers_ticket, offers_key),
            states_lifetime: handshake.issued_ticket_lifetime_s.is_some_and(|s| s > 0),
        }
    }
}

impl Offer {
    fn of(handshake: &Handshake, is_certain: bool) -> Self {
        let Handshake { offered_ticket_len, offered_sid_len, psk_offered, .. } = *handshake;
        match (offered_ticket_len, offered_sid_len, psk_offered) {
            _ if is_certain => Self::Certain,
            (Some(0), Some(0), Some(false)) => Self::Nothing,
            (Some(0), Some(_), Some(false)) => Self::SessionOnly,
            _ => Self::Unknown,
        }
    }
}

impl Given {
    fn of(handshake: &Handshake) -> Self {
        if Protocol::of(handshake).is_1_3() {
            return Self::Encrypted;
        }
        let gave_ticket = handshake.ticket_issued;
        if handshake.cls == Class::Resumed {
            // Its session ID was there before, or was made up by the client (RFC 5077, 3.4).
            return match gave_ticket {
                Some(true) => Self::Something,
                Some(false) => Self::Kept,
                None => Self::Unknown,
            };
        }
        let gave_id = handshake.issued_sid_len.map(|length| length > 0);
        match (gave_ticket, gave_id) {
            (Some(true), _) | (_, Some(true)) => Self::Something,
            (Some(false), Some(false)) => Self::Nothing,
            _ => Self::Unknown,
        }
    }
}

/// Returns true if a session of these offers cannot be used in the version that the server chose.
fn is_of_other_version(version: Option<Version>, offers_ticket: bool, offers_key: bool) -> bool {
    match version {
        Some(version) if version.is_1_3() => offers_ticket && !offers_key,
        Some(Version::Other(_)) | None => false,
        Some(_) => offers_key && !offers_ticket,
    }
}

/// The start of the handshake; if it was not captured, the time of the response.
pub(super) fn begun_us(handshake: &Handshake) -> i64 {
    microseconds(handshake.t_ch.or(handshake.t_sh).unwrap_or_default())
}

fn microseconds(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

fn within_i32(us: i64) -> i32 {
    i32::try_from(us).unwrap_or(if us < 0 { i32::MIN } else { i32::MAX })
}

fn is_timed(handshake: &Handshake) -> bool {
    let Handshake { t_ch, t_sh, t_done, .. } = *handshake;
    let (Some(begun), Some(answered), Some(done)) = (t_ch, t_sh, t_done) else { return false };
    begun <= answered && answered <= done
}

/// The lifetime hint of the ticket, visible up to TLS 1.2.
fn lifetime_s(handshake: &Handshake) -> u32 {
    handshake.issued_ticket_lifetime_s.filter(|lifetime| *lifetime > 0).unwrap_or(DAY_S)
}

/// The lifetime of a session whose server states none (RFC 5246, F.1.4).
const DAY_S: u32 = 24 * 60 * 60;

/// Visible up to TLS 1.2. In TLS 1.3 tickets are encrypted, and nearly every server sends them.
fn is_resumable(handshake: &Handshake) -> bool {
    Protocol::of(handshake).is_1_3()
        || handshake.issued_ticket_len.is_some_and(|length| length > 0)
        || handshake.issued_sid_len != Some(0)
}
