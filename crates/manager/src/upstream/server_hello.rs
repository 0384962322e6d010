//! What rustls does not say about a server of TLS 1.2: the extensions of its ServerHello that programs ask their own TLS
//! library for. A ServerHello of TLS 1.2 is not encrypted.

use std::io::{self, Read};

/// The most bytes that are kept of a server. A ServerHello has at most 100 or so, without the protocol that ALPN chose.
const MOST_BYTES: usize = 1_024;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;
/// RFC 7627.
const EXTENDED_MASTER_SECRET: u16 = 23;
/// RFC 5746.
const RENEGOTIATION_INFO: u16 = 0xff01;

/// The first bytes that a server sent.
#[derive(Debug, Default)]
pub(crate) struct FirstBytes(Vec<u8>);

/// What a ServerHello of TLS 1.2 says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerHello {
    /// True if the keys are bound to the whole handshake (RFC 7627).
    pub(crate) has_extended_master_secret: bool,
    /// True if the server supports secure renegotiation (RFC 5746).
    pub(crate) renegotiates_securely: bool,
}

/// A source of bytes from the server, of which the first are kept.
pub(crate) struct Kept<'a, S>(pub(crate) &'a mut FirstBytes, pub(crate) S);

impl<S: Read> Read for Kept<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.1.read(buffer)?;
        self.0.note(&buffer[..read]);
        Ok(read)
    }
}

impl FirstBytes {
    /// Keeps bytes that came, as far as there is room.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        let room = MOST_BYTES - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Parses the ServerHello. `None`: there is none in these bytes.
    pub(crate) fn server_hello(&self) -> Option<ServerHello> {
        let message = first_messages(&self.0);
        let mut rest = &message[..];
        let [SERVER_HELLO] = take(&mut rest, 1)? else { return None };
        let mut rest = vector(&mut rest, 3)?;
        // The version and the random number.
        take(&mut rest, 2 + 32)?;
        // The session's id, the suite and the compression.
        vector(&mut rest, 1)?;
        take(&mut rest, 2 + 1)?;
        let mut found =
            ServerHello { has_extended_master_secret: false, renegotiates_securely: false };
        let mut extensions = if rest.is_empty() { rest } else { vector(&mut rest, 2)? };
        while !extensions.is_empty() {
            let kind = number(take(&mut extensions, 2)?);
            let body = vector(&mut extensions, 2)?;
            match kind {
                EXTENDED_MASTER_SECRET => found.has_extended_master_secret = true,
                // In a first handshake there is nothing before it (section 3.4).
                RENEGOTIATION_INFO => found.renegotiates_securely = body == [0],
                _ => {}
            }
        }
        Some(found)
    }
}

/// Returns what the records of handshakes contain, up to the end or another record. Warnings may come before.
fn first_messages(mut records: &[u8]) -> Vec<u8> {
    let mut messages = Vec::new();
    while let [kind @ (ALERT | HANDSHAKE), 3, _, high, low, rest @ ..] = records {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (body, others) = rest.split_at(length.min(rest.len()));
        if *kind == HANDSHAKE {
            messages.extend_from_slice(body);
        }
        records = others;
    }
    messages
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, others) = rest.split_at_checked(bytes)?;
    *rest = others;
    Some(taken)
}

/// Takes bytes that come after their length.
fn vector<'a>(rest: &mut &'a [u8], length_bytes: usize) -> Option<&'a [u8]> {
    let length = take(rest, length_bytes)?;
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    take(rest, length)
}

fn number(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |number, byte| number << 8 | u16::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &[u8] = &[0, 23, 0, 0, 0xff, 1, 0, 1, 0];

    fn hello(extensions: Option<&[u8]>) -> Vec<u8> {
        let mut body = [&[3, 3][..], &[7; 32], &[2, 8, 8], &[0xc0, 0x2f, 0]].concat();
        if let Some(extensions) = extensions {
            body.extend([0, extensions.len() as u8]);
            body.extend(extensions);
        }
        [&[SERVER_HELLO, 0, 0, body.len() as u8][..], &body].concat()
    }

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind, 3, 3, 0, body.len() as u8][..], body].concat()
    }

    /// Reads so many bytes at a time.
    fn found(bytes: &[u8], piece: usize) -> Option<(bool, bool)> {
        let mut first = FirstBytes::default();
        for mut piece in bytes.chunks(piece) {
            let mut room = vec![0; piece.len()];
            Kept(&mut first, &mut piece).read_exact(&mut room).expect("bytes");
        }
        assert!(first.0.len() <= MOST_BYTES);
        let said = first.server_hello()?;
        Some((said.has_extended_master_secret, said.renegotiates_securely))
    }

    #[test]
    fn a_server_hello_says_what_the_server_supports() {
        for (extensions, expected) in [
            (Some(BOTH), (true, true)),
            (Some(&BOTH[..4]), (true, false)),
            (Some(&BOTH[4..]), (false, true)),
            (Some(&[0, 16, 0, 5, 0, 3, 2, 104, 50][..]), (false, false)),
            // Of an earlier handshake, which there was not.
            (Some(&[0xff, 1, 0, 2, 1, 9][..]), (false, false)),
            (Some(&[][..]), (false, false)),
            (None, (false, false)),
        ] {
            let message = hello(extensions);
            let more = [record(HANDSHAKE, &message), vec![HANDSHAKE, 3, 3, 9]].concat();
            let certificate = [&message[..], &[11, 0, 4]].concat();
            let (first, second) = message.split_at(20);
            let in_two = [record(HANDSHAKE, first), record(HANDSHAKE, second)].concat();
            let warned = [record(ALERT, &[1, 112]), record(HANDSHAKE, &message)].concat();
            for bytes in [more, record(HANDSHAKE, &certificate), in_two, warned] {
                for piece in [1, 7, 4_096] {
                    assert_eq!(found(&bytes, piece), Some(expected), "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_whole_server_hello_says_nothing() {
        let whole = record(HANDSHAKE, &hello(Some(BOTH)));
        for length in 0..whole.len() {
            assert_eq!(found(&whole[..length], 4_096), None, "{length}");
        }
        let behind = [record(ALERT, &[1; 200]).repeat(6), whole.clone()].concat();
        assert_eq!(found(&behind, 100), None);
        let other = record(HANDSHAKE, &[0, 0, 0, 0]);
        for bytes in [&b"HTTP/1.1 400 Bad Request\r\n"[..], &record(23, &whole), &other] {
            assert_eq!(found(bytes, 4_096), None, "{bytes:?}");
        }
    }
}
