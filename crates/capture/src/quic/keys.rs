//! The keys of Initial packets, which every observer can derive (RFC 9001, 5.2).

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use super::packet::Initial;

const SAMPLE_BYTES: usize = 16;

const SALT_V1: [u8; 20] =
    *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
const SALT_V2: [u8; 20] =
    *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9";
const SALT_DRAFT_29: [u8; 20] =
    *b"\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99";
const SALT_DRAFT_23: [u8; 20] =
    *b"\xc3\xee\xf7\x12\xc7\x2e\xbb\x5a\x11\xa7\xd2\x43\x2b\xb4\x63\x65\xbe\xf9\xf5\x02";

const SALT_DRAFT_21: [u8; 20] =
    *b"\x7f\xbc\xdb\x0e\x7c\x66\xbb\xe9\x19\x3a\x96\xcd\x21\x51\x9e\xbd\x7a\x02\x64\x4a";
const SALT_T051: [u8; 20] =
    *b"\x7a\x4e\xde\xf4\xe7\xcc\xee\x5f\xa4\x50\x6c\x19\x12\x4f\xc8\xcc\xda\x6e\x03\x3d";

/// The parameters that differ between QUIC versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VersionParameters {
    salt: [u8; 20],
    /// True for version 2, which numbers packet types in another way (RFC 9369, 3.2).
    pub(super) is_v2: bool,
    /// True for Google's frame format, which precedes the IETF's.
    pub(super) has_google_frames: bool,
}

impl VersionParameters {
    pub(super) fn of(version: u32) -> Option<Self> {
        let (salt, is_v2) = match version {
            1 | 0xff00_0021 | 0xff00_0022 => (SALT_V1, false),
            0x6b33_43cf => (SALT_V2, true),
            0xff00_001d..=0xff00_0020 => (SALT_DRAFT_29, false),
            // Versions meant to provoke a version negotiation (GREASE); they date from these
            // drafts.
            grease if grease & 0x0f0f_0f0f == 0x0a0a_0a0a => (SALT_DRAFT_29, false),
            // The last two here, and one below, are one client's names for drafts 27 and 22.
            0xff00_0017..=0xff00_001c | 0xface_b002 | 0xface_b00e => (SALT_DRAFT_23, false),
            0xff00_0015 | 0xff00_0016 | 0xface_b001 => (SALT_DRAFT_21, false),
            // Version "T051", used by another client.
            0x5430_3531 => (SALT_T051, false),
            _ => return None,
        };
        Some(Self { salt, is_v2, has_google_frames: salt == SALT_T051 })
    }
}

/// The keys of one direction. They are public, so `Debug` may show them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    key: [u8; 16],
    iv: [u8; 12],
    header: [u8; 16],
}

impl Keys {
    /// Derives the keys of the client and of the server from the client's first connection ID.
    pub(super) fn both(parameters: VersionParameters, destination_id: &[u8]) -> Option<[Self; 2]> {
        let secret = Salt::new(HKDF_SHA256, &parameters.salt).extract(destination_id);
        let client = Self::of(parameters, &expand::<32>(&secret, "client in")?)?;
        let server = Self::of(parameters, &expand::<32>(&secret, "server in")?)?;
        Some([client, server])
    }

    fn of(parameters: VersionParameters, secret: &[u8]) -> Option<Self> {
        let secret = Prk::new_less_safe(HKDF_SHA256, secret);
        let [key, iv, header] = match parameters.is_v2 {
            true => ["quicv2 key", "quicv2 iv", "quicv2 hp"],
            false => ["quic key", "quic iv", "quic hp"],
        };
        Some(Self {
            key: expand(&secret, key)?,
            iv: expand(&secret, iv)?,
            header: expand(&secret, header)?,
        })
    }

    /// Decrypts an Initial (RFC 9001, 5.3 and 5.4).
    pub(super) fn open(&self, initial: &Initial<'_>) -> Option<Vec<u8>> {
        let sample = initial.bytes.get(initial.number_at + 4..)?.get(..SAMPLE_BYTES)?;
        let mask = HeaderProtectionKey::new(&AES_128, &self.header).ok()?.new_mask(sample).ok()?;
        let mut packet = initial.bytes.to_vec();
        packet[0] ^= mask[0] & 0x0f;
        let number_length = usize::from(packet[0] & 3) + 1;
        let (header, payload) = packet.split_at_mut_checked(initial.number_at + number_length)?;
        let mut number = 0u64;
        for (byte, mask) in header.get_mut(initial.number_at..)?.iter_mut().zip(&mask[1..]) {
            *byte ^= mask;
            number = number << 8 | u64::from(*byte);
        }
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &self.key).ok()?);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plain = key.open_in_place(nonce, Aad::from(&*header), payload).ok()?;
        Some(plain.to_vec())
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label (RFC 8446, 7.1) without a context.
fn expand<const N: usize>(secret: &Prk, label: &str) -> Option<[u8; N]> {
    let length = u16::try_from(N).ok()?.to_be_bytes();
    let label_length = [u8::try_from(label.len() + 6).ok()?];
    let info = [&length[..], &label_length, b"tls13 ", label.as_bytes(), &[0]];
    let mut key = [0; N];
    secret.expand(&info, Length(N)).ok()?.fill(&mut key).ok()?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors: RFC 9001, appendix A.1; RFC 9369, appendix A.1.
    #[test]
    fn keys_are_those_of_the_rfcs() {
        let id = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let [client, server] = Keys::both(VersionParameters::of(1).unwrap(), &id).unwrap();
        assert_eq!(client.key[..4], [0x1f, 0x36, 0x96, 0x13]);
        assert_eq!(client.header[..4], [0x9f, 0x50, 0x44, 0x9e]);
        assert_eq!(server.iv[..4], [0x0a, 0xc1, 0x49, 0x3c]);
        let [client, _] = Keys::both(VersionParameters::of(0x6b33_43cf).unwrap(), &id).unwrap();
        assert_eq!(client.key[..4], [0x8b, 0x1a, 0x0b, 0xc1]);
    }
}
