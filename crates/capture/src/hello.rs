//! ClientHello and ServerHello, parsed leniently: valid parts count even if the rest is malformed or
//! not captured. What is not there is unknown (`None`). Only a whole list of extensions shows that an
//! extension is absent.

use crate::bytes::Bytes;
use crate::digest::Digest;
use crate::fingerprint::{Ja4, Shape, is_grease};
use crate::handshake::Version;
use crate::limits::{LONGEST_NAME_BYTES, MOST_PROTOCOLS};
use crate::numbers::{CipherSuite, Group};

const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
const PROTOCOLS: u16 = 16;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const KEY_SHARE: u16 = 51;
/// RFC 9849.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// The random of a ServerHello that is a HelloRetryRequest (RFC 8446, 4.1.3).
const HELLO_RETRY_REQUEST: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// The offers of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ClientHello {
    /// `None` for a hello in SSL 2 format.
    pub(crate) random: Option<[u8; 32]>,
    pub(crate) session_id_length: Option<usize>,
    pub(crate) session_id: Option<Digest>,
    pub(crate) ticket_length: Option<usize>,
    pub(crate) ticket: Option<Digest>,
    pub(crate) server_name: Option<String>,
    /// `None` also if there is none beside an encrypted hello, in which it may be. The same holds for early data.
    pub(crate) pre_shared_key: Option<bool>,
    pub(crate) early_data: Option<bool>,
    /// The protocols offered (ALPN), separated by commas.
    pub(crate) protocols: Option<Box<str>>,
    pub(crate) encrypted_hello: Option<bool>,
    /// Known of a whole hello.
    pub(crate) ja4: Option<Ja4>,
    /// True if every byte was captured: what is not in it was not offered.
    pub(crate) is_whole: bool,
}

/// The choices of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerHello {
    /// `None` if the extension that may state it was not captured.
    pub(crate) version: Option<Version>,
    /// The version if no extension states another.
    pub(crate) legacy_version: Version,
    pub(crate) retry: bool,
    pub(crate) pre_shared_key: Option<bool>,
    /// Meaningful up to TLS 1.2 only.
    pub(crate) session_id_length: Option<usize>,
    pub(crate) session_id: Option<Digest>,
    /// A part of the random, to tell answers apart.
    pub(crate) mark: u64,
    pub(crate) cipher: Option<CipherSuite>,
    /// The group of the server's key share.
    pub(crate) group: Option<Group>,
    /// The protocol chosen (ALPN), where it is visible, unless its name is very long.
    pub(crate) protocol: Option<Protocol>,
}

/// The name of a protocol, with its length in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Protocol([u8; 32]);

impl Protocol {
    /// Reads a list with one name.
    fn parse(list: &[u8]) -> Option<Self> {
        let name = protocols(list).next()?;
        let mut protocol = [0; 32];
        protocol[0] = u8::try_from(name.len()).ok()?;
        protocol.get_mut(1..=name.len())?.copy_from_slice(name);
        Some(Self(protocol))
    }

    pub(crate) fn name(self) -> String {
        let [length, name @ ..] = &self.0;
        String::from_utf8_lossy(name.get(..usize::from(*length)).unwrap_or(name)).into_owned()
    }
}

/// A session ticket sent in the clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IssuedTicket {
    pub(crate) length: usize,
    pub(crate) lifetime_s: u32,
    pub(crate) digest: Option<Digest>,
}

impl IssuedTicket {
    /// Parses the body of a NewSessionTicket up to TLS 1.2 (RFC 5077, 3.3).
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(body);
        let lifetime_s = bytes.u32()?;
        let length = usize::from(bytes.u16()?);
        Some(Self { length, lifetime_s, digest: bytes.take(length).and_then(Digest::of) })
    }
}

impl ClientHello {
    /// Parses what was captured of the body of a ClientHello of `length` bytes.
    pub(crate) fn parse(body: &[u8], length: u32) -> Option<Self> {
        Self::parse_form(body, length, false)
    }

    /// Does the same for a ClientHello of DTLS, which has a cookie too (RFC 6347, 4.2.1).
    pub(crate) fn parse_dtls(body: &[u8], length: u32) -> Option<Self> {
        Self::parse_form(body, length, true)
    }

