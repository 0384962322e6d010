//! Facts about a session that rustls shows only in `Debug` form.
//!
//! rustls' session values contain a ticket's lifetime, its length, and the use of an extended master secret in
//! TLS 1.2, but the interface does not expose them. Their `Debug` form does, without the secret. This module counts
//! that text as it is written, reads two of its fields, and keeps none of it. The lifetime comes after the ticket
//! and before the certificates, where the writing is cut short. A session of which a field is missing is not stored.

use std::fmt::{self, Write};

use super::stored::Secret;

/// The facts about a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// The lifetime that the server gave, seven days at most. 0 means "do not use" in TLS 1.3, and "unspecified" in
    /// TLS 1.2.
    pub(super) lifetime_s: u32,
    /// The approximate memory of the session, without the certificates.
    pub(super) bytes: u64,
}

/// Reads the facts. `None`: a field is missing, the ticket must not be used (`RFC 8446, section 4.6.1`), or a TLS 1.2
/// session has no extended master secret.
pub(super) fn of(secret: &Secret) -> Option<Seen> {
    let (reader, is_usable): (_, fn(&Reader) -> bool) = match secret {
        Secret::Tls13(value) => (Reader::of(value)?, |reader| reader.lifetime_s > Some(0)),
        Secret::Tls12(value) => (Reader::of(value)?, |reader| reader.extended_ms == Some(true)),
    };
    let seen = Seen { lifetime_s: reader.lifetime_s?, bytes: reader.bytes() };
    is_usable(&reader).then_some(seen)
}

/// Reads a `Debug` form piece by piece, as formatters write it: a field's name, a colon, its
/// value.
#[derive(Default)]
struct Reader {
    length: u64,
    field: Option<Field>,
    lifetime_s: Option<u32>,
    extended_ms: Option<bool>,
}

#[derive(Clone, Copy)]
enum Field {
    Lifetime,
    ExtendedMs,
}

impl Reader {
    fn of(value: &impl fmt::Debug) -> Option<Self> {
        let mut reader = Self::default();
        // An error says that all that is wanted has been read.
        write!(reader, "{value:?}").is_err().then_some(reader)
    }

    /// Bytes are written in hexadecimal: two characters each. Names and brackets make up for
    /// what is not written.
    fn bytes(&self) -> u64 {
        self.length / 2 + 256
    }
}

impl Write for Reader {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.length += piece.len() as u64;
        match (self.field, piece) {
            (_, "lifetime_secs") => self.field = Some(Field::Lifetime),
            (_, "extended_ms") => self.field = Some(Field::ExtendedMs),
            (_, ": ") => {}
            (Some(Field::Lifetime), number) => {
                self.lifetime_s = number.parse().ok();
                return Err(fmt::Error);
            }
            (Some(Field::ExtendedMs), verdict) => {
                self.extended_ms = verdict.parse().ok();
                self.field = None;
            }
            (None, _) => {}
        }
        Ok(())
    }
}
