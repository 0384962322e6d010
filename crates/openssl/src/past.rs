//! The client's past that a session carries, in its own ticket or in the cache.
//!
//! A session can carry application data, which OpenSSL encrypts and authenticates with a ticket. Ours holds the time
//! of the client's last full handshake, because over TLS 1.3 every resumption makes a new session, whose lifetime
//! begins anew. In a stateless ticket it also holds the time when the client was last seen and its [`History`] then.
//! It takes 7 or 19 bytes, and 4 more if the client has shown a certificate.
//!
//! Over TLS 1.2 a session carries nothing. Its lifetime does not begin anew. To hold the time of its last use it
//! would have to be renewed every time, which misleads OpenSSL's client: it marks the old session as not resumable,
//! and calls the program's callback for new sessions on a full handshake only.
//!
//! ```text
//! "rj", 2 bytes | version, 1 | full handshake, seconds of Unix time, 4
//! version 3: the end of the client's certificates, seconds of Unix time, 4
//! last seen, milliseconds of Unix time, 8 | history, 4
//! ```

use openssl_sys::{SSL, SSL_SESSION};
use rejoin_cache::History;

use crate::ffi;

/// The past that a session tells of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) authenticated_s: u32,
    /// The time from which on one of the certificates is over that the client was verified by.
    pub(crate) ends_s: Option<u32>,
    pub(crate) last_visit: Option<LastVisit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastVisit {
    pub(crate) seen_ms: u64,
    pub(crate) history: History,
}

impl Past {
    const PREFIX: [u8; 3] = *b"rj\x02";
    const PREFIX_WITH_END: [u8; 3] = *b"rj\x03";

    fn to_bytes(self) -> Vec<u8> {
        let prefix = if self.ends_s.is_some() { Self::PREFIX_WITH_END } else { Self::PREFIX };
        let mut bytes = [&prefix[..], &self.authenticated_s.to_le_bytes()].concat();
        bytes.extend(self.ends_s.into_iter().flat_map(u32::to_le_bytes));
        if let Some(LastVisit { seen_ms, history }) = self.last_visit {
            bytes.extend_from_slice(&seen_ms.to_le_bytes());
            bytes.extend_from_slice(&history.to_bytes());
        }
        bytes
    }

    /// Reads the past of a session. `None` if it has no application data, or another program's.
    ///
    /// # Safety
    /// `session` is null or valid, and its data is not set meanwhile.
    pub(crate) unsafe fn of(session: *mut SSL_SESSION) -> Option<Self> {
        // SAFETY: the caller vouches for `session`.
        Self::from_bytes(unsafe { application_data(session) })
    }

    /// Reads application data. `None` for data of another program.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (prefix, rest) = bytes.split_first_chunk()?;
        let (authenticated_s, rest) = rest.split_first_chunk()?;
        let authenticated_s = u32::from_le_bytes(*authenticated_s);
        let (ends_s, rest) = match *prefix {
            Self::PREFIX => (None, rest),
            Self::PREFIX_WITH_END => {
                let (ends_s, rest) = rest.split_first_chunk()?;
                (Some(u32::from_le_bytes(*ends_s)), rest)
            }
            _ => return None,
        };
        if rest.is_empty() {
            return Some(Self { authenticated_s, ends_s, last_visit: None });
        }
        let (seen_ms, history) = rest.split_first_chunk()?;
        let history = History::from_bytes(history.try_into().ok()?);
        let last_visit = Some(LastVisit { seen_ms: u64::from_le_bytes(*seen_ms), history });
        Some(Self { authenticated_s, ends_s, last_visit })
    }
}

/// Returns the time from which on one of the certificates is over that a session's client was verified by, as the session
/// carries it.
///
/// # Safety
/// `session` is valid.
pub(crate) unsafe fn ends_s(session: *mut SSL_SESSION) -> Option<u32> {
    // SAFETY: the caller vouches for `session`.
    unsafe { Past::of(session) }.and_then(|past| past.ends_s)
}

