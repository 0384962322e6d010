//! Handshake messages, put together from pieces.

use super::{
    CERTIFICATE, CLIENT_HELLO, Event, HELLO_REQUEST, HELLO_RETRY_REQUEST, Listen,
    NEW_SESSION_TICKET, SERVER_HELLO,
};
use crate::limits::{LONGEST_HELLO_BYTES, LONGEST_MESSAGE_BYTES};

/// The largest handshake message except Certificate, whose chains may be longer.
const LARGEST_MESSAGE: u32 = 1 << 18;

/// The handshake message that a stream is reading.
#[derive(Debug, Default)]
pub(crate) struct Message {
    header: [u8; 4],
    pub(super) header_length: u8,
    pub(super) left: u32,
    body: Vec<u8>,
}

impl Message {
    /// Takes the next bytes. Returns false if they are not messages because they are encrypted.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], listener: &mut impl Listen) -> bool {
        while !bytes.is_empty() {
            if self.header_length < 4 {
                bytes = collect(&mut self.header, &mut self.header_length, bytes);
                if self.header_length < 4 {
                    return true;
                }
                if !self.begin() {
                    *self = Self::default();
                    return false;
                }
                if self.left == 0 {
                    self.tell(None, listener);
                    continue;
                }
            }
            bytes = self.take(bytes, listener);
        }
        true
    }

    /// The heap memory in use, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.body.capacity()
    }

    fn kind(&self) -> u8 {
        self.header[0]
    }

    pub(super) fn is_client_hello(&self) -> bool {
        self.kind() == CLIENT_HELLO
    }

    fn is_hello(&self) -> bool {
        matches!(self.kind(), CLIENT_HELLO | SERVER_HELLO | HELLO_RETRY_REQUEST)
    }

    /// The number of bytes of the message kept until it is complete.
    fn kept_bytes(&self) -> usize {
        match self.kind() {
            NEW_SESSION_TICKET | CERTIFICATE => LONGEST_MESSAGE_BYTES,
            _ if self.is_hello() => LONGEST_HELLO_BYTES,
            _ => 0,
        }
    }

    /// Parses the message header. Returns false if it is invalid.
    fn begin(&mut self) -> bool {
        let [kind, high, middle, low] = self.header;
        self.left = u32::from_be_bytes([0, high, middle, low]);
        self.body.clear();
        is_handshake_kind(kind) && (self.left <= LARGEST_MESSAGE || kind == CERTIFICATE)
    }

    fn take<'a>(&mut self, bytes: &'a [u8], listener: &mut impl Listen) -> &'a [u8] {
        let length = bytes.len().min(self.left as usize);
        let (body, rest) = bytes.split_at(length);
        self.left -= u32::try_from(length).unwrap_or(self.left);
        let is_whole = self.left == 0 && self.body.is_empty();
        let kept_bytes = self.kept_bytes();
        if is_whole {
            self.tell(Some(body.get(..kept_bytes).unwrap_or(body)), listener);
        } else {
            let room = kept_bytes.saturating_sub(self.body.len());
            self.body.extend_from_slice(body.get(..room).unwrap_or(body));
            if self.left == 0 {
                self.tell(None, listener);
            }
        }
        rest
    }

    /// Handles a missing part of the message: reports what is there.
    pub(crate) fn cut(&mut self, gap: u32, listener: &mut impl Listen) {
        if self.header_length < 4 {
            *self = Self::default();
            return;
        }
        let left = self.left.checked_sub(gap);
        if !self.is_hello() || !self.body.is_empty() {
            self.tell(None, listener);
        }
        *self = Self::default();
        if let Some(left) = left.filter(|left| *left > 0) {
            // Skip the rest of this message by giving it a type that no listener handles.
            (self.left, self.header_length, self.header[0]) = (left, 4, HELLO_REQUEST);
        }
    }

    fn tell(&mut self, whole: Option<&[u8]>, listener: &mut impl Listen) {
        let [kind, high, middle, low] = self.header;
        let body = whole.unwrap_or(&self.body);
        let length = u32::from_be_bytes([0, high, middle, low]);
        if self.is_hello() {
            listener.event(Event::Hello(kind, length, body));
        } else {
            listener.event(Event::Message(kind, length, body));
        }
        *self = Self::default();
    }
}

/// Fills `space` from `length` on. Returns the remaining bytes.
pub(super) fn collect<'a>(space: &mut [u8], length: &mut u8, bytes: &'a [u8]) -> &'a [u8] {
    let free = space.get_mut(usize::from(*length)..).unwrap_or_default();
    let taken = free.len().min(bytes.len());
    free[..taken].copy_from_slice(&bytes[..taken]);
    *length += u8::try_from(taken).unwrap_or(0);
    &bytes[taken..]
}

/// Checks that handshake messages fill a record to its last byte.
pub(super) fn is_filled_by_messages(mut record: &[u8]) -> bool {
    while let Some((&[kind, high, middle, low], rest)) = record.split_first_chunk() {
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        match rest.get(length..) {
            Some([]) => return is_handshake_kind(kind),
            Some(rest) if is_handshake_kind(kind) => record = rest,
            _ => return false,
        }
    }
    false
}

fn is_handshake_kind(kind: u8) -> bool {
    matches!(kind, 0..=6 | 8 | 11..=16 | 20..=25 | 67 | 254)
}
