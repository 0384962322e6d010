//! Reassembly of IP packets from fragments, within a bound.

use std::collections::VecDeque;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::ip::{Fragment, Packet};
use crate::limits::Limits;
use crate::observation::{At, NO_TIME};

const LARGEST_PACKET_BYTES: usize = 1 << 16;
const MOST_PARTS: usize = 256;
/// The memory of a kept fragment besides its bytes.
const PART_BYTES: usize = 384;
/// The time after which the rest of a packet is not expected any more, as in Linux (`ipfrag_time`). Identifications are used again.
const OLDEST_NS: u64 = 30_000_000_000;

type Key = (IpAddr, IpAddr, u8, u32);

/// The fragments that wait for the rest of their packet.
#[derive(Debug)]
pub(crate) struct Fragments {
    limit_bytes: usize,
    held_bytes: usize,
    waiting: HashMap<Key, Parts, FixedState>,
    /// Oldest first. It may still contain packets that are complete.
    order: VecDeque<Key>,
}

#[derive(Debug)]
struct Parts {
    begun_ns: u64,
    parts: Vec<(usize, Vec<u8>)>,
    held_bytes: usize,
    length: Option<usize>,
}

impl Fragments {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limit_bytes: limits.fragment_bytes,
            held_bytes: 0,
            waiting: HashMap::with_hasher(FixedState::with_seed(limits.hash_seed)),
            order: VecDeque::new(),
        }
    }

    /// Adds a fragment. Returns the packet's payload once it is complete.
    pub(crate) fn add(&mut self, packet: &Packet<'_>, at: At) -> Option<Vec<u8>> {
        let fragment = packet.fragment?;
        let end = fragment.offset.checked_add(packet.payload.len())?;
        if packet.payload.is_empty() || end > LARGEST_PACKET_BYTES {
            return None;
        }
        let key = (packet.source, packet.destination, packet.protocol, fragment.id);
        if !self.waiting.contains_key(&key) {
            self.order.push_back(key);
        }
        let parts = self.waiting.entry(key).or_insert_with(|| Parts::new(at));
        if !parts.may_continue_with(fragment, packet.payload, at) {
            self.held_bytes -= parts.held_bytes;
            *parts = Parts::new(at);
        }
        if parts.parts.len() >= MOST_PARTS {
            return None;
        }
        parts.parts.push((fragment.offset, packet.payload.to_vec()));
        let held_bytes = packet.payload.len() + PART_BYTES;
        parts.held_bytes += held_bytes;
        self.held_bytes += held_bytes;
        if !fragment.more {
            parts.length = Some(end);
        }
        let whole = parts.whole();
        if whole.is_some() {
            self.forget(&key);
            if self.order.len() > 2 * self.waiting.len() + 64 {
                self.order.retain(|key| self.waiting.contains_key(key));
            }
        }
        while self.held_bytes > self.limit_bytes {
            let oldest = self.order.pop_front()?;
            self.forget(&oldest);
        }
        whole
    }

    fn forget(&mut self, key: &Key) {
        if let Some(parts) = self.waiting.remove(key) {
            self.held_bytes -= parts.held_bytes;
        }
    }
}

impl Parts {
    fn new(at: At) -> Self {
        Self { begun_ns: at.time_ns, parts: Vec::new(), held_bytes: 0, length: None }
    }

    /// Returns false if this fragment shows that it is of another packet with the same identification.
    fn may_continue_with(&self, fragment: Fragment, payload: &[u8], at: At) -> bool {
        let has_times = at.time_ns != NO_TIME && self.begun_ns != NO_TIME;
        if has_times && at.time_ns.abs_diff(self.begun_ns) > OLDEST_NS {
            return false;
        }
        let end = fragment.offset + payload.len();
        let is_end = !fragment.more;
        // One of the two may have been cut.
        let is_same = |bytes: &[u8]| bytes.iter().zip(payload).all(|(one, other)| one == other);
        let mut at_same = self.parts.iter().filter(|(offset, _)| *offset == fragment.offset);
        at_same.all(|(_, bytes)| is_same(bytes))
            && !self.length.is_some_and(|length| is_end && length != end)
    }

    fn whole(&mut self) -> Option<Vec<u8>> {
        let length = self.length?;
        self.parts.sort_by_key(|(offset, _)| *offset);
        let mut whole = Vec::with_capacity(length);
        for (offset, bytes) in &self.parts {
            let known = whole.len().checked_sub(*offset)?;
            if let Some(news) = bytes.get(known..) {
                whole.extend_from_slice(news);
            }
        }
        (whole.len() >= length).then_some(whole)
    }
}
