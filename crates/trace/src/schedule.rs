//! Clients in order of their next connection.
//!
//! Only the clients that connect within the present moment are in a heap. The others are in a
//! ring of unsorted lists, one for each moment to come, and enter the heap when their moment
//! begins. A client further ahead than the ring is long stays in its list for another lap. Time
//! and number order the connections completely, so the ring does not change the order; with ten
//! million clients in one heap, an event would cost several times as much.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The mean number of connections in a moment, at most: its heap stays in a processor's cache.
const CONNECTIONS_PER_MOMENT: f64 = 256.0;
/// The mean number of clients in a list of the ring: few enough for laps to be rare.
const CLIENTS_PER_LIST: usize = 64;

/// The end of a list: no client has this number.
const NONE: u32 = u32::MAX;

/// The most clients that a schedule holds.
pub(crate) const MOST_CLIENTS: u64 = NONE as u64;

/// A client between two connections, which lends the schedule a field for its lists.
pub(crate) trait Scheduled {
    /// Returns when it connects next.
    fn next_ms(&self) -> u64;
    /// Returns the schedule's field: the client after it in its list.
    fn after(&mut self) -> &mut u32;
}

/// Clients, by number, in order of their next connection.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    /// The times and numbers of the clients of this moment, the least on top.
    due: BinaryHeap<Reverse<u128>>,
    /// The first client of each list. Those of moment m are in list m modulo the length.
    later: Vec<u32>,
    /// The length of a moment: so many bits of a time in milliseconds.
    moment_bits: u32,
    /// The present moment.
    moment: u64,
}

impl Schedule {
    /// Makes the schedule of clients that connect so often, all together.
    pub(crate) fn new(clients: &mut [impl Scheduled], connections_per_s: f64) -> Self {
        let moment_ms = (CONNECTIONS_PER_MOMENT / connections_per_s * 1_000.0) as u64;
        let later = vec![NONE; clients.len().div_ceil(CLIENTS_PER_LIST)];
        let moment_bits = moment_ms.max(1).ilog2();
        let mut schedule = Self { due: BinaryHeap::new(), later, moment_bits, moment: 0 };
        for (number, client) in clients.iter_mut().enumerate() {
            schedule.add(number as u32, client);
        }
        schedule
    }

    pub(crate) fn add(&mut self, number: u32, client: &mut impl Scheduled) {
        let next_ms = client.next_ms();
        let moment = next_ms >> self.moment_bits;
        if moment <= self.moment {
            // Time and number are one number, so that the heap compares without branches.
            self.due.push(Reverse(u128::from(next_ms) << 32 | u128::from(number)));
        } else {
            let list = moment % self.later.len() as u64;
            *client.after() = std::mem::replace(&mut self.later[list as usize], number);
        }
    }

    pub(crate) fn take_next(&mut self, clients: &mut [impl Scheduled]) -> Option<u32> {
        if self.due.is_empty() {
            self.advance(clients);
        }
        self.due.pop().map(|Reverse(key)| key as u32)
    }

    /// Goes on to the next moment that has a client.
    fn advance(&mut self, clients: &mut [impl Scheduled]) {
        for _ in 0..self.later.len() {
            self.begin(self.moment + 1, clients);
            if !self.due.is_empty() {
                return;
            }
        }
        // No client is due in a whole lap: all wait for a long time.
        let earliest_ms = clients.iter().map(Scheduled::next_ms).min();
        if let Some(earliest_ms) = earliest_ms {
            self.begin(earliest_ms >> self.moment_bits, clients);
        }
    }

    /// Begins a moment: its clients become due, and those of a later lap go back into the list.
    fn begin(&mut self, moment: u64, clients: &mut [impl Scheduled]) {
        self.moment = moment;
        let list = moment % self.later.len() as u64;
        let mut number = std::mem::replace(&mut self.later[list as usize], NONE);
        while number != NONE {
            let client = &mut clients[number as usize];
            let after = *client.after();
            self.add(number, client);
            number = after;
        }
    }
}
