//! Datagrams: any bytes, or Initial packets under the right keys with any frames in them.

use arbitrary::Arbitrary;
use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use super::wire;
use crate::structured;

/// The salt of Initial packets (RFC 9001, section 5.2).
const SALT: [u8; 20] =
    *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
const ID: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

#[derive(Debug, Arbitrary)]
enum Payload {
    Any(Vec<u8>),
    /// Any frames.
    Initial(Vec<u8>),
    /// CRYPTO frames: offset and bytes.
    Crypto(Vec<(u8, Vec<u8>)>),
}

#[derive(Debug, Arbitrary)]
struct Datagram {
    from_client: bool,
    payload: Payload,
    captured: Option<u16>,
}

pub(crate) fn check(bytes: &[u8]) {
    let Some(datagrams) = structured::<Vec<Datagram>>(bytes) else { return };
    let frames: Vec<Vec<u8>> = datagrams.iter().filter_map(frame).collect();
    wire::check(&wire::pcap(101, &frames));
}

fn frame(datagram: &Datagram) -> Option<Vec<u8>> {
    let payload = match &datagram.payload {
        Payload::Any(bytes) => bytes.clone(),
        Payload::Initial(frames) => initial(datagram.from_client, frames)?,
        Payload::Crypto(pieces) => {
            let frames = pieces.iter().filter(|(_, piece)| piece.len() < 64);
            let frames: Vec<u8> = frames
                .flat_map(|(offset, piece)| {
                    [&[6, offset & 0x3f, piece.len() as u8][..], piece].concat()
                })
                .collect();
            initial(datagram.from_client, &frames)?
        }
    };
    let mut frame = wire::udp(datagram.from_client, 443, &payload);
    if let Some(captured) = datagram.captured {
        frame.truncate(usize::from(captured).max(28));
    }
    Some(frame)
}

/// An Initial packet of version 1 with a packet number of one byte.
fn initial(from_client: bool, frames: &[u8]) -> Option<Vec<u8>> {
    let mut plain = frames.to_vec();
    plain.resize(plain.len().clamp(32, 1_200), 0);
    let secret = Salt::new(HKDF_SHA256, &SALT).extract(&ID);
    let label = if from_client { "client in" } else { "server in" };
    let secret = Prk::new_less_safe(HKDF_SHA256, &expand::<32>(&secret, label)?);
    let key: [u8; 16] = expand(&secret, "quic key")?;
    let iv: [u8; 12] = expand(&secret, "quic iv")?;
    let header_key: [u8; 16] = expand(&secret, "quic hp")?;
    let length = 0x4000 | (plain.len() + 17) as u16;
    let mut packet = [&[0xc0, 0, 0, 0, 1, 8][..], &ID, &[0, 0], &length.to_be_bytes()].concat();
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
