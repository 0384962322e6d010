//! A bounded table of what is watched between two endpoints over UDP. The oldest is reported and evicted first.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::classify::Facts;
use crate::clock::has_paused;
use crate::handshake::Handshake;
use crate::observation::{At, Endpoint};

/// The memory of an entry in the table, in bytes.
pub(crate) const PLACE_BYTES: usize = size_of::<(Ends, Box<u8>)>();

/// Two endpoints, in their order.
pub(crate) type Ends = [Endpoint; 2];

/// A conversation between two endpoints, with its newest handshake.
pub(crate) trait Watched {
    /// The heap memory in use, in bytes.
    fn held_bytes(&self) -> usize;

    /// Returns the facts of the handshake, and its last packet if it is still waited for.
    fn newest(&mut self) -> (&Facts, &mut Option<At>);

    /// Reports the handshake, with what is known of its messages.
    fn finish(&mut self, emit: &mut dyn FnMut(Handshake));

    /// Reports the handshake if it pauses for too long.
    fn report_paused(&mut self, now_ns: u64, emit: &mut dyn FnMut(Handshake)) {
        let (facts, last) = self.newest();
        if !facts.is_reported() && has_paused(*last, now_ns) {
            self.finish(emit);
            *self.newest().1 = None;
        }
    }
}

/// The watched conversations.
#[derive(Debug)]
pub(crate) struct Table<T> {
    most: usize,
    most_bytes: usize,
    held_bytes: usize,
    watched: HashMap<Ends, Box<T>, FixedState>,
    /// Oldest first.
    order: VecDeque<Ends>,
}

impl<T: Watched> Table<T> {
    /// Creates a table of at most so many conversations, one at least, that hold so many bytes together.
    pub(crate) fn new(most: usize, most_bytes: usize, hash_seed: u64) -> Self {
        let watched = HashMap::with_hasher(FixedState::with_seed(hash_seed));
        Self { most: most.max(1), most_bytes, held_bytes: 0, watched, order: VecDeque::new() }
    }

    pub(crate) fn contains(&self, ends: &Ends) -> bool {
        self.watched.contains_key(ends)
    }

    /// The number of conversations that are looked at.
    pub(crate) fn len(&self) -> usize {
        self.watched.len()
    }

    /// Begins to watch what is not in the table.
    pub(crate) fn watch(&mut self, ends: Ends, watched: T, emit: &mut dyn FnMut(Handshake)) {
        while self.watched.len() >= self.most && self.remove_oldest(emit) {}
        self.order.push_back(ends);
        self.watched.insert(ends, Box::new(watched));
    }

    /// Lets a conversation take what comes, if it is in the table. The oldest make room for what it holds then.
    pub(crate) fn update(
        &mut self,
        ends: &Ends,
        emit: &mut dyn FnMut(Handshake),
        take: impl FnOnce(&mut T, &mut dyn FnMut(Handshake)),
    ) {
        let Some(watched) = self.watched.get_mut(ends) else { return };
        let before = watched.held_bytes();
        take(watched, emit);
        self.held_bytes = self.held_bytes + watched.held_bytes() - before;
        while self.held_bytes > self.most_bytes && self.remove_oldest(emit) {}
    }

    /// Ends a conversation, if it is in the table.
    pub(crate) fn leave(&mut self, ends: &Ends, emit: &mut dyn FnMut(Handshake)) {
        if self.contains(ends) {
            self.order.retain(|watched| watched != ends);
            self.remove(ends, emit);
        }
    }

    /// Reports the handshakes that pause for too long.
    pub(crate) fn report_paused(&mut self, now_ns: u64, emit: &mut dyn FnMut(Handshake)) {
        for ends in &self.order {
            let Some(watched) = self.watched.get_mut(ends) else { continue };
            let before = watched.held_bytes();
            watched.report_paused(now_ns, emit);
            self.held_bytes = self.held_bytes + watched.held_bytes() - before;
        }
    }

    /// Ends the capture: reports all that remain.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        while self.remove_oldest(emit) {}
    }

    /// Returns false if there is none.
    fn remove_oldest(&mut self, emit: &mut dyn FnMut(Handshake)) -> bool {
        let oldest = self.order.pop_front();
        oldest.inspect(|ends| self.remove(ends, emit)).is_some()
    }

    fn remove(&mut self, ends: &Ends, emit: &mut dyn FnMut(Handshake)) {
        let Some(mut watched) = self.watched.remove(ends) else { return };
        self.held_bytes -= watched.held_bytes();
        watched.finish(emit);
    }
}
