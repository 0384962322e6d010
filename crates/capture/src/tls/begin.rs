//! The beginning of TLS among other bytes.

use super::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, CLIENT_HELLO, HANDSHAKE, HEARTBEAT,
    LARGEST_RECORD, SERVER_HELLO,
};

/// The result of checking bytes for the start of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Record,
    /// A ClientHello in SSL 2 format, of this many bytes.
    Sslv2Hello(usize),
    No,
    Unclear,
}

/// Checks for a record that contains a hello.
pub(super) fn is_first_record(bytes: &[u8]) -> Verdict {
    let at = |place: usize| bytes.get(place).copied();
    let record_length = match (at(3), at(4)) {
        (Some(high), Some(low)) => Some(u16::from_be_bytes([high, low])),
        _ => None,
    };
    let fits = at(0).is_none_or(|kind| kind == HANDSHAKE)
        && at(1).is_none_or(|major| major == 3)
        && at(2).is_none_or(|minor| minor <= 4)
        && record_length.is_none_or(|length| (1..=LARGEST_RECORD).contains(&length))
        && at(5).is_none_or(|kind| matches!(kind, CLIENT_HELLO | SERVER_HELLO));
    if !fits {
        return Verdict::No;
    }
    // The message's header may lie in the next record.
    if record_length.is_some_and(|length| length < 6) && bytes.len() >= 6 {
        return Verdict::Record;
    }
    let fits = at(6).is_none_or(|high| high <= 3)
        && at(9).is_none_or(|major| matches!(major, 3 | 0x7f) || at(5) == Some(SERVER_HELLO));
    match (fits, bytes.len() >= 10) {
        (false, _) => Verdict::No,
        (true, true) => Verdict::Record,
        (true, false) => Verdict::Unclear,
    }
}

/// Checks for a record of any type.
pub(super) fn is_any_record(bytes: &[u8]) -> Verdict {
    let Some(&[kind, major, minor, high, low]) = bytes.first_chunk() else {
        let fits = bytes.first().is_none_or(|kind| (CHANGE_CIPHER_SPEC..=HEARTBEAT).contains(kind))
            && bytes.get(1).is_none_or(|major| *major == 3);
        return if fits { Verdict::Unclear } else { Verdict::No };
    };
    let length = u16::from_be_bytes([high, low]);
    let fits = major == 3
        && minor <= 4
        && match kind {
            CHANGE_CIPHER_SPEC => length == 1,
            ALERT => (2..=256).contains(&length),
            HANDSHAKE | APPLICATION_DATA => (1..=LARGEST_RECORD).contains(&length),
            _ => false,
        };
    if fits { Verdict::Record } else { Verdict::No }
}

/// Checks for a ClientHello in SSL 2 format (RFC 5246, E.2).
pub(super) fn is_sslv2_hello(bytes: &[u8]) -> Verdict {
    let &[high, low, CLIENT_HELLO, 3, minor, c1, c0, s1, s0, r1, r0] =
        bytes.first_chunk().unwrap_or(&[0; 11])
    else {
        return Verdict::No;
    };
    let length = usize::from(u16::from_be_bytes([high & 0x7f, low]));
    let [ciphers, session_id, challenge] =
        [[c1, c0], [s1, s0], [r1, r0]].map(|pair| usize::from(u16::from_be_bytes(pair)));
    let fits = high & 0x80 != 0
        && minor <= 4
        && ciphers % 3 == 0
        && ciphers > 0
        && matches!(session_id, 0 | 16)
        && (16..=32).contains(&challenge)
        && 9 + ciphers + session_id + challenge == length;
    match (fits, bytes.len() >= length + 2) {
        (false, _) => Verdict::No,
        (true, true) => Verdict::Sslv2Hello(length + 2),
        (true, false) => Verdict::Unclear,
    }
}
