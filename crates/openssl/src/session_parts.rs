//! A serialised session, divided into the parts of its own and those that sessions have in common.
//!
//! The form is OpenSSL's own (`ssl_asn1.c`): a DER sequence of five fields without a tag of their own, and of others
//! that have one and may be missing. Fields that are not known here count as common.

use libc::c_long;

/// The parts of a session that brings its client's certificate. [`SessionParts::common`] contains no secret.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq, Eq))]
pub(crate) struct SessionParts<'v> {
    pub(crate) id: &'v [u8],
    pub(crate) secret: &'v [u8],
    /// The Unix time when it was made, in seconds.
    pub(crate) time_s: c_long,
    /// The program's data, or an empty slice.
    pub(crate) application_data: &'v [u8],
    /// All fields but the two mandatory ones above.
    before: &'v [u8],
    after: &'v [u8],
}

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
/// The tags of `SSL_SESSION_ASN1`.
const TIME: u8 = 0xa1;
const PEER: u8 = 0xa3;
const LIFETIME_HINT: u8 = 0xa9;
const TICKET: u8 = 0xaa;
const AGE_ADD: u8 = 0xae;
const EARLY_DATA: u8 = 0xaf;
const APPLICATION_DATA: u8 = 0xb2;
/// The mark of tags of more than one byte, which no field has yet.
const LONG_TAG: u8 = 0x1f;

impl<'v> SessionParts<'v> {
    /// Divides a session. `None` if it brings no certificate, or cannot be a copy of another session:
    ///
    /// - a session that allows early data, whose acceptance depends on a number that OpenSSL has no function to set
    ///   (`tick_age_add`). The number has no other use;
    /// - a client's session, with its ticket;
    /// - a session without a time, which OpenSSL takes for made now.
    pub(crate) fn of(session: &'v [u8]) -> Option<Self> {
        let (whole, rest) = Element::first(session)?;
        let is_whole = whole.tag == SEQUENCE && rest.is_empty();
        let fields = is_whole.then_some(whole.content)?;
        let mut rest = fields;
        for tag in [INTEGER, INTEGER, OCTETS] {
            rest = Element::tagged(rest, tag)?.1;
        }
        let before = fields.get(..fields.len() - rest.len())?;
        let (id, rest) = Element::tagged(rest, OCTETS)?;
        let (secret, after) = Element::tagged(rest, OCTETS)?;
        let mut parts = Self {
            id: id.content,
            secret: secret.content,
            time_s: 0,
            application_data: &[],
            before,
            after,
        };
        let mut brings_certificate = false;
        for field in elements(after) {
            let field = field?;
            match field.tag {
                TIME => parts.time_s = field.number()?,
                PEER => brings_certificate = true,
                LIFETIME_HINT | TICKET | EARLY_DATA => return None,
                APPLICATION_DATA => {
                    parts.application_data = Element::only(field.content, OCTETS)?.content;
                }
                tag if tag & LONG_TAG == LONG_TAG => return None,
                _ => {}
            }
        }
        (brings_certificate && parts.time_s > 0).then_some(parts)
    }

    /// Removes the id and the data, and replaces the secret.
    pub(crate) fn anonymous(self, secret: &'v [u8]) -> Self {
        Self { id: &[], secret, application_data: &[], ..self }
    }

    /// Keeps only the parts of its own.
    #[cfg(test)]
    pub(crate) fn without_rest(self) -> Self {
        Self { before: &[], after: &[], ..self }
    }

    /// Returns the bytes that sessions may have in common: all fields but those above and the number that only
    /// early data depends on.
    pub(crate) fn common(&self) -> Vec<u8> {
        let mut common = Vec::with_capacity(self.before.len() + self.after.len());
        common.extend_from_slice(self.before);
        for field in elements(self.after).flatten() {
            if !matches!(field.tag, TIME | AGE_ADD | APPLICATION_DATA) {
                common.extend_from_slice(field.whole);
            }
        }
        common
    }
}

/// An element of DER: a tag, a length, and the content.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug))]
struct Element<'v> {
    tag: u8,
    content: &'v [u8],
    whole: &'v [u8],
}

