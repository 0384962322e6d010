//! Keys in lists, of which most policies are made.
//!
//! [`Nodes`] finds a key's node, and each node is in one [`List`], linked by number. Lists share
//! their nodes, so that a key moves from one to another without being looked up again.

use hashbrown::HashTable;

/// The end of a list: no node has this number.
pub(super) const NONE: u32 = u32::MAX;

/// Hashes a key with SplitMix64's finaliser (Steele, Lea & Flood, OOPSLA 2014). It is written out so
/// that the sets of a set-associative cache do not depend on the version of a crate.
pub(crate) fn hash(key: u64) -> u64 {
    let mixed = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A key, its place in a list, and the policy's note on it.
#[derive(Debug)]
pub(super) struct Node<T> {
    pub(super) key: u64,
    earlier: u32,
    later: u32,
    pub(super) note: T,
}

/// Nodes, found by key.
#[derive(Debug)]
pub(super) struct Nodes<T> {
    index: HashTable<u32>,
    nodes: Vec<Node<T>>,
    /// The first of the unused nodes, which are linked by `later`.
    unused: u32,
}

impl<T> Nodes<T> {
    pub(super) fn new() -> Self {
        Self { index: HashTable::new(), nodes: Vec::new(), unused: NONE }
    }

    pub(super) fn find(&self, key: u64) -> Option<u32> {
        let nodes = &self.nodes;
        self.index.find(hash(key), |&node| nodes[node as usize].key == key).copied()
    }

    /// Adds a node for a key that has none. It is in no list yet.
    pub(super) fn add(&mut self, key: u64, note: T) -> u32 {
        let fresh = Node { key, earlier: NONE, later: NONE, note };
        let node = self.unused;
        let node = if node == NONE {
            self.nodes.push(fresh);
            (self.nodes.len() - 1) as u32
        } else {
            self.unused = std::mem::replace(&mut self.nodes[node as usize], fresh).later;
            node
        };
        let nodes = &self.nodes;
        self.index.insert_unique(hash(key), node, |&other| hash(nodes[other as usize].key));
        node
    }

    /// Frees a node that is no longer in a list.
    pub(super) fn discard(&mut self, node: u32) {
        let discarded = &mut self.nodes[node as usize];
        discarded.later = std::mem::replace(&mut self.unused, node);
        let found = self.index.find_entry(hash(discarded.key), |&other| other == node);
        if let Ok(entry) = found {
            entry.remove();
        }
    }

    /// Returns the node behind it in its list, or [`NONE`].
    pub(super) fn later(&self, node: u32) -> u32 {
        self.nodes[node as usize].later
    }

    pub(super) fn note(&self, node: u32) -> &T {
        &self.nodes[node as usize].note
    }

    pub(super) fn note_mut(&mut self, node: u32) -> &mut T {
        &mut self.nodes[node as usize].note
    }
}

/// Some of the nodes, in order of joining.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE, len: 0 };

    /// Returns the node that joined longest ago, or [`NONE`].
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Returns the node that joined last, or [`NONE`].
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Adds a node that is in no list.
    pub(super) fn join<T>(&mut self, nodes: &mut Nodes<T>, node: u32) {
        let before = std::mem::replace(&mut self.last, node);
        match before {
            NONE => self.first = node,
            before => nodes.nodes[before as usize].later = node,
        }
        let joined = &mut nodes.nodes[node as usize];
        (joined.earlier, joined.later) = (before, NONE);
        self.len += 1;
    }

    /// Takes a node out of this list.
    pub(super) fn leave<T>(&mut self, nodes: &mut Nodes<T>, node: u32) {
        let Node { earlier, later, .. } = nodes.nodes[node as usize];
        match earlier {
            NONE => self.first = later,
            earlier => nodes.nodes[earlier as usize].later = later,
        }
        match later {
            NONE => self.last = earlier,
            later => nodes.nodes[later as usize].earlier = earlier,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes of a full list that has turned over many times.
    fn bytes(residents: u32) -> usize {
        let mut nodes = Nodes::new();
        let mut list = List::EMPTY;
        for key in 0..u64::from(residents) * 10 {
            if list.len() == residents {
                let first = list.first();
                list.leave(&mut nodes, first);
                nodes.discard(first);
            }
            let node = nodes.add(key, ());
            list.join(&mut nodes, node);
        }
        nodes.nodes.capacity() * size_of::<Node<()>>() + nodes.index.allocation_size()
    }

    #[test]
    fn a_resident_takes_at_most_sixty_bytes() {
        // Sizes just beyond a power of two, or beyond 7/8 of one, waste the most memory.
        for residents in [8_192, 8_193, 10_000, 14_336, 14_337] {
            let bytes = bytes(residents);
            assert!(bytes <= 60 * residents as usize, "{bytes} bytes for {residents}");
        }
    }
}