    fn parse_form(body: &[u8], length: u32, has_cookie: bool) -> Option<Self> {
        let mut bytes = Bytes(body);
        let version = bytes.u16()?;
        let mut hello = Self { random: Some(bytes.array()?), ..Self::default() };
        let mut shape = Shape { version, ..Shape::default() };
        let parsed = hello.parse_offers(bytes, has_cookie, &mut shape);
        hello.is_whole = parsed.is_some() && body.len() >= length as usize;
        if hello.is_whole {
            hello.ticket_length.get_or_insert(0);
            // Behind an encrypted hello there is another one, with offers of its own.
            if !*hello.encrypted_hello.get_or_insert(false) {
                hello.pre_shared_key.get_or_insert(false);
                hello.early_data.get_or_insert(false);
            }
            hello.ja4 = Some(Ja4::of(&shape));
        }
        Some(hello)
    }

    /// Parses a ClientHello in SSL 2 format (RFC 5246, E.2), from its length field on.
    pub(crate) fn parse_sslv2(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        bytes.take(7)?;
        let session_id_length = Some(usize::from(bytes.u16()?));
        // This format has no extensions.
        let (ticket_length, pre_shared_key, early_data) = (Some(0), Some(false), Some(false));
        Some(Self {
            session_id_length,
            ticket_length,
            pre_shared_key,
            early_data,
            is_whole: true,
            ..Self::default()
        })
    }

    /// Returns `None` if a part is missing.
    fn parse_offers(
        &mut self,
        mut bytes: Bytes<'_>,
        has_cookie: bool,
        shape: &mut Shape,
    ) -> Option<()> {
        let session_id_length = usize::from(bytes.u8()?);
        self.session_id_length = Some(session_id_length);
        self.session_id = bytes.take(session_id_length).map(Digest::of)?;
        if has_cookie {
            let cookie_length = usize::from(bytes.u8()?);
            bytes.take(cookie_length)?;
        }
        let ciphers = usize::from(bytes.u16()?);
        shape.ciphers = numbers(bytes.take(ciphers)?);
        let compressions = usize::from(bytes.u8()?);
        bytes.take(compressions)?;
        extensions(bytes, |kind, length, value| {
            shape.extensions.push(kind);
            match kind {
                SERVER_NAME => {
                    self.server_name = self.server_name.take().or_else(|| host_name(value));
                }
                SESSION_TICKET => {
                    self.ticket_length = Some(length);
                    self.ticket = value.get(..length).and_then(Digest::of);
                }
                PRE_SHARED_KEY => self.pre_shared_key = Some(true),
                EARLY_DATA => self.early_data = Some(true),
                ENCRYPTED_CLIENT_HELLO => self.encrypted_hello = Some(true),
                PROTOCOLS if value.len() == length => {
                    self.protocols = Some(joined(value));
                    shape.protocol = protocols(value).next().unwrap_or_default().to_vec();
                }
                SIGNATURE_ALGORITHMS => {
                    shape.signature_algorithms = numbers(value.get(2..).unwrap_or_default());
                }
                SUPPORTED_VERSIONS => {
                    let offered = numbers(value.get(1..).unwrap_or_default());
                    shape.version = highest(&offered).unwrap_or(shape.version);
                }
                _ => {}
            }
        })
    }
}

