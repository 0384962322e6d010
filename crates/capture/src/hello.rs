//! ClientHello and ServerHello, parsed leniently: valid parts count even if the rest is malformed.

use crate::bytes::Bytes;
use crate::digest::Digest;
use crate::handshake::Version;
use crate::limits::LONGEST_NAME_BYTES;

const SERVER_NAME: u16 = 0;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;

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
    pub(crate) session_id_length: usize,
    pub(crate) ticket_length: usize,
    pub(crate) ticket: Option<Digest>,
    pub(crate) server_name: Option<String>,
    pub(crate) pre_shared_key: bool,
    pub(crate) early_data: bool,
}

/// The choices of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerHello {
    pub(crate) version: Version,
    pub(crate) retry: bool,
    pub(crate) pre_shared_key: bool,
    /// Meaningful up to TLS 1.2 only.
    pub(crate) session_id_length: Option<usize>,
    pub(crate) session_id: Option<Digest>,
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
    /// Parses the body of a ClientHello.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(body);
        bytes.take(2)?;
        let mut hello = Self { random: Some(bytes.array()?), ..Self::default() };
        let _ = hello.parse_offers(bytes);
        Some(hello)
    }

    /// Parses a ClientHello in SSL 2 format (RFC 5246, E.2), from its length field on.
    pub(crate) fn parse_sslv2(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        bytes.take(7)?;
        let session_id_length = usize::from(bytes.u16()?);
        Some(Self { session_id_length, ..Self::default() })
    }

    fn parse_offers(&mut self, mut bytes: Bytes<'_>) -> Option<()> {
        self.session_id_length = usize::from(bytes.u8()?);
        bytes.take(self.session_id_length)?;
        let ciphers = usize::from(bytes.u16()?);
        bytes.take(ciphers)?;
        let compressions = usize::from(bytes.u8()?);
        bytes.take(compressions)?;
        extensions(bytes, |kind, length, value| match kind {
            SERVER_NAME => self.server_name = self.server_name.take().or_else(|| host_name(value)),
            SESSION_TICKET => {
                self.ticket_length = length;
                self.ticket = value.get(..length).and_then(Digest::of);
            }
            PRE_SHARED_KEY => self.pre_shared_key = true,
            EARLY_DATA => self.early_data = true,
            _ => {}
        })
    }
}

impl ServerHello {
    /// Parses the body of a ServerHello.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(body);
        let number = bytes.u16()?;
        let random: [u8; 32] = bytes.array()?;
        let retry = random == HELLO_RETRY_REQUEST;
        let version = Version::from_wire(number);
        let mut hello = Self {
            version,
            retry,
            pre_shared_key: false,
            session_id_length: None,
            session_id: None,
        };
        // Drafts of TLS 1.3 up to 21 had no session id and no compression here.
        let is_early_draft = matches!(number, 0x7f00..=0x7fff);
        let session_id = if is_early_draft { None } else { session_id(bytes) };
        let _ = hello.parse_choices(bytes, is_early_draft);
        if hello.version != Version::Tls13 {
            hello.session_id_length = session_id.map(<[u8]>::len);
            hello.session_id = session_id.and_then(Digest::of);
        }
        Some(hello)
    }

    fn parse_choices(&mut self, mut bytes: Bytes<'_>, is_early_draft: bool) -> Option<()> {
        if is_early_draft {
            bytes.take(2)?;
        } else {
            let session_id_length = usize::from(bytes.u8()?);
            bytes.take(session_id_length)?;
            bytes.take(3)?;
        }
        extensions(bytes, |kind, _, value| match kind {
            PRE_SHARED_KEY => self.pre_shared_key = true,
            SUPPORTED_VERSIONS => {
                if let [high, low] = *value {
                    self.version = Version::from_wire(u16::from_be_bytes([high, low]));
                }
            }
            _ => {}
        })
    }
}

fn session_id(mut bytes: Bytes<'_>) -> Option<&[u8]> {
    let length = usize::from(bytes.u8()?);
    bytes.take(length)
}

/// Calls `each` with every extension: type, stated length, and the captured part of the value.
fn extensions(mut bytes: Bytes<'_>, mut each: impl FnMut(u16, usize, &[u8])) -> Option<()> {
    let total = usize::from(bytes.u16()?);
    let mut bytes = Bytes(bytes.take_up_to(total));
    loop {
        let kind = bytes.u16()?;
        let length = usize::from(bytes.u16()?);
        each(kind, length, bytes.take_up_to(length));
    }
}

fn host_name(extension: &[u8]) -> Option<String> {
    let mut bytes = Bytes(extension);
    bytes.take(2)?;
    let kind = bytes.u8()?;
    let length = usize::from(bytes.u16()?);
    let name = bytes.take_up_to(length.min(LONGEST_NAME_BYTES));
    (kind == 0 && !name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}
