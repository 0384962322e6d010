//! The ClientHello of a program (RFC 8446, section 4.1.2).
//!
//! It is the program's policy: the manager offers the server what it offers, or less.
//!
//! The parser of `capture` stays another one: it is lenient where this one is strict, and programs do not load it.

use rejoin_client::protocol::{OFFERED, Offers};

/// The parts of a ClientHello that matter to the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// The identity of the first PSK (RFC 8446, section 4.2.11).
    pub identity: &'a [u8],
    /// The server name (RFC 6066, section 3).
    pub server_name: Option<&'a [u8]>,
    /// The protocols of ALPN (RFC 7301), the preferred one first.
    pub protocols: Vec<&'a [u8]>,
    /// True if TLS 1.2 is among the versions.
    pub offers_tls12: bool,
    /// True if it offers extended master secrets (RFC 7627).
    pub offers_extended_master_secret: bool,
    /// Extensions for things that the manager does not forward: OCSP stapling, certificate timestamps, smaller records,
    /// and everything unknown here.
    pub wants_more: Vec<u16>,
    /// The cipher suites, the groups and the signature schemes, two bytes each.
    suites: &'a [u8],
    groups: &'a [u8],
    signatures: &'a [u8],
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_HEADER: usize = 5;

/// Extensions that the manager sends by itself, or that a server can do without: point formats, padding,
/// encrypt-then-MAC, compressed certificates, session tickets, PSK key exchange modes,
/// post-handshake authentication, key shares, renegotiation.
const USUAL: [u16; 9] = [11, 21, 22, 27, 35, 45, 49, 51, 0xff01];
/// The suite of hops, and the groups of the manager's end: X25519, P-256, P-384, P-521, X448.
const HOP_SUITE: u16 = 0x1301;
const HOP_GROUPS: [u16; 5] = [0x1d, 0x17, 0x18, 0x19, 0x1e];

const SERVER_NAME: u16 = 0;
/// OCSP stapling (RFC 6066, section 8).
pub const STATUS_REQUEST: u16 = 5;
const SUPPORTED_GROUPS: u16 = 10;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const EXTENDED_MASTER_SECRET: u16 = 23;
const RECORD_SIZE_LIMIT: u16 = 28;
/// The size of records without a limit. The manager asks for none.
const RECORD_BYTES: usize = 16 * 1024;
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;

impl<'a> ClientHello<'a> {
    /// Returns true if the bytes can be the beginning of a ClientHello.
    pub fn may_begin(bytes: &[u8]) -> bool {
        matches!(bytes, [HANDSHAKE, 3, _, _, _, CLIENT_HELLO, ..])
    }

    /// Reads a ClientHello that is whole, in one record, and offers a PSK. `None`: the bytes are something else.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        if !Self::may_begin(bytes) {
            return None;
        }
        let mut record = Bytes(bytes.get(RECORD_HEADER..)?);
        record.take(1)?;
        let mut body = Bytes(record.vector(3)?);
        // The version and the random; the session id comes before the suites, the compression methods after them.
        body.take(2 + 32)?;
        body.vector(1)?;
        let suites = body.vector(2)?;
        body.vector(1)?;
        let mut extensions = Bytes(body.vector(2)?);
        let mut hello = Self {
            identity: &[],
            server_name: None,
            protocols: Vec::new(),
            offers_tls12: false,
            offers_extended_master_secret: false,
            wants_more: Vec::new(),
            suites,
            groups: &[],
            signatures: &[],
        };
        while !extensions.0.is_empty() {
            let kind = extensions.number(2)? as u16;
            let content = Bytes(extensions.vector(2)?);
            hello.extension(kind, content)?;
        }
        (!hello.identity.is_empty()).then_some(hello)
    }

    fn extension(&mut self, kind: u16, mut content: Bytes<'a>) -> Option<()> {
        match kind {
            SERVER_NAME => {
                let mut names = Bytes(content.vector(2)?);
                // Kind 0 is a DNS name; a ClientHello has one.
                self.server_name = (names.number(1)? == 0).then_some(names.vector(2)?);
            }
            ALPN => {
                let mut names = Bytes(content.vector(2)?);
                while !names.0.is_empty() {
                    self.protocols.push(names.vector(1)?);
                }
            }
            SUPPORTED_VERSIONS => {
                let mut versions = content.vector(1)?.chunks_exact(2);
                self.offers_tls12 = versions.any(|version| version == [3, 3]);
            }
            PRE_SHARED_KEY => self.identity = Bytes(content.vector(2)?).vector(2)?,
            SUPPORTED_GROUPS => self.groups = content.vector(2)?,
            SIGNATURE_ALGORITHMS => self.signatures = content.vector(2)?,
            RECORD_SIZE_LIMIT if content.number(2)? >= RECORD_BYTES => {}
            EXTENDED_MASTER_SECRET => self.offers_extended_master_secret = true,
            usual if USUAL.contains(&usual) => {}
            more => self.wants_more.push(more),
        }
        Some(())
    }

    /// Returns the parameters that the manager may offer to the server. `None`: there are too many.
    pub fn offers(&self) -> Option<Offers> {
        let [suites, groups, signatures] =
            [self.suites, self.groups, self.signatures].map(|of| numbers(of).collect::<Vec<_>>());
        let most = suites.len().max(groups.len()).max(signatures.len());
        (most <= OFFERED).then_some(Offers { suites, groups, signatures })
    }

    /// Returns true if a hop can have its suite.
    pub fn takes_hop_suite(&self) -> bool {
        numbers(self.suites).any(|own| own == HOP_SUITE)
    }

    /// Returns true if a hop can have one of its groups.
    pub fn has_hop_group(&self) -> bool {
        numbers(self.groups).any(|own| HOP_GROUPS.contains(&own))
    }
}

