//! The sessions that rustls 0.23 gives its store and its ticketer, as far as they must be understood.
//!
//! ```text
//! server name: 0, or 1 and a text of up to 255 bytes | version, 2 bytes | cipher suite, 2 | secret, up to 255
//! extended master secret, 1 | client's certificates: 0, or 1 and a list | ALPN: 0, or 1 and up to 255 bytes
//! the application's data, up to 65,535 | made, 8 | offset of ages, 4
//! ```
//! Memory that processes share, and tickets, outlive a program, and the next one may have another rustls. It would take
//! a session of another form for one with a wrong secret, and fail the handshake. So a session that does not have
//! exactly this form is not resumed.

/// Returns true if the session's client has shown a certificate. `None` if this is no session of the known form.
pub(crate) fn shows_certificate(session: &[u8]) -> Option<bool> {
    let mut rest = Rest(session);
    if rest.flag()? {
        rest.counted(1)?;
    }
    rest.skip(4)?;
    rest.counted(1)?;
    rest.flag()?;
    let shows = rest.flag()?;
    if shows {
        rest.counted(3)?;
    }
    if rest.flag()? {
        rest.counted(1)?;
    }
    rest.counted(2)?;
    rest.skip(12)?;
    rest.0.is_empty().then_some(shows)
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn flag(&mut self) -> Option<bool> {
        let (flag, rest) = self.0.split_first()?;
        self.0 = rest;
        (*flag < 2).then_some(*flag == 1)
    }

    /// Skips what a length of so many bytes counts.
    fn counted(&mut self, length_bytes: usize) -> Option<()> {
        let (length, rest) = self.0.split_at_checked(length_bytes)?;
        self.0 = rest;
        self.skip(length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a session with these parts.
    fn session(name: &[u8], chain: &[u8], alpn: &[u8]) -> Vec<u8> {
        let counted = |bytes: &[u8], length: &[u8]| [&[1], length, bytes].concat();
        let part = |bytes: &[u8], length: &[u8]| match bytes {
            [] => vec![0],
            bytes => counted(bytes, length),
        };
        [
            &part(name, &[name.len() as u8])[..],
            &[3, 4, 0x13, 1, 2, 8, 8, 0],
            &part(chain, &[0, 0, chain.len() as u8]),
            &part(alpn, &[alpn.len() as u8]),
            &[0, 1, 7],
            &[0; 12],
        ]
        .concat()
    }

    #[test]
    fn a_certificate_is_seen() {
        for (name, alpn) in [(&b""[..], &b""[..]), (b"a", b""), (b"", b"h2"), (b"a.example", b"h2")]
        {
            assert_eq!(shows_certificate(&session(name, b"", alpn)), Some(false));
            assert_eq!(shows_certificate(&session(name, b"\0\0\x01c", alpn)), Some(true));
        }
    }

    #[test]
    fn another_form_is_none() {
        let whole = session(b"a", b"\0\0\x01c", b"h2");
        for length in 0..whole.len() {
            assert_eq!(shows_certificate(&whole[..length]), None, "{length}");
        }
        assert_eq!(shows_certificate(&[&whole[..], &[0]].concat()), None);
        assert_eq!(shows_certificate(&[[2].as_slice(), &whole[1..]].concat()), None);
    }
}
