//! Messages in fragments, of one side.

use std::collections::BTreeMap;

use super::record::Fragment;
use crate::limits::LONGEST_HELLO_BYTES;

/// The most fragments that wait for the rest of their messages.
const MOST_FRAGMENTS: usize = 256;
/// The memory of a kept fragment besides its bytes.
const FRAGMENT_BYTES: usize = 96;

/// The fragments that wait for the rest of their messages.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// By number of the message and offset.
    waiting: BTreeMap<(u16, u32), Waiting>,
    waiting_bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    kind: u8,
    length: u32,
    body: Box<[u8]>,
}

/// A message, or its beginning.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) length: u32,
    pub(super) body: Vec<u8>,
}

impl Messages {
    /// Adds a fragment. Returns its message if that is now whole.
    pub(super) fn add(&mut self, fragment: &Fragment<'_>) -> Option<Message> {
        let Fragment { kind, length, message, offset, body } = *fragment;
        if body.len() == length as usize {
            self.drop_message(message);
            return Some(Message { kind, length, body: body.to_vec() });
        }
        let fits = self.waiting_bytes + body.len() <= LONGEST_HELLO_BYTES
            && self.waiting.len() < MOST_FRAGMENTS;
        let key = (message, offset);
        let is_more = self.waiting.get(&key).is_none_or(|known| known.body.len() < body.len());
        if !fits || !is_more {
            return None;
        }
        self.waiting_bytes += body.len();
        let waiting = Waiting { kind, length, body: body.into() };
        if let Some(before) = self.waiting.insert(key, waiting) {
            self.waiting_bytes -= before.body.len();
        }
        let begun = self.begun(message)?;
        (begun.body.len() >= begun.length as usize).then(|| {
            self.drop_message(message);
            begun
        })
    }

    /// Takes the beginnings of messages whose rest is missing.
    pub(super) fn take_begun(&mut self) -> Vec<Message> {
        let mut numbers: Vec<u16> = self.waiting.keys().map(|(message, _)| *message).collect();
        numbers.dedup();
        let begun = numbers.into_iter().filter_map(|message| self.begun(message)).collect();
        *self = Self::default();
        begun
    }

    /// The heap memory in use, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.waiting_bytes + self.waiting.len() * FRAGMENT_BYTES
    }

    /// The message as far as its fragments follow each other.
    fn begun(&self, message: u16) -> Option<Message> {
        let first = self.waiting.get(&(message, 0))?;
        let Waiting { kind, length, .. } = *first;
        let mut body = Vec::new();
        for ((_, offset), part) in self.of(message) {
            let Some(known) = body.len().checked_sub(*offset as usize) else { break };
            if part.length == length && part.kind == kind {
                body.extend_from_slice(part.body.get(known..).unwrap_or_default());
            }
        }
        Some(Message { kind, length, body })
    }

    fn of(&self, message: u16) -> impl Iterator<Item = (&(u16, u32), &Waiting)> {
        self.waiting.range((message, 0)..=(message, u32::MAX))
    }

    fn drop_message(&mut self, message: u16) {
        let (waiting, mut freed) = (&mut self.waiting, 0);
        waiting.retain(|(number, _), part| {
            freed += if *number == message { part.body.len() } else { 0 };
            *number != message
        });
        self.waiting_bytes -= freed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(offset: u32, body: &[u8]) -> Fragment<'_> {
        Fragment { kind: 1, length: 10, message: 0, offset, body }
    }

    #[test]
    fn fragments_come_in_any_order_and_may_overlap() {
        let mut messages = Messages::default();
        assert_eq!(messages.add(&fragment(7, b"789")), None);
        assert_eq!(messages.add(&fragment(0, b"0123")), None);
        assert_eq!(messages.take_begun()[0].body, b"0123");
        for part in [fragment(7, b"789"), fragment(0, b"0123")] {
            assert_eq!(messages.add(&part), None);
        }
        assert_eq!(messages.add(&fragment(2, b"234567")).unwrap().body, b"0123456789");
        assert_eq!(messages.held_bytes(), 0);
    }
}
