//! ClientHellos, written, and the messages of servers, read.

use super::Ticket;
use super::keys::{HASH_BYTES, Secret, derive, digest, finished};

const CLIENT_HELLO: u8 = 1;
const SUITE: u16 = 0x1301;
const TLS_13: u16 = 0x0304;
const X25519: u16 = 29;
/// A group that no server knows, in the range for private use.
const UNKNOWN_GROUP: u16 = 0x01ff;
const BINDER_BYTES: usize = HASH_BYTES;
/// `SHA-256("HelloRetryRequest")` begins so (RFC 8446, section 4.1.3).
const RETRY: [u8; 4] = [0xcf, 0x21, 0xad, 0x74];

const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const SIGNATURES: u16 = 13;
const ALPN: u16 = 16;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const VERSIONS: u16 = 43;
const PSK_MODES: u16 = 45;
const KEY_SHARE: u16 = 51;

/// The content of a ClientHello.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    pub name: &'a str,
    pub alpn: Option<&'a str>,
    pub ticket: Option<&'a Ticket>,
    /// A ticket of nobody, before the other.
    pub is_second: bool,
    /// True if it announces early data.
    pub early_data: bool,
    pub binder: Binder,
    pub age: Age,
    pub share: Share,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binder {
    Right,
    Wrong,
}

/// The age of the ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    True,
    /// So many milliseconds more.
    Older(u32),
}

/// The group for which there is a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    Known,
    /// One that makes the server ask for another ClientHello.
    Unknown,
}

impl<'a> Offer<'a> {
    pub fn of(ticket: Option<&'a Ticket>) -> Self {
        Self {
            name: "localhost",
            alpn: None,
            ticket,
            is_second: false,
            early_data: ticket.is_some(),
            binder: Binder::Right,
            age: Age::True,
            share: Share::Known,
        }
    }
}

/// Writes a ClientHello. `before` has the handshake's messages of before.
pub(super) fn hello(
    offer: &Offer<'_>,
    share: &[u8],
    before: &[u8],
    early_secret: &Secret,
) -> Vec<u8> {
    let mut body = [&[3, 3][..], &digest(share)].concat();
    // No session id.
    body.push(0);
    body.extend(vector16(&SUITE.to_be_bytes()));
    // No compression.
    body.extend([1, 0]);
    let keys = offer.ticket.map(|ticket| pre_shared_key(offer, ticket));
    body.extend(vector16(&extensions(offer, share, keys.as_deref())));
    let mut message = vec![CLIENT_HELLO, 0];
    message.extend(vector16(&body));
    if offer.ticket.is_some() {
        bind(offer, &mut message, before, early_secret);
    }
    message
}

/// Fills in the binders, of which the last belongs to the ticket.
fn bind(offer: &Offer<'_>, message: &mut [u8], before: &[u8], early_secret: &Secret) {
    let number = if offer.is_second { 2 } else { 1 };
    let begin = message.len() - number * (1 + BINDER_BYTES) - 2;
    let key = derive(early_secret, "res binder", &[]);
    let mut binder = finished(&key, &[before, &message[..begin]].concat());
    if offer.binder == Binder::Wrong {
        binder[0] ^= 1;
    }
    let end = message.len();
    message[end - BINDER_BYTES..].copy_from_slice(&binder);
}

fn extensions(offer: &Offer<'_>, share: &[u8], keys: Option<&[u8]>) -> Vec<u8> {
    let name = [&[0][..], &vector16(offer.name.as_bytes())].concat();
    let group = if offer.share == Share::Known { X25519 } else { UNKNOWN_GROUP };
    let share = [&group.to_be_bytes()[..], &vector16(share)].concat();
    let groups = [UNKNOWN_GROUP.to_be_bytes(), X25519.to_be_bytes()].concat();
    let mut all = [
        extension(SERVER_NAME, &vector16(&name)),
        extension(GROUPS, &vector16(&groups)),
        // ECDSA and RSA-PSS, with SHA-256.
        extension(SIGNATURES, &vector16(&[4, 3, 8, 4])),
        extension(VERSIONS, &[&[2][..], &TLS_13.to_be_bytes()].concat()),
        extension(PSK_MODES, &[1, 1]),
        extension(KEY_SHARE, &vector16(&share)),
    ]
    .concat();
    if let Some(alpn) = offer.alpn {
        let name = [&[alpn.len() as u8][..], alpn.as_bytes()].concat();
        all.extend(extension(ALPN, &vector16(&name)));
    }
    if offer.early_data {
        all.extend(extension(EARLY_DATA, &[]));
    }
    all.extend(keys.into_iter().flat_map(|keys| extension(PRE_SHARED_KEY, keys)));
    all
}

