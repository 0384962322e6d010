//! The key schedule of TLS 1.3 with SHA-256 (RFC 8446, section 7.1), and records under its keys.

use openssl::hash::{MessageDigest, hash};
use openssl::pkey::PKey;
use openssl::sign::Signer;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};

pub(super) const HASH_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

pub(super) type Secret = [u8; HASH_BYTES];

pub(super) fn digest(bytes: &[u8]) -> Secret {
    let digest = hash(MessageDigest::sha256(), bytes).expect("SHA-256");
    digest[..].try_into().expect("32 bytes")
}

pub(super) fn hmac(key: &[u8], bytes: &[u8]) -> Secret {
    let key = PKey::hmac(key).expect("a key");
    let mut signer = Signer::new(MessageDigest::sha256(), &key).expect("HMAC");
    let tag = signer.sign_oneshot_to_vec(bytes).expect("a tag");
    tag.try_into().expect("32 bytes")
}

/// HKDF-Extract (RFC 5869).
pub(super) fn extract(salt: &[u8], input: &[u8]) -> Secret {
    hmac(salt, input)
}

/// HKDF-Expand-Label, for no more than one block.
pub(super) fn expand<const BYTES: usize>(
    secret: &Secret,
    label: &str,
    context: &[u8],
) -> [u8; BYTES] {
    let label = format!("tls13 {label}");
    let mut info = (BYTES as u16).to_be_bytes().to_vec();
    for part in [label.as_bytes(), context] {
        info.push(part.len() as u8);
        info.extend_from_slice(part);
    }
    info.push(1);
    hmac(secret, &info)[..BYTES].try_into().expect("as long")
}

/// Derive-Secret, from the messages so far.
pub(super) fn derive(secret: &Secret, label: &str, messages: &[u8]) -> Secret {
    expand(secret, label, &digest(messages))
}

/// The verify data of a Finished message, and a binder.
pub(super) fn finished(secret: &Secret, messages: &[u8]) -> Secret {
    hmac(&expand::<HASH_BYTES>(secret, "finished", &[]), &digest(messages))
}

/// The keys of one direction.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    key: [u8; 16],
    iv: [u8; 12],
    records: u64,
}

impl Keys {
    pub(super) fn of(secret: &Secret) -> Self {
        Self { key: expand(secret, "key", &[]), iv: expand(secret, "iv", &[]), records: 0 }
    }

    fn nonce(&mut self) -> [u8; 12] {
        let mut nonce = self.iv;
        let number = self.records.to_be_bytes();
        nonce[4..].iter_mut().zip(number).for_each(|(byte, number)| *byte ^= number);
        self.records += 1;
        nonce
    }

    /// A record of this kind.
    pub(super) fn seal(&mut self, kind: u8, bytes: &[u8]) -> Vec<u8> {
        let inner = [bytes, &[kind]].concat();
        let length = (inner.len() + TAG_BYTES) as u16;
        let mut record = [&[23, 3, 3][..], &length.to_be_bytes()].concat();
        let (nonce, mut tag) = (self.nonce(), [0; TAG_BYTES]);
        let sealed =
            encrypt_aead(Cipher::aes_128_gcm(), &self.key, Some(&nonce), &record, &inner, &mut tag);
        record.extend(sealed.expect("sealed"));
        record.extend(tag);
        record
    }

    /// The kind and the content of a record. `None` if it is not one under these keys.
    pub(super) fn open(&mut self, head: &[u8], body: &[u8]) -> Option<(u8, Vec<u8>)> {
        let (sealed, tag) = body.split_at_checked(body.len().checked_sub(TAG_BYTES)?)?;
        let nonce = self.nonce();
        let opened =
            decrypt_aead(Cipher::aes_128_gcm(), &self.key, Some(&nonce), head, sealed, tag);
        let mut inner = opened.ok()?;
        while inner.last() == Some(&0) {
            inner.pop();
        }
        let kind = inner.pop()?;
        Some((kind, inner))
    }
}