impl<'v> Element<'v> {
    /// Reads the first element, and returns it with the bytes after it.
    fn first(bytes: &'v [u8]) -> Option<(Self, &'v [u8])> {
        let (&[tag, first], rest) = bytes.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81 | 0x82 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x0f))?;
                (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        let whole = bytes.get(..bytes.len() - rest.len())?;
        Some((Self { tag, content, whole }, rest))
    }

    fn tagged(bytes: &'v [u8], tag: u8) -> Option<(Self, &'v [u8])> {
        Self::first(bytes).filter(|(element, _)| element.tag == tag)
    }

    fn only(bytes: &'v [u8], tag: u8) -> Option<Self> {
        let (element, rest) = Self::tagged(bytes, tag)?;
        rest.is_empty().then_some(element)
    }

    /// Returns the integer in the element, if it is positive or zero.
    fn number(&self) -> Option<c_long> {
        let digits = Self::only(self.content, INTEGER)?.content;
        let is_one = (1..=8).contains(&digits.len()) && digits[0] < 0x80;
        is_one.then(|| digits.iter().fold(0, |sum, digit| sum << 8 | c_long::from(*digit)))
    }
}

/// Iterates over elements, and ends with `None` where one is not well-formed.
fn elements(bytes: &[u8]) -> impl Iterator<Item = Option<Element<'_>>> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest.filter(|rest| !rest.is_empty())?;
        let first = Element::first(bytes);
        rest = first.map(|(_, rest)| rest);
        Some(first.map(|(element, _)| element))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let length = match length {
            0..=0x7f => vec![length as u8],
            0x80..=0xff => vec![0x81, length as u8],
            _ => vec![0x82, (length >> 8) as u8, length as u8],
        };
        [&[tag][..], &length, content].concat()
    }

    fn session(id: u8, fields: &[Vec<u8>]) -> Vec<u8> {
        let numbers = [element(INTEGER, &[1]), element(INTEGER, &[3, 4])];
        let octets =
            [vec![0x13, 2], vec![id; 32], vec![id + 1; 48]].map(|all| element(OCTETS, &all));
        element(SEQUENCE, &[numbers.concat(), octets.concat(), fields.concat()].concat())
    }

    fn time(seconds: u8) -> Vec<u8> {
        element(TIME, &element(INTEGER, &[0, 0x80, seconds]))
    }

    fn peer(certificate: u8) -> Vec<u8> {
        element(PEER, &element(SEQUENCE, &[certificate; 700]))
    }

    #[test]
    fn what_differs_is_apart() {
        let context = element(0xa4, &element(OCTETS, b"rejoin"));
        let data = element(APPLICATION_DATA, &element(OCTETS, b"rj"));
        let age = element(AGE_ADD, &element(INTEGER, &[9]));
        let one = session(1, &[time(5), peer(7), context.clone(), age, data]);
        let one = SessionParts::of(&one).expect("parts");
        assert_eq!((one.id, one.secret), (&[1; 32][..], &[2; 48][..]));
        assert_eq!((one.time_s, one.application_data), (0x8005, &b"rj"[..]));
        let other = session(3, &[time(6), peer(7), context.clone()]);
        let other = SessionParts::of(&other).expect("parts");
        assert_eq!(other.application_data, b"");
        assert_eq!(one.common(), other.common());
        assert!(!one.common().windows(4).any(|bytes| bytes == [1; 4] || bytes == [2; 4]));
        for differs in [
            session(1, &[time(5), peer(8), context]),
            session(1, &[time(5), peer(7), element(0xa4, &element(OCTETS, b"other"))]),
            session(1, &[time(5), peer(7)]),
        ] {
            let differs = SessionParts::of(&differs).expect("parts");
            assert_ne!(one.common(), differs.common());
        }
    }

    #[test]
    fn what_cannot_be_a_copy_is_left() {
        let number = |tag| element(tag, &element(INTEGER, &[1]));
        for fields in [
            vec![time(5)],
            vec![peer(7)],
            vec![element(TIME, &element(INTEGER, &[0x80])), peer(7)],
            vec![time(5), peer(7), number(EARLY_DATA)],
            vec![time(5), peer(7), number(LIFETIME_HINT)],
            vec![time(5), peer(7), number(TICKET)],
            vec![time(5), peer(7), vec![0xbf, 0x20, 0]],
            vec![time(5), peer(7), vec![0xa4, 9]],
        ] {
            assert!(SessionParts::of(&session(1, &fields)).is_none(), "{fields:?}");
        }
    }

    #[test]
    fn nothing_else_is_a_session() {
        let whole = session(1, &[time(5), peer(7)]);
        assert!(SessionParts::of(&whole).is_some());
        for end in 0..whole.len() {
            assert!(SessionParts::of(&whole[..end]).is_none(), "{end}");
        }
        assert!(SessionParts::of(&[&whole[..], &[0]].concat()).is_none());
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x81;
            // Whatever it says, it says without a panic.
            let _ = SessionParts::of(&changed).map(|parts| parts.common());
        }
    }
}
