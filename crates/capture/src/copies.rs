//! Copies of datagrams, as a capture of two interfaces has them.
//!
//! No sender of QUIC or DTLS sends the same bytes twice: what it repeats has another number (RFC 9000, 12.3; RFC 6347,
//! 4.1). A datagram that was cut may be any that begins like it, and is no copy.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// The datagrams of one side that are remembered: those that another interface shows in between.
const REMEMBERED: usize = 8;

/// The last datagrams of one side.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Their hashes, or 0.
    last: [u32; REMEMBERED],
    next: usize,
}

impl Copies {
    /// Notes a datagram that had `length` bytes on the wire. Returns true if it is one of the last ones once more.
    pub(crate) fn is_one(&mut self, payload: &[u8], length: usize) -> bool {
        if payload.len() < length {
            return false;
        }
        let hash = FixedState::default().hash_one(payload) as u32 | 1;
        let is_copy = self.last.contains(&hash);
        if !is_copy {
            self.last[self.next] = hash;
            self.next = (self.next + 1) % REMEMBERED;
        }
        is_copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_datagrams_are_known_again() {
        let mut copies = Copies::default();
        let mut copied = |number: u8| copies.is_one(&[number; 100], 100);
        assert!((0..8).all(|number| !copied(number)));
        assert!((0..8).all(&mut copied));
        assert!((8..10).all(|number| !copied(number)));
        assert!(copied(9) && copied(2) && !copied(0));
        // A part of one shows nothing.
        assert!(!copies.is_one(&[9; 99], 100) && !copies.is_one(&[9; 99], 100));
    }
}
