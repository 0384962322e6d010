//! What rustls shows of a session.
//!
//! A ticket's lifetime, its length, and whether a session of TLS 1.2 has an extended master secret
//! are in rustls' session values and not in its interface, but in their `Debug` form, which leaves
//! the secret out. It is counted here while it is written, two of its fields are read, and no
//! text of it is kept. The lifetime comes after the ticket and before the certificates: there the
//! writing is broken off. What is not found is not known, and such a session is not stored.

use std::fmt::{self, Write};

use super::stored::Secret;

/// What is known of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// As its server said, seven days at most; 0 for "use it no more", of TLS 1.2 for "I do not
    /// say".
    pub(super) lifetime_s: u32,
    /// About what it takes, without the certificates.
    pub(super) bytes: u64,
}

/// `None` also for a ticket that is not to be used (`RFC 8446, section 4.6.1`), and for a session of TLS 1.2 without
/// an extended master secret.
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
