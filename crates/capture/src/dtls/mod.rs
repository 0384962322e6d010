//! The handshakes of DTLS 1.0, 1.2 and 1.3 (RFC 6347, RFC 9147), on every port.
//!
//! An association is known by its addresses and begins with a hello. Up to DTLS 1.2 all of its handshake
//! but the Finished messages is readable; from 1.3 on the hellos are.

mod association;
mod messages;
mod record;

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::handshake::Handshake;
use crate::limits::Limits;
use crate::observation::{At, Endpoint};
use association::Association;
pub(crate) use record::begins_with_hello;

/// The memory of an association and of its entry in the table, in bytes.
pub(crate) const ASSOCIATION_BYTES: usize = size_of::<Association>();
pub(crate) const PLACE_BYTES: usize = size_of::<([Endpoint; 2], Box<Association>)>();

/// The watched associations.
#[derive(Debug)]
pub(crate) struct Associations {
    limits: Limits,
    held_bytes: usize,
    associations: HashMap<[Endpoint; 2], Box<Association>, FixedState>,
    /// Oldest first.
    order: VecDeque<[Endpoint; 2]>,
}

/// Returns true if a datagram may be DTLS (RFC 9443, 2).
pub(crate) fn may_be_dtls(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(20..=63))
}

impl Associations {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            held_bytes: 0,
            associations: HashMap::with_hasher(FixedState::with_seed(limits.hash_seed)),
            order: VecDeque::new(),
        }
    }

    /// Takes the payload of a datagram that had `length` bytes on the wire.
    pub(crate) fn datagram(
        &mut self,
        from: Endpoint,
        to: Endpoint,
        payload: &[u8],
        length: usize,
        at: At,
        emit: &mut dyn FnMut(Handshake),
    ) {
        let (ends, side) = if from <= to { ([from, to], 0) } else { ([to, from], 1) };
        if !self.associations.contains_key(&ends) {
            if !begins_with_hello(payload) {
                return;
            }
            self.watch(ends, emit);
        }
        let Some(association) = self.associations.get_mut(&ends) else { return };
        let before = association.held_bytes();
        association.datagram(side, payload, length, at, emit);
        self.held_bytes = self.held_bytes + association.held_bytes() - before;
        while self.held_bytes > self.limits.dtls_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest, emit);
        }
    }

    /// The number of associations that are looked at.
    pub(crate) fn len(&self) -> usize {
        self.associations.len()
    }

    /// Reports the handshakes that pause for too long.
    pub(crate) fn report_paused(&mut self, now_ns: u64, emit: &mut dyn FnMut(Handshake)) {
        for ends in &self.order {
            let Some(association) = self.associations.get_mut(ends) else { continue };
            let before = association.held_bytes();
            association.report_paused(now_ns, emit);
            self.held_bytes = self.held_bytes + association.held_bytes() - before;
        }
    }

    /// Ends the capture: reports all remaining associations.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(Handshake)) {
        while let Some(ends) = self.order.pop_front() {
            self.remove(ends, emit);
        }
    }

    fn watch(&mut self, ends: [Endpoint; 2], emit: &mut dyn FnMut(Handshake)) {
        while self.associations.len() >= self.limits.dtls_associations.max(1) {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest, emit);
        }
        self.order.push_back(ends);
        self.associations.insert(ends, Box::new(Association::new(ends)));
    }

    fn remove(&mut self, ends: [Endpoint; 2], emit: &mut dyn FnMut(Handshake)) {
        let Some(mut association) = self.associations.remove(&ends) else { return };
        self.held_bytes -= association.held_bytes();
        association.finish(emit);
    }
}