fn numbers(list: &[u8]) -> impl Iterator<Item = u16> {
    list.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// The suites that the manager supports: the name that it gives each, and its number.
pub const SUITES: [(&str, u16); 9] = [
    ("TLS13_AES_128_GCM_SHA256", 0x1301),
    ("TLS13_AES_256_GCM_SHA384", 0x1302),
    ("TLS13_CHACHA20_POLY1305_SHA256", 0x1303),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xc02b),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xc02c),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xc02f),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xc030),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca8),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca9),
];

/// The bytes that are left to read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a big-endian number of this many bytes.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Reads a vector. Its length comes first, in this many bytes.
    fn vector(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let length = self.number(bytes)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITES_OF_TLS13: [u8; 6] = [0x13, 0x03, 0x13, 0x01, 0x13, 0x02];

    fn vector(bytes: usize, content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32).to_be_bytes()[4 - bytes..], content].concat()
    }

    fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let extension = |(kind, content): &(u16, Vec<u8>)| {
            [&kind.to_be_bytes()[..], &vector(2, content)].concat()
        };
        let extensions: Vec<_> = extensions.iter().flat_map(extension).collect();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &vector(1, &[9; 32]),
            &vector(2, &SUITES_OF_TLS13),
            &vector(1, &[0]),
            &vector(2, &extensions),
        ];
        let message = [&[CLIENT_HELLO][..], &vector(3, &body.concat())].concat();
        [&[HANDSHAKE, 3, 1][..], &vector(2, &message)].concat()
    }

    fn key(identity: &[u8]) -> (u16, Vec<u8>) {
        let one = [&vector(2, identity)[..], &[0; 4]].concat();
        (PRE_SHARED_KEY, [&vector(2, &one)[..], &[0; 3]].concat())
    }

    #[test]
    fn it_says_whom_it_means() {
        let names = [&[0][..], &vector(2, b"example.com")].concat();
        let protocols = [&vector(1, b"h2")[..], &vector(1, b"http/1.1")].concat();
        let bytes = hello(&[
            (SERVER_NAME, vector(2, &names)),
            (ALPN, vector(2, &protocols)),
            (SUPPORTED_VERSIONS, vector(1, &[3, 4, 3, 3])),
            (SUPPORTED_GROUPS, vector(2, &[0x11, 0xec, 0, 0x1d])),
            (SIGNATURE_ALGORITHMS, vector(2, &[8, 4, 4, 3])),
            (EXTENDED_MASTER_SECRET, vec![]),
            key(b"identity"),
        ]);
        let expected = ClientHello {
            identity: b"identity",
            server_name: Some(b"example.com"),
            protocols: vec![b"h2", b"http/1.1"],
            offers_tls12: true,
            offers_extended_master_secret: true,
            wants_more: vec![],
            suites: &SUITES_OF_TLS13,
            groups: &[0x11, 0xec, 0, 0x1d],
            signatures: &[8, 4, 4, 3],
        };
        assert_eq!(ClientHello::read(&bytes), Some(expected));
        for end in 0..bytes.len() {
            assert_eq!(ClientHello::read(&bytes[..end]), None);
        }
    }

    #[test]
    fn one_without_a_key_is_not_ours() {
        assert_eq!(ClientHello::read(&hello(&[])), None);
        assert_eq!(ClientHello::read(b"GET / HTTP/1.0\r\n\r\n"), None);
    }

    #[test]
    fn what_the_manager_does_not_pass_on_is_seen() {
        let long = |limit: u16| limit.to_be_bytes().to_vec();
        for (kind, content, more) in [
            (5, vec![1, 0, 0, 0, 0], true),
            // Fragments of at most 512 bytes, records of 512 bytes, of less than the most, and of any size.
            (1, vec![1], true),
            (28, long(512), true),
            (28, long(16_383), true),
            (28, long(16_385), false),
            (18, vec![], true),
            // Schemes for certificates alone.
            (50, vec![0, 2, 4, 3], true),
            (0xfafa, vec![], true),
            // A server can do without compressing its certificates.
            (27, vec![2, 0, 1], false),
            (23, vec![], false),
        ] {
            let bytes = hello(&[(kind, content), key(b"identity")]);
            assert_eq!(!ClientHello::read(&bytes).unwrap().wants_more.is_empty(), more, "{kind}");
        }
    }

    #[test]
    fn what_it_offers_is_what_the_manager_may_offer() {
        for (group, has_hop_group) in [(0x1e, true), (0x17, true), (0x1a, false)] {
            let bytes = hello(&[(SUPPORTED_GROUPS, vector(2, &[0, group])), key(b"identity")]);
            let read = ClientHello::read(&bytes).unwrap();
            assert_eq!((read.has_hop_group(), read.takes_hop_suite()), (has_hop_group, true));
            let (suites, groups) = (vec![0x1303, 0x1301, 0x1302], vec![group.into()]);
            assert_eq!(read.offers(), Some(Offers { suites, groups, signatures: vec![] }));
        }
        let many = (SUPPORTED_GROUPS, vector(2, &[0; 2 * OFFERED + 2]));
        let bytes = hello(&[many, key(b"identity")]);
        assert_eq!(ClientHello::read(&bytes).unwrap().offers(), None);
    }
}
