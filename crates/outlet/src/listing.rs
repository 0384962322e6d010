//! The keys of a context in the order in which servers want them.

use std::io::Write;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use rejoin_tickets::{ContextKey, ContextKeys, KeyRing, KeyState, NAME_BYTES, ServerKeyForm};
use zeroize::Zeroizing;

use crate::Context;

/// The keys of a context that have not expired: first the one that encrypts, then upcoming ones, then the rest from the
/// newest to the oldest.
pub(crate) struct Listing {
    keys: Vec<(ContextKey, KeyState)>,
    form: ServerKeyForm,
    ticket_lifetime_s: u64,
    changes_in_s: Option<u64>,
}

impl Listing {
    pub(crate) fn of(ring: &KeyRing, context: &Context, form: ServerKeyForm, now_s: u64) -> Self {
        let derived = ring.for_context(&context.label(form));
        Self {
            keys: alive(&derived, now_s),
            form,
            ticket_lifetime_s: ring.schedule().ticket_lifetime_s(),
            changes_in_s: ring.next_turn_s(now_s).and_then(|turn_s| turn_s.checked_sub(now_s)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&ContextKey, KeyState)> {
        self.keys.iter().map(|(key, state)| (key, *state))
    }

    /// Returns what tells this listing from another: names and states.
    pub(crate) fn mark(&self) -> Vec<([u8; NAME_BYTES], KeyState)> {
        self.iter().map(|(key, state)| (*key.name(), state)).collect()
    }

    /// The lifetime of tickets, in seconds.
    pub(crate) fn ticket_lifetime_s(&self) -> u64 {
        self.ticket_lifetime_s
    }

    /// The keys' bytes, in order.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = Zeroizing<Vec<u8>>> {
        self.iter().map(|(key, _)| key.for_server(self.form))
    }

    /// Returns the message of a share: see docs/share-protocol.md.
    pub(crate) fn message(&self) -> Zeroizing<Vec<u8>> {
        let changes = self.changes_in_s.map(|in_s| format!(", \"changes_in_s\": {in_s}"));
        self.json(&changes.unwrap_or_default())
    }

    /// Returns a share's message without the time of the next change, which is another at each look: a file of the same keys
    /// stays as it is.
    pub(crate) fn lasting(&self) -> Zeroizing<Vec<u8>> {
        self.json("")
    }

    fn json(&self, end: &str) -> Zeroizing<Vec<u8>> {
        const AROUND_BYTES: usize = 128;
        let room = AROUND_BYTES + self.keys.len() * (AROUND_BYTES + self.form.bytes() * 2);
        let mut message = Secret::with_room(room);
        message.add("{\"rejoin\": 1, \"keys\": [");
        for (at, (bytes, (_, state))) in self.bytes().zip(self.iter()).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            message.add(format_args!("{comma}{{\"key\": \""));
            message.add_base64(&bytes);
            message.add(format_args!("\", \"state\": \"{}\"}}", word(state)));
        }
        message.add(format_args!("], \"ticket_lifetime_s\": {}{end}}}", self.ticket_lifetime_s));
        message.done()
    }
}

fn word(state: KeyState) -> &'static str {
    match state {
        KeyState::Upcoming => "upcoming",
        KeyState::Encrypting => "encrypting",
        KeyState::Opening | KeyState::Expired => "opening",
    }
}

fn alive(keys: &ContextKeys, now_s: u64) -> Vec<(ContextKey, KeyState)> {
    let is_alive = |(_, state): &(_, KeyState)| *state != KeyState::Expired;
    let mut alive: Vec<_> =
        keys.list(now_s).filter(is_alive).map(|(key, state)| (key.clone(), state)).collect();
    alive.reverse();
    alive.sort_by_key(|(_, state)| match state {
        KeyState::Encrypting => 0,
        KeyState::Upcoming => 1,
        KeyState::Opening | KeyState::Expired => 2,
    });
    alive
}

/// Text with keys in it, in a buffer that does not grow, because that would leave a copy.
pub(crate) struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Makes an empty buffer with room for this many bytes.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(bytes)))
    }

    pub(crate) fn add(&mut self, text: impl std::fmt::Display) {
        let (capacity, length) = (self.0.capacity(), self.0.len());
        let written = write!(&mut *self.0, "{text}");
        written.expect("a buffer in memory takes everything");
        debug_assert!(self.0.capacity() == capacity, "outgrown at {length} of {capacity}");
    }

    pub(crate) fn add_base64(&mut self, bytes: &[u8]) {
        self.add(Base64Display::new(bytes, &STANDARD));
    }

    pub(crate) fn done(self) -> Zeroizing<Vec<u8>> {
        self.0
    }
}
