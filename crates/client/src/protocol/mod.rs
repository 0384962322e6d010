//! The protocol between programs and the manager: `docs/manager-protocol.md`, as types.
//!
//! A message is its length as a big-endian `u32`, and that many bytes of JSON. Everything that is parsed here is within
//! its bounds, and nothing here opens a socket. Requests are read strictly: an unknown field is an error, because a
//! misspelt setting must not be ignored. Answers are read leniently, so that later versions can add fields.

mod answer;
mod directly;
mod request;
mod turn;
mod values;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use answer::{
    Answer, Certificate, Connected, EarlyData, End, ErrorKind, Handshakes, Problem, Share, Stats,
    Went, Why,
};
pub use directly::Directly;
pub use request::{Connect, Hop, Identity, MinVersion, Offers, Records, Request, Trust};
pub use turn::{FRAME_BYTES, FRAME_HEAD_BYTES, Reply, Turn};
pub use values::{Base64, Fingerprint, HopKey, Host, Label, Protocol, Secret, Token};

/// The version of the protocol: the value of `"rejoin"` in every message.
pub const VERSION: u64 = 1;
/// The longest request, without its length.
pub const REQUEST_BYTES: usize = 256 * 1024;
/// The longest answer, without its length.
pub const ANSWER_BYTES: usize = 1024 * 1024;
/// The bytes before each message that say how long it is.
pub const LENGTH_BYTES: usize = 4;
/// The most addresses for a name.
pub const ADDRESSES: usize = 16;
/// The most ALPN protocols.
pub const PROTOCOLS: usize = 16;
/// The most pins, and the most known certificates.
pub const FINGERPRINTS: usize = 64;
/// The most entries in each list of [`Offers`].
pub const OFFERED: usize = 256;
/// The most bytes of a partition's label.
pub const LABEL_BYTES: usize = 64;
/// The most bytes of 0-RTT data.
pub const EARLY_DATA_BYTES: usize = 16 * 1024;
/// The longest time for resolving, connecting and the handshake together, in milliseconds.
pub const MOST_DEADLINE_MS: u32 = 120_000;
/// The default of that time, in milliseconds.
pub const DEADLINE_MS: u32 = 10_000;

/// The reason why a message could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The message is longer than its bound.
    #[error("the message has {bytes} bytes, more than {most}")]
    TooLarge {
        /// The announced length.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// The message is of another version of the protocol.
    #[error("version {version} of the protocol is not spoken here, {VERSION} is")]
    Version {
        /// The message's version.
        version: u64,
    },
    /// The message violates the protocol.
    #[error("{0}")]
    Text(String),
}

impl From<serde_json::Error> for Malformed {
    fn from(error: serde_json::Error) -> Self {
        Self::Text(without_values(error.to_string()))
    }
}

/// The longest text of [`Malformed`].
const TEXT_CHARACTERS: usize = 512;

/// Removes the unexpected value from an error's text: it may be a key, and errors are logged.
fn without_values(mut text: String) -> String {
    if let (Some(from), Some(to)) = (text.find(" \""), text.rfind("\", expected")) {
        text.replace_range(from..=to.max(from), "");
    }
    text.chars().take(TEXT_CHARACTERS).collect()
}

/// Returns the length of the message after this prefix.
///
/// # Errors
/// [`Malformed::TooLarge`] if it is longer than `most`; [`Malformed::Text`] if it is empty.
pub fn length(prefix: [u8; LENGTH_BYTES], most: usize) -> Result<usize, Malformed> {
    let bytes = u32::from_be_bytes(prefix) as usize;
    match bytes {
        0 => Err(Malformed::Text("the message is empty".to_owned())),
        _ if bytes > most => Err(Malformed::TooLarge { bytes, most }),
        _ => Ok(bytes),
    }
}

/// Writes a request as it goes over the socket, with its length.
///
/// # Errors
/// [`Malformed::TooLarge`].
pub fn write_request(request: &Request) -> Result<Vec<u8>, Malformed> {
    written(request, REQUEST_BYTES)
}

/// Writes an answer as it goes over the socket, with its length.
///
/// # Errors
/// [`Malformed::TooLarge`].
pub fn write_answer(answer: &Answer) -> Result<Vec<u8>, Malformed> {
    written(answer, ANSWER_BYTES)
}

/// Reads a request from a message without its length.
///
/// # Errors
/// [`Malformed`] if it is not a request.
pub fn read_request(message: &[u8]) -> Result<Request, Malformed> {
    read(message, REQUEST_BYTES)
}

/// Reads an answer from a message without its length.
///
/// # Errors
/// [`Malformed`] if it is not an answer.
pub fn read_answer(message: &[u8]) -> Result<Answer, Malformed> {
    read(message, ANSWER_BYTES)
}

/// The fields of every message, whatever its version.
#[derive(Serialize)]
struct Versioned<'a, T> {
    rejoin: u64,
    #[serde(flatten)]
    said: &'a T,
}

fn written<T: Serialize>(said: &T, most: usize) -> Result<Vec<u8>, Malformed> {
    let mut message = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut message, &Versioned { rejoin: VERSION, said })?;
    let bytes = message.len() - LENGTH_BYTES;
    if bytes > most {
        return Err(Malformed::TooLarge { bytes, most });
    }
    message[..LENGTH_BYTES].copy_from_slice(&(bytes as u32).to_be_bytes());
    Ok(message)
}

/// Reads a message of this version. If it cannot be read, its version may be the reason.
fn read<T: DeserializeOwned>(message: &[u8], most: usize) -> Result<T, Malformed> {
    /// The version alone: another version may have any other fields.
    #[derive(Deserialize)]
    struct Head {
        rejoin: u64,
    }
    if message.len() > most {
        return Err(Malformed::TooLarge { bytes: message.len(), most });
    }
    serde_json::from_slice(message).or_else(|error| match serde_json::from_slice(message)? {
        Head { rejoin: VERSION } => Err(error.into()),
        Head { rejoin: version } => Err(Malformed::Version { version }),
    })
}

#[cfg(test)]
mod tests;