/// The last extension, with binders of zeros (RFC 8446, section 4.2.11).
fn pre_shared_key(offer: &Offer<'_>, ticket: &Ticket) -> Vec<u8> {
    let older_ms = if let Age::Older(ms) = offer.age { ms } else { 0 };
    let age_ms = (ticket.got.elapsed().as_millis() as u32).wrapping_add(older_ms);
    let identity =
        |identity: &[u8], age: u32| [&vector16(identity)[..], &age.to_be_bytes()].concat();
    let mut identities = Vec::new();
    let mut binders = Vec::new();
    if offer.is_second {
        identities.extend(identity(&[0x77; 32], 0));
        binders.extend([&[BINDER_BYTES as u8][..], &[0; BINDER_BYTES]].concat());
    }
    identities.extend(identity(&ticket.identity, age_ms.wrapping_add(ticket.age_add)));
    binders.extend([&[BINDER_BYTES as u8][..], &[0; BINDER_BYTES]].concat());
    [vector16(&identities), vector16(&binders)].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(content)].concat()
}

fn vector16(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u16).to_be_bytes()[..], content].concat()
}

/// A ServerHello.
pub(super) struct ServerHello {
    pub(super) is_retry: bool,
    pub(super) resumed: bool,
    pub(super) share: Option<Vec<u8>>,
}

pub(super) fn server_hello(message: &[u8]) -> Option<ServerHello> {
    let random = message.get(6..38)?;
    let id_bytes = usize::from(*message.get(38)?);
    let (mut resumed, mut share) = (false, None);
    for (kind, content) in extensions_of(message.get(39 + id_bytes + 3..)?) {
        match kind {
            PRE_SHARED_KEY => resumed = true,
            // A HelloRetryRequest has the group alone.
            KEY_SHARE => share = content.get(4..).map(<[u8]>::to_vec),
            _ => {}
        }
    }
    Some(ServerHello { is_retry: random.starts_with(&RETRY), resumed, share })
}

/// True if EncryptedExtensions has this one.
pub(super) fn has_extension(message: &[u8], wanted: u16) -> bool {
    extensions_of(&message[4..]).any(|(kind, _)| kind == wanted)
}

/// The extensions after the length of all.
fn extensions_of(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (head, after) = rest.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (content, after) = after.split_at_checked(length)?;
        rest = after;
        Some((u16::from_be_bytes([head[0], head[1]]), content))
    })
}

/// The first message, with its head, and the rest. `None` if it is not whole.
pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = bytes.first_chunk::<4>()?;
    let length = usize::from(head[1]) << 16 | usize::from(u16::from_be_bytes([head[2], head[3]]));
    bytes.split_at_checked(4 + length)
}

/// A NewSessionTicket.
pub(super) struct Issued {
    pub(super) identity: Vec<u8>,
    pub(super) age_add: u32,
    pub(super) nonce: Vec<u8>,
    pub(super) early_bytes: u32,
}

pub(super) fn ticket(message: &[u8]) -> Option<Issued> {
    let age_add = u32::from_be_bytes(*message.get(8..)?.first_chunk()?);
    let nonce_bytes = usize::from(*message.get(12)?);
    let nonce = message.get(13..13 + nonce_bytes)?.to_vec();
    let rest = &message[13 + nonce_bytes..];
    let length = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
    let identity = rest.get(2..2 + length)?.to_vec();
    let mut early_bytes = 0;
    for (kind, content) in extensions_of(&rest[2 + length..]) {
        if kind == EARLY_DATA {
            early_bytes = u32::from_be_bytes(*content.first_chunk()?);
        }
    }
    Some(Issued { identity, age_add, nonce, early_bytes })
}