/// Returns the Unix time of the full handshake that a session comes from. A session that does not carry it was made
/// in that handshake.
///
/// # Safety
/// `session` is valid.
pub(crate) unsafe fn authenticated_s(session: *mut SSL_SESSION) -> u64 {
    // SAFETY: the caller vouches for `session`.
    let past = unsafe { Past::of(session) };
    past.map_or_else(
        || {
            // SAFETY: the caller vouches for `session`; the call only reads a number.
            let made_s = unsafe { openssl_sys::SSL_SESSION_get_time(session) };
            u64::try_from(made_s).unwrap_or(0)
        },
        |past| u64::from(past.authenticated_s),
    )
}

/// Writes the time of the full handshake into a session of TLS 1.3, and the end of the client's certificates. The session
/// of a full handshake without certificates needs no such note, because its own time says the same.
///
/// # Safety
/// `session` is valid, and nobody else uses it.
pub(crate) unsafe fn inherit(session: *mut SSL_SESSION, authenticated_s: u64, ends_s: Option<u32>) {
    let past = Past { authenticated_s: authenticated_s as u32, ends_s, last_visit: None };
    // SAFETY: the caller vouches for `session`.
    unsafe { carry(session, past) };
}

/// Makes a session carry a past, unless it has application data of another program.
///
/// # Safety
/// `session` is valid, and nobody else uses it.
pub(crate) unsafe fn carry(session: *mut SSL_SESSION, past: Past) {
    // SAFETY: the caller vouches for `session`.
    let data = unsafe { application_data(session) };
    if !data.is_empty() && Past::from_bytes(data).is_none() {
        return;
    }
    let bytes = past.to_bytes();
    // SAFETY: it copies the bytes. Without memory the session carries nothing.
    unsafe { ffi::SSL_SESSION_set1_ticket_appdata(session, bytes.as_ptr().cast(), bytes.len()) };
}

/// Returns true for TLS 1.3, whose clients use a ticket once.
///
/// # Safety
/// `ssl` is valid.
pub(crate) unsafe fn is_single_use(ssl: *const SSL) -> bool {
    // SAFETY: the caller vouches for `ssl`.
    unsafe { openssl_sys::SSL_version(ssl) == openssl_sys::TLS1_3_VERSION }
}

/// Returns a session's application data, or an empty slice.
///
/// # Safety
/// `session` is null or valid for `'a`, during which its data is not set.
unsafe fn application_data<'a>(session: *mut SSL_SESSION) -> &'a [u8] {
    let (mut data, mut length) = (std::ptr::null_mut(), 0);
    let found = !session.is_null() && {
        // SAFETY: the caller vouches for `session`.
        let read = unsafe {
            ffi::SSL_SESSION_get0_ticket_appdata(session, &raw mut data, &raw mut length)
        };
        read == 1
    };
    if !found || data.is_null() {
        return &[];
    }
    // SAFETY: OpenSSL has given `length` bytes of the session.
    unsafe { std::slice::from_raw_parts(data.cast(), length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_past_is_read_as_it_was_written() {
        let history = History::from_bytes([1, 2, 3, 4]);
        let last_visit = Some(LastVisit { seen_ms: 1_800_000_000_123, history });
        let end = Some(1_900_000_000);
        let all = [(last_visit, None, 19), (None, None, 7), (last_visit, end, 23), (None, end, 11)];
        for (past, length) in all.map(|(last_visit, ends_s, length)| {
            (Past { authenticated_s: 1_800_000_000, ends_s, last_visit }, length)
        }) {
            let bytes = past.to_bytes();
            assert_eq!((Past::from_bytes(&bytes), bytes.len()), (Some(past), length));
            assert_eq!(Past::from_bytes(&bytes[..length - 1]), None);
            assert_eq!(Past::from_bytes(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(Past::from_bytes(&[0; 19]), None);
        assert_eq!(Past::from_bytes(&[]), None);
    }
}
