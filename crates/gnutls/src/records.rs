//! The records of a TLS 1.2 server up to its certificates (RFC 5246, section 7.4).

/// The suites of ECDHE with AES-128-GCM (RFC 5289).
const ECDHE_ECDSA: [u8; 2] = [0xc0, 0x2b];
const ECDHE_RSA: [u8; 2] = [0xc0, 0x2f];

const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;
const CERTIFICATE_STATUS: u8 = 22;
const TLS12: [u8; 2] = [3, 3];
/// The length of the records. TLS allows 16 KiB.
const RECORD_BYTES: usize = 8 * 1024;

const STATUS_REQUEST: u16 = 5;
const EXTENDED_MASTER_SECRET: u16 = 23;
const RENEGOTIATION_INFO: u16 = 0xff01;

/// The properties of a server that its records show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shows<'a> {
    /// The server's certificates in DER, its own first.
    pub(crate) chain: &'a [&'a [u8]],
    /// True if its key makes signatures of ECDSA or EdDSA.
    pub(crate) is_of_curve: bool,
    /// The stapled OCSP response about its own certificate.
    pub(crate) staple: Option<&'a [u8]>,
    /// True if the client asks for extended master secrets.
    pub(crate) has_extended_master_secret: bool,
}

/// Writes the records. `None`: a certificate or the list is too long for TLS.
pub(crate) fn of_server(shows: Shows<'_>) -> Option<Vec<u8>> {
    let mut said = message(SERVER_HELLO, &server_hello(shows)?)?;
    let mut list = Vec::new();
    for certificate in shows.chain {
        list.extend(vector(3, certificate)?);
    }
    said.extend(message(CERTIFICATE, &vector(3, &list)?)?);
    if let Some(staple) = shows.staple {
        // The status type 1 is OCSP (RFC 6066, section 8).
        said.extend(message(CERTIFICATE_STATUS, &[&[1], &vector(3, staple)?[..]].concat())?);
    }
    let record = |piece: &[u8]| Some([&[HANDSHAKE][..], &TLS12, &vector(2, piece)?].concat());
    let records: Option<Vec<_>> = said.chunks(RECORD_BYTES).map(record).collect();
    Some(records?.concat())
}

fn server_hello(shows: Shows<'_>) -> Option<Vec<u8>> {
    let extension =
        |kind: u16, content: &[u8]| Some([&kind.to_be_bytes()[..], &vector(2, content)?].concat());
    let mut extensions = extension(RENEGOTIATION_INFO, &[0])?;
    if shows.has_extended_master_secret {
        extensions.extend(extension(EXTENDED_MASTER_SECRET, &[])?);
    }
    if shows.staple.is_some() {
        extensions.extend(extension(STATUS_REQUEST, &[])?);
    }
    let suite = if shows.is_of_curve { ECDHE_ECDSA } else { ECDHE_RSA };
    let (random, no_session_id, no_compression) = ([0x5a; 32], [0], [0]);
    let extensions = vector(2, &extensions)?;
    let parts = [&TLS12[..], &random, &no_session_id, &suite, &no_compression, &extensions];
    Some(parts.concat())
}

fn message(kind: u8, body: &[u8]) -> Option<Vec<u8>> {
    Some([&[kind], &vector(3, body)?[..]].concat())
}

/// Writes a vector: its length in this many bytes, and the content. `None`: the content is too long for that.
fn vector(bytes: usize, content: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(content.len()).ok().filter(|length| length >> (8 * bytes) == 0)?;
    Some([&length.to_be_bytes()[4 - bytes..], content].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the messages in the records, each whole.
    fn messages(mut records: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut said = Vec::new();
        while let [22, 3, 3, high, low, rest @ ..] = records {
            let (piece, more) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
            assert!(piece.len() <= 16 * 1024);
            said.extend_from_slice(piece);
            records = more;
        }
        assert!(records.is_empty());
        let (mut left, mut found) = (&said[..], Vec::new());
        while let [kind, a, b, c, rest @ ..] = left {
            let (body, more) = rest.split_at(u32::from_be_bytes([0, *a, *b, *c]) as usize);
            found.push((*kind, body.to_vec()));
            left = more;
        }
        assert!(left.is_empty());
        found
    }

    #[test]
    fn the_certificates_follow_the_hello() {
        let chain = [&b"own"[..], b"issuer"];
        let shows = Shows {
            chain: &chain,
            is_of_curve: true,
            staple: None,
            has_extended_master_secret: true,
        };
        let said = messages(&of_server(shows).unwrap());
        assert_eq!(said.len(), 2);
        assert_eq!(said[0].0, SERVER_HELLO);
        assert_eq!(said[0].1[..2], TLS12);
        assert_eq!(said[0].1[35..37], ECDHE_ECDSA);
        assert_eq!(said[0].1[38..], [0, 9, 0xff, 1, 0, 1, 0, 0, 23, 0, 0]);
        assert_eq!(said[1], (CERTIFICATE, b"\0\0\x0f\0\0\x03own\0\0\x06issuer".to_vec()));
    }

    #[test]
    fn a_staple_is_announced_and_comes_last() {
        let (chain, staple) = ([&b"own"[..]], Some(&b"good"[..]));
        let shows =
            Shows { chain: &chain, is_of_curve: false, staple, has_extended_master_secret: true };
        let said = messages(&of_server(shows).unwrap());
        assert_eq!(said[0].1[35..37], ECDHE_RSA);
        assert!(said[0].1.ends_with(&[0, 5, 0, 0]));
        assert_eq!(said[2], (CERTIFICATE_STATUS, b"\x01\0\0\x04good".to_vec()));
    }

    #[test]
    fn what_is_long_is_in_several_records_or_too_long() {
        let long = vec![7; 40_000];
        let of = |chain| Shows {
            chain,
            is_of_curve: false,
            staple: None,
            has_extended_master_secret: false,
        };
        let chain = [&long[..]];
        let shows = of(&chain);
        let said = messages(&of_server(shows).unwrap());
        assert_eq!(said[1].1.len(), 3 + 3 + long.len());
        let longer = vec![7; 1 << 24];
        assert_eq!(of_server(of(&[&longer])), None);
    }
}
