//! The values in messages. Each is checked when it is parsed, and cannot be made in another way.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::ServerName;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::LABEL_BYTES;

/// Implements the text form of a type that has `parse` and `Display`.
macro_rules! text {
    ($type:ident) => {
        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::parse(text)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::parse(&text).map_err(de::Error::custom)
            }
        }
    };
}

/// Implements `as_str` and `Display` of a type that is kept as its text.
macro_rules! name {
    ($type:ident) => {
        impl $type {
            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        text!($type);
    };
}

/// Implements the text form of a type whose `Display` and `Debug` are hexadecimal digits.
macro_rules! hexadecimal {
    ($type:ident) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        text!($type);
    };
}

/// A server's name or address in lower case, without a dot at its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(String);

impl Host {
    fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        // rustls ignores a dot at the end; here a name has one form only.
        match ServerName::try_from(name.as_str()) {
            Ok(_) if !name.ends_with('.') => Ok(Self(name)),
            _ => Err("host: a DNS name (an international one in its xn-- form) or an \
                           address without brackets"
                .to_owned()),
        }
    }

    /// Returns true if it is an address.
    pub fn is_address(&self) -> bool {
        matches!(self.server_name(), ServerName::IpAddress(_))
    }

    /// Returns the name as a type of rustls.
    pub fn server_name(&self) -> ServerName<'static> {
        // `parse` has checked it.
        match ServerName::try_from(self.0.clone()) {
            Ok(name) => name,
            Err(_) => unreachable!("a host is a server name"),
        }
    }
}

name!(Host);

/// A partition's label: up to [`LABEL_BYTES`] printable ASCII characters; empty for the default.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Label(String);

impl Label {
    fn parse(text: &str) -> Result<Self, String> {
        let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if text.len() > LABEL_BYTES || !is_printable {
            return Err(format!("label: up to {LABEL_BYTES} printable ASCII characters"));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns true if it is the label of the default partition.
    pub fn is_default(&self) -> bool {
        self.0.is_empty()
    }
}

name!(Label);

/// A protocol's name in ALPN: 1 to 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Protocol(String);

impl Protocol {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > 255 {
            return Err("alpn: names of 1 to 255 bytes".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

name!(Protocol);

/// A SHA-256 digest of a certificate or of a public key, in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Returns the digest of these bytes.
    #[cfg(feature = "digest")]
    pub fn of(bytes: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
        let mut own = [0; 32];
        own.copy_from_slice(digest.as_ref());
        Self(own)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let digits = || "a fingerprint: 64 hexadecimal digits".to_owned();
        unhex(text).map(Self).ok_or_else(digits)
    }
}

hexadecimal!(Fingerprint);

/// A connection's identifier: 128 random bits in hexadecimal. The program asks with it how the connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

impl Token {
    fn parse(text: &str) -> Result<Self, String> {
        unhex(text).map(Self).ok_or_else(|| "a connection: 32 hexadecimal digits".to_owned())
    }
}

hexadecimal!(Token);

/// The key of a hop: 256 bits in hexadecimal. It is wiped when dropped, and `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct HopKey(Zeroizing<[u8; 32]>);

impl HopKey {
    /// Returns the bytes.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<Zeroizing<[u8; 32]>> for HopKey {
    fn from(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for HopKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopKey")
    }
}

impl Serialize for HopKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut digits = Zeroizing::new([0; 64]);
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0.iter()) {
            pair.copy_from_slice(&[hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
        let text = std::str::from_utf8(&*digits).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(text)
    }
}

impl<'de> Deserialize<'de> for HopKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Secret::deserialize(deserializer)?;
        let key = unhex(text.expose()).map(|bytes| Self(Zeroizing::new(bytes)));
        key.ok_or_else(|| de::Error::custom("key: 64 hexadecimal digits"))
    }
}

/// Bytes in base64 with padding (RFC 4648, section 4). They are wiped when dropped; `Debug` shows their number only.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Base64(pub Zeroizing<Vec<u8>>);

impl Base64 {
    fn parse(text: &str) -> Result<Self, String> {
        STANDARD
            .decode(text)
            .map(|bytes| Self(bytes.into()))
            .map_err(|_| "base64 with padding was expected".to_owned())
    }
}

impl fmt::Display for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        base64::display::Base64Display::new(&self.0, &STANDARD).fmt(f)
    }
}

impl fmt::Debug for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

text!(Base64);

/// Text that is wiped when dropped, and that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Returns the text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        unescaped(raw.get()).map(Self).ok_or_else(|| de::Error::custom("expected a string"))
    }
}

impl Base64 {
    /// Parses base64 without leaving a copy of the text anywhere.
    pub(super) fn of_secret(raw: &RawValue) -> Result<Self, String> {
        Self::parse(&unescaped(raw.get()).ok_or("expected a string")?)
    }
}

/// Returns the text of a JSON string. A parser would use a buffer of its own for a string with escapes, which nobody
/// wipes. Surrogate pairs are not supported: a character beyond the basic plane must be written without an escape.
fn unescaped(json: &str) -> Option<Zeroizing<String>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    // The text is never moved, because it is not longer than `inner`.
    let mut text = Zeroizing::new(String::with_capacity(inner.len()));
    let mut rest = inner.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        text.push(match rest.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let digits = rest.as_str().get(..4)?;
                rest = rest.as_str()[4..].chars();
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            itself => itself,
        });
    }
    Some(text)
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let of = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from(hex_digit(digit)));
    f.write_str(&bytes.iter().flat_map(of).collect::<String>())
}

/// Returns the digit of the lowest four bits.
fn hex_digit(bits: u8) -> u8 {
    b"0123456789abcdef"[usize::from(bits & 15)]
}

fn unhex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * BYTES {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(bytes)
}