impl ServerHello {
    /// Parses what was captured of the body of a ServerHello of `length` bytes.
    pub(crate) fn parse(body: &[u8], length: u32) -> Option<Self> {
        let mut bytes = Bytes(body);
        let number = bytes.u16()?;
        let random: [u8; 32] = bytes.array()?;
        let retry = random == HELLO_RETRY_REQUEST;
        let legacy_version = Version::from_wire(number);
        let mut hello = Self {
            version: None,
            legacy_version,
            retry,
            pre_shared_key: None,
            session_id_length: None,
            session_id: None,
            // The last bytes may be a constant (RFC 8446, 4.1.3), the first a time.
            mark: random[8..16].iter().fold(0, |mark, byte| mark << 8 | u64::from(*byte)),
            cipher: None,
            group: None,
            protocol: None,
        };
        // Drafts of TLS 1.3 up to 21 had no session id and no compression here.
        let is_early_draft = matches!(number, 0x7f00..=0x7fff);
        let session_id = if is_early_draft { None } else { session_id(bytes) };
        let parsed = hello.parse_choices(bytes, is_early_draft);
        if parsed.is_some() && body.len() >= length as usize {
            hello.pre_shared_key.get_or_insert(false);
            hello.version.get_or_insert(legacy_version);
        }
        // Only behind TLS 1.2 and DTLS 1.2 may an extension state another version.
        if !matches!(legacy_version, Version::Tls12 | Version::Dtls12) {
            hello.version = Some(legacy_version);
        }
        hello.session_id_length = session_id.map(<[u8]>::len);
        hello.session_id = session_id.and_then(Digest::of);
        Some(hello)
    }

    /// Returns `None` if a part is missing.
    fn parse_choices(&mut self, mut bytes: Bytes<'_>, is_early_draft: bool) -> Option<()> {
        if !is_early_draft {
            let session_id_length = usize::from(bytes.u8()?);
            bytes.take(session_id_length)?;
        }
        self.cipher = Some(CipherSuite(bytes.u16()?));
        bytes.take(if is_early_draft { 0 } else { 1 })?;
        extensions(bytes, |kind, length, value| match kind {
            PRE_SHARED_KEY => self.pre_shared_key = Some(true),
            KEY_SHARE => {
                self.group = value.first_chunk().map(|number| Group(u16::from_be_bytes(*number)));
            }
            PROTOCOLS if value.len() == length => self.protocol = Protocol::parse(value),
            SUPPORTED_VERSIONS => {
                if let [high, low] = *value {
                    self.version = Some(Version::from_wire(u16::from_be_bytes([high, low])));
                }
            }
            _ => {}
        })
    }
}

/// A list of numbers of two bytes.
fn numbers(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect()
}

/// The highest of these versions; those of DTLS count downwards.
fn highest(versions: &[u16]) -> Option<u16> {
    let known = versions.iter().copied().filter(|version| !is_grease(*version));
    known.max_by_key(|version| if *version >= 0xfe00 { !*version } else { *version })
}

/// The names in a list of protocols (RFC 7301, 3.1).
fn protocols(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut bytes = Bytes(list.get(2..).unwrap_or_default());
    std::iter::from_fn(move || {
        let length = usize::from(bytes.u8()?);
        bytes.take(length)
    })
}

fn joined(list: &[u8]) -> Box<str> {
    let names = protocols(list).take(MOST_PROTOCOLS).map(String::from_utf8_lossy);
    names.collect::<Vec<_>>().join(",").into()
}

fn session_id(mut bytes: Bytes<'_>) -> Option<&[u8]> {
    let length = usize::from(bytes.u8()?);
    bytes.take(length)
}

/// Calls `each` with every extension: type, stated length, and the captured part of the value.
/// Returns `None` if the list is not whole.
fn extensions(mut bytes: Bytes<'_>, mut each: impl FnMut(u16, usize, &[u8])) -> Option<()> {
    // Hellos without extensions end before their length.
    if bytes.0.is_empty() {
        return Some(());
    }
    let total = usize::from(bytes.u16()?);
    let list = bytes.take_up_to(total);
    let mut bytes = Bytes(list);
    while !bytes.0.is_empty() {
        let kind = bytes.u16()?;
        let length = usize::from(bytes.u16()?);
        let value = bytes.take_up_to(length);
        each(kind, length, value);
        if value.len() < length {
            return None;
        }
    }
    (list.len() == total).then_some(())
}

fn host_name(extension: &[u8]) -> Option<String> {
    let mut bytes = Bytes(extension);
    bytes.take(2)?;
    let kind = bytes.u8()?;
    let length = usize::from(bytes.u16()?);
    // Part of a name is another name.
    let name = bytes.take(length)?;
    let name = name.get(..LONGEST_NAME_BYTES).unwrap_or(name);
    (kind == 0 && !name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}
