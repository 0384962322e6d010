//! The OCSP responses (RFC 6960) that servers staple, and how long one stands for what a full handshake would show.
//!
//! Nothing here verifies a response: the program does. What is read here only takes sessions away from programs that ask
//! for a response.

use std::ops::Range;
use std::sync::Arc;

use x509_parser::asn1_rs::{Any, Class, FromDer, GeneralizedTime, Tag};

use crate::trust::certificates::Chain;

/// The outcome of a full handshake's question for a response. The manager asks in each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stapled {
    /// The server stapled nothing, and its certificate does not demand a response.
    Nothing,
    /// A response by which the certificate is good, and the times of day, in seconds, for which it holds.
    Good { response: Arc<[u8]>, holds: Range<u64> },
    /// A response that says something else, that may be outdated at any time, that is too long to keep or does not parse; or
    /// none, though the certificate demands one. Only a full handshake shows what a program would see.
    Unusable,
}

impl Stapled {
    /// The longest response that is kept: with the certificate of its signer it has about 2 KiB.
    const LONGEST_BYTES: usize = 16 * 1024;
    /// The time after the full handshake in which its response, or that there was none, stands for what another one would
    /// show. Apache staples a response for an hour by default, and nginx asks for a new one after an hour.
    const MOST_AGE_MS: u64 = 3_600 * 1_000;

    pub(crate) fn of(response: Option<&Arc<[u8]>>, chain: &Chain) -> Self {
        match response {
            None if chain.demands_staple => Self::Unusable,
            None => Self::Nothing,
            Some(response) if response.len() > Self::LONGEST_BYTES => Self::Unusable,
            Some(response) => match good(response) {
                Some(holds) => Self::Good { response: Arc::clone(response), holds },
                None => Self::Unusable,
            },
        }
    }

    /// Returns true if a program that asks for a response would see as much in a full handshake now.
    pub(crate) fn stands(&self, age_ms: u64, unix_s: u64) -> bool {
        let holds = match self {
            Self::Nothing => true,
            Self::Good { holds, .. } => holds.contains(&unix_s),
            Self::Unusable => false,
        };
        holds && age_ms < Self::MOST_AGE_MS
    }

    pub(crate) fn response(&self) -> Option<&Arc<[u8]>> {
        match self {
            Self::Good { response, .. } => Some(response),
            _ => None,
        }
    }

    /// Returns the memory of the response.
    pub(crate) fn bytes(&self) -> u64 {
        self.response().map_or(0, |response| response.len() as u64)
    }
}

/// The type `id-pkix-ocsp-basic` (RFC 6960, section 4.2.1).
const BASIC: [u8; 9] = [0x2b, 6, 1, 5, 5, 7, 48, 1, 1];

/// Returns the times for which a response says that all of its certificates are good. `None`: it says something else, not
/// until when, or does not parse.
fn good(mut response: &[u8]) -> Option<Range<u64>> {
    let mut outer = sequence(&mut response)?;
    let is_successful = universal(&mut outer, Tag::Enumerated)? == [0];
    let mut typed = context(&mut outer, 0).filter(|_| is_successful)?;
    let mut typed = sequence(&mut typed)?;
    let is_basic = universal(&mut typed, Tag::Oid)? == BASIC;
    let mut basic = universal(&mut typed, Tag::OctetString).filter(|_| is_basic)?;
    let mut basic = sequence(&mut basic)?;
    let mut data = sequence(&mut basic)?;
    // The version, the responder's name or key, and the time at which it answered.
    let _ = context(&mut data, 0);
    context(&mut data, 1).or_else(|| context(&mut data, 2))?;
    time(&mut data)?;
    let mut answers = sequence(&mut data)?;
    let mut holds = single(sequence(&mut answers)?)?;
    while !answers.is_empty() {
        let Range { start, end } = single(sequence(&mut answers)?)?;
        holds = holds.start.max(start)..holds.end.min(end);
    }
    Some(holds)
}

/// Reads the answer about one certificate (`SingleResponse`).
fn single(mut answer: &[u8]) -> Option<Range<u64>> {
    sequence(&mut answer)?;
    // The status: 0 is good, 1 revoked, 2 unknown.
    context(&mut answer, 0)?;
    let from = time(&mut answer)?;
    let mut next = context(&mut answer, 0)?;
    Some(from..time(&mut next)?)
}

