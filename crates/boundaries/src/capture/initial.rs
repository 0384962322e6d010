//! QUIC's Initial packets under the right keys (RFC 9001, 5.2; RFC 9369, 3.3).

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

/// Version 1 or 2, with what differs between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    pub(super) number: [u8; 4],
    /// The first byte of an Initial; the next types follow in steps of 16.
    pub(super) first: u8,
    salt: [u8; 20],
    labels: [&'static str; 3],
}

pub(super) const V1: Version = Version {
    number: [0, 0, 0, 1],
    first: 0xc0,
    salt: *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a",
    labels: ["quic key", "quic iv", "quic hp"],
};
pub(super) const V2: Version = Version {
    number: [0x6b, 0x33, 0x43, 0xcf],
    first: 0xd0,
    salt: *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
    labels: ["quicv2 key", "quicv2 iv", "quicv2 hp"],
};

/// The ends of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) from_client: bool,
    /// The connection ID that the keys derive from.
    pub(super) keys_of: &'a [u8],
    pub(super) to: &'a [u8],
    pub(super) from: &'a [u8],
}

/// Returns a packet with a packet number of one byte and these frames.
pub(super) fn sealed(version: Version, ends: Ends<'_>, frames: &[u8]) -> Option<Vec<u8>> {
    let Ends { from_client, keys_of, to, from } = ends;
    let mut plain = frames.to_vec();
    plain.resize(plain.len().clamp(32, 1_200), 0);
    let secret = Salt::new(HKDF_SHA256, &version.salt).extract(keys_of);
    let label = if from_client { "client in" } else { "server in" };
    let secret = Prk::new_less_safe(HKDF_SHA256, &expand::<32>(&secret, label)?);
    let [key, iv, header_key] = version.labels;
    let key: [u8; 16] = expand(&secret, key)?;
    let iv: [u8; 12] = expand(&secret, iv)?;
    let header_key: [u8; 16] = expand(&secret, header_key)?;
    let length = 0x4000 | (plain.len() + 17) as u16;
    let ids = [&[to.len() as u8][..], to, &[from.len() as u8], from].concat();
    let head = [&[version.first][..], &version.number, &ids, &[0], &length.to_be_bytes()];
    let mut packet = head.concat();
    let number_at = packet.len();
    packet.push(0);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
    let nonce = Nonce::assume_unique_for_key(iv);
    key.seal_in_place_append_tag(nonce, Aad::from(&packet[..]), &mut plain).ok()?;
    packet.extend(plain);
    let sample = packet.get(number_at + 4..number_at + 20)?;
    let mask = HeaderProtectionKey::new(&AES_128, &header_key).ok()?.new_mask(sample).ok()?;
    packet[0] ^= mask[0] & 0x0f;
    packet[number_at] ^= mask[1];
    Some(packet)
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(secret: &Prk, label: &str) -> Option<[u8; N]> {
    let info = [&[0, N as u8][..], &[label.len() as u8 + 6], b"tls13 ", label.as_bytes(), &[0]];
    let mut key = [0; N];
    secret.expand(&info, Length(N)).ok()?.fill(&mut key).ok()?;
    Some(key)
}
