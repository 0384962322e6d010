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

use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};

/// Returns true if the session's client has shown a certificate. `None` if this is no session of the known form.
pub(crate) fn shows_certificate(session: &[u8]) -> Option<bool> {
    Some(certificates(session)?.is_some())
}

/// Returns true if the session's client has shown a certificate whose time is over by now, or cannot be read. The public
/// key that a client shows without a certificate (RFC 7250) has no end. Of the authorities that the client has shown, too, none
/// may be over: which of them it was verified by is not in the session, and a full handshake tells.
pub(crate) fn has_expired(session: &[u8], now_s: u64) -> bool {
    let Some(Some(chain)) = certificates(session) else { return false };
    let mut shown = Rest(chain);
    let Some(own) = shown.counted(3) else { return true };
    let is_over = |end_s| end_s < now_s.try_into().unwrap_or(i64::MAX);
    let mut authorities = std::iter::from_fn(|| shown.counted(3));
    end_s(own).map_or_else(|| !is_public_key(own), is_over)
        || authorities.any(|authority| end_s(authority).is_some_and(is_over))
}

/// Returns the Unix time at which the session was made. `None` if this is no session of the known form.
pub(crate) fn made_s(session: &[u8]) -> Option<u64> {
    certificates(session)?;
    let (made, _) = session.last_chunk::<12>()?.split_first_chunk()?;
    Some(u64::from_be_bytes(*made))
}

/// Returns true for a public key alone, which is a `SubjectPublicKeyInfo`.
fn is_public_key(shown: &[u8]) -> bool {
    SubjectPublicKeyInfo::from_der(shown).is_ok_and(|(rest, _)| rest.is_empty())
}

/// Returns the last second of a certificate's time, in Unix time.
fn end_s(certificate: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Returns the certificates that the session's client has shown, each after its length in 3 bytes, if it has shown any.
/// `None` if this is no session of the known form.
fn certificates(session: &[u8]) -> Option<Option<&[u8]>> {
    let mut rest = Rest(session);
    if rest.flag()? {
        rest.counted(1)?;
    }
    rest.skip(4)?;
    rest.counted(1)?;
    rest.flag()?;
    let chain = if rest.flag()? { Some(rest.counted(3)?) } else { None };
    if rest.flag()? {
        rest.counted(1)?;
    }
    rest.counted(2)?;
    rest.skip(12)?;
    rest.0.is_empty().then_some(chain)
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn flag(&mut self) -> Option<bool> {
        let (flag, rest) = self.0.split_first()?;
        self.0 = rest;
        (*flag < 2).then_some(*flag == 1)
    }

    /// Returns what a length of so many bytes counts.
    fn counted(&mut self, length_bytes: usize) -> Option<&'a [u8]> {
        let length = self.skip(length_bytes)?;
        self.skip(length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn skip(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (skipped, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(skipped)
    }
}

#[cfg(test)]
mod tests {
    use rejoin_testkit::certificates::Authority;
    use rejoin_testkit::certificates::rcgen::date_time_ymd;

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
    fn a_certificate_has_a_last_second() {
        let pair = Authority::new().issue_with(&["client"], |parameters| {
            parameters.not_after = date_time_ymd(2030, 1, 1);
        });
        const END_S: u64 = 1_893_456_000;
        let length = (pair.der.len() as u32).to_be_bytes();
        let one = [&length[1..], &pair.der].concat();
        let chain = [&one[..], b"\0\0\x01c"].concat();
        let of = |chain: &[u8]| {
            let length = (chain.len() as u32).to_be_bytes();
            let shown = [&[1], &length[1..], chain].concat();
            [&[0, 3, 4, 0x13, 1, 2, 8, 8, 0][..], &shown, &[0], &[0, 0], &[0; 12]].concat()
        };
        for chain in [&one, &chain] {
            let session = of(chain);
            assert_eq!(shows_certificate(&session), Some(true));
            assert!(!has_expired(&session, END_S) && has_expired(&session, END_S + 1));
        }
        for unreadable in [&b"\0\0\x01c"[..], b"\0\0\x09c", b"", &one[..one.len() - 1]] {
            assert!(has_expired(&of(unreadable), 0), "{unreadable:?}");
        }
        assert!(!has_expired(&session(b"a", b"", b"h2"), u64::MAX));
    }

    #[test]
    fn an_authority_that_was_shown_has_one_too() {
        const END_S: u64 = 1_893_456_000;
        let below = Authority::new().below_with(|parameters| {
            parameters.not_after = date_time_ymd(2030, 1, 1);
        });
        let pair = below.issue(&["client"]);
        let chain = [&pair.der[..], below.der()].map(|der| {
            let length = (der.len() as u32).to_be_bytes();
            [&length[1..], der].concat()
        });
        let chain = chain.concat();
        let length = (chain.len() as u32).to_be_bytes();
        let shown = [&[1], &length[1..], &chain].concat();
        let session =
            [&[0, 3, 4, 0x13, 1, 2, 8, 8, 0][..], &shown, &[0], &[0, 0], &[0; 12]].concat();
        assert_eq!(shows_certificate(&session), Some(true));
        assert!(!has_expired(&session, END_S) && has_expired(&session, END_S + 1));
    }

    #[test]
    fn a_public_key_without_a_certificate_has_no_end() {
        let pair = Authority::new().issue(&["client"]);
        let (_, certificate) = X509Certificate::from_der(&pair.der).expect("a certificate");
        let key = certificate.public_key().raw;
        let one = [&[0, 0, key.len() as u8], key].concat();
        assert_eq!(shows_certificate(&session(b"a", &one, b"")), Some(true));
        assert!(!has_expired(&session(b"a", &one, b""), u64::MAX));
        let longer = [&[0, 0, key.len() as u8 + 1], key, &[0]].concat();
        assert!(has_expired(&session(b"a", &longer, b""), 0));
        let shorter = [&[0, 0, key.len() as u8 - 1], &key[..key.len() - 1]].concat();
        assert!(has_expired(&session(b"a", &shorter, b""), 0));
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