fn sequence<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    universal(rest, Tag::Sequence)
}

fn universal<'a>(rest: &mut &'a [u8], tag: Tag) -> Option<&'a [u8]> {
    element(rest, Class::Universal, tag).map(|any| any.data)
}

/// Takes the element with this number in its context.
fn context<'a>(rest: &mut &'a [u8], number: u32) -> Option<&'a [u8]> {
    element(rest, Class::ContextSpecific, Tag(number)).map(|any| any.data)
}

fn time(rest: &mut &[u8]) -> Option<u64> {
    let any = element(rest, Class::Universal, Tag::GeneralizedTime)?;
    let time = GeneralizedTime::try_from(any).ok()?.utc_datetime().ok()?;
    u64::try_from(time.unix_timestamp()).ok()
}

/// Takes the next element. `None`: it is another one, which stays, or the bytes are no DER.
fn element<'a>(rest: &mut &'a [u8], class: Class, tag: Tag) -> Option<Any<'a>> {
    let (after, any) = Any::from_der(rest).ok()?;
    if any.class() != class || any.tag() != tag {
        return None;
    }
    *rest = after;
    Some(any)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{SystemTime, UNIX_EPOCH};

    use rejoin_testkit::certificates::Authority;
    use rejoin_testkit::folder::Folder;
    use rejoin_testkit::staples::{GOOD, REVOKED, staple};
    use rustls::pki_types::CertificateDer;

    use super::*;
    use crate::trust::certificates::Certificates;

    const DAY_S: u64 = 24 * 3_600;

    fn now_s() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
    }

    /// Returns what is kept of a response, and the response.
    fn kept(status: &str, times: &[&str]) -> (Stapled, Arc<[u8]>) {
        let (folder, authority) = (Folder::new(), Authority::new());
        let own = authority.issue(&["localhost"]);
        own.write(&folder.join("own"));
        let path = folder.join("own.pem").display().to_string();
        let response = fs::read(staple(&folder, &authority, &path, (status, times)));
        let response: Arc<[u8]> = response.expect("a file").into();
        let chain = Certificates::default().intern(&[CertificateDer::from(own.der)]);
        (Stapled::of(Some(&response), &chain.expect("a certificate")), response)
    }

    #[test]
    fn a_good_response_stands_until_its_next_update_and_for_an_hour() {
        let (stapled, response) = kept(GOOD, &["-ndays", "2"]);
        assert_eq!(stapled.response(), Some(&response));
        let now_s = now_s();
        assert!(stapled.stands(0, now_s) && stapled.stands(3_599_999, now_s + 2 * DAY_S - 60));
        assert!(!stapled.stands(3_600_000, now_s));
        assert!(!stapled.stands(0, now_s + 2 * DAY_S + 60) && !stapled.stands(0, now_s - DAY_S));
    }

    #[test]
    fn no_other_response_stands_for_another_one() {
        assert_eq!(kept(REVOKED, &["-ndays", "2"]).0, Stapled::Unusable);
        assert_eq!(kept(GOOD, &[]).0, Stapled::Unusable);
        assert!(!Stapled::Unusable.stands(0, now_s()));
        assert!(Stapled::Nothing.stands(0, 0) && !Stapled::Nothing.stands(3_600_000, 0));
    }

    #[test]
    fn a_response_that_is_cut_or_too_long_is_not_kept() {
        let (_, response) = kept(GOOD, &["-ndays", "2"]);
        for end in 0..response.len() {
            assert_eq!(good(&response[..end]), None);
        }
        let pair = Authority::new().issue(&["localhost"]);
        let chain = Certificates::default().intern(&[CertificateDer::from(pair.der)]);
        let long: Arc<[u8]> = vec![0; Stapled::LONGEST_BYTES + 1].into();
        let chain = chain.expect("a certificate");
        assert_eq!(Stapled::of(Some(&long), &chain), Stapled::Unusable);
        assert_eq!(Stapled::of(None, &chain), Stapled::Nothing);
    }
}
