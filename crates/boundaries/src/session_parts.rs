//! Serialised sessions, of which parts come from templates: a session is decoded as OpenSSL alone decodes it.
//!
//! The input is a session and changes of it. All go through one decoder, whose templates later sessions may use.
//!
//! ```text
//! length of the session, 2 bytes, big-endian | session | changes: place, 2 bytes | exclusive or, 1 byte
//! ```

use openssl::error::ErrorStack;
use openssl::ssl::SslSession;
use rejoin_openssl::SessionDecoder;

const MOST_CHANGES: usize = 16;
/// The tag of `tick_age_add`, which bears on early data only: a session with a template has the template's.
const AGE_ADD: u8 = 0xae;
const PEER: u8 = 0xa3;

pub(crate) fn check(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let length = rest.len().min(u16::from_be_bytes(*length).into());
    let (session, changes) = rest.split_at(length);
    let decoder = SessionDecoder::new(1 << 20, [6; 2]);
    let mut session = session.to_vec();
    compare(&decoder, &session);
    // A template is used from the second session on.
    compare(&decoder, &session);
    for [high, low, with] in changes.as_chunks::<3>().0.iter().take(MOST_CHANGES) {
        let Some(place) = usize::from(u16::from_be_bytes([*high, *low])).checked_rem(length) else {
            return;
        };
        session[place] ^= with;
        compare(&decoder, &session);
    }
}

fn compare(decoder: &SessionDecoder, session: &[u8]) {
    let ours = decoder.decode(session);
    assert!(ErrorStack::get().errors().is_empty(), "an error is left in OpenSSL's queue");
    let theirs = SslSession::from_der(session).ok();
    let written = |session: &SslSession| session.to_der().ok();
    let (ours, theirs) = (ours.as_ref().map(written), theirs.as_ref().map(written));
    drop(ErrorStack::get());
    match (ours, theirs) {
        (None, None) => {}
        (None, Some(_)) => panic!("OpenSSL decodes it"),
        (Some(ours), Some(theirs)) => {
            assert_eq!(ours.as_deref().map(without_age), theirs.as_deref().map(without_age));
        }
        // A form that OpenSSL never writes, of a known client's session.
        (Some(ours), None) => {
            let ours = ours.expect("a copy can be written");
            let fields = fields(&ours);
            let is_own = |place: usize, tag| {
                let own = fields.iter().skip(place).find(|field| field[0] == tag).expect("a field");
                session.windows(own.len()).any(|part| part == *own)
            };
            // The session's id, its secret, and its client's certificate.
            assert!(is_own(3, 4) && is_own(4, 4) && is_own(5, PEER), "not of these bytes");
        }
    }
}

fn without_age(session: &[u8]) -> Vec<&[u8]> {
    let mut fields = fields(session);
    fields.retain(|field| field[0] != AGE_ADD);
    fields
}

/// Returns the fields of a session that OpenSSL wrote.
fn fields(session: &[u8]) -> Vec<&[u8]> {
    let (head, whole) = lengths(session);
    assert_eq!(whole, session.len());
    let (mut rest, mut fields) = (&session[head..], Vec::new());
    while !rest.is_empty() {
        let (field, after) = rest.split_at(lengths(rest).1);
        fields.push(field);
        rest = after;
    }
    fields
}

/// Returns the length of an element's tag and length, and of all of it.
fn lengths(element: &[u8]) -> (usize, usize) {
    let digits = match element[1] {
        short @ 0..0x80 => return (2, 2 + usize::from(short)),
        long => usize::from(long & 0x7f),
    };
    let length = element[2..2 + digits].iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
    (2 + digits, 2 + digits + length)
}
