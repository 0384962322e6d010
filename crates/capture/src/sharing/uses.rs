//! The handshakes that count, in few bytes each.
//!
//! A capture may have millions of them. What many share, such as the server, the name and the version, is
//! stored once. The hashes of tickets and session IDs are kept apart, because most handshakes show one at most.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use super::counted::{CountedHandshake, Ids, Network, Protocol, Target, Visit};
use super::duplicates::Nature;
use super::interned::Interned;
use crate::digest::Digest;
use crate::handshake::{Handshake, Method};

/// The handshakes that count, in the order of the captures, and of time within each.
#[derive(Debug)]
pub(super) struct Uses {
    rows: Vec<Row>,
    kinds: Interned<Kind>,
    /// The tickets and session IDs that were seen, by [`Sight`].
    seen: [Vec<(u32, Digest)>; Sight::COUNT],
}

/// The part of a handshake that is its own.
#[derive(Debug, Clone, Copy)]
struct Row {
    begun_us: i64,
    lasted_us: i32,
    lifetime_s: u32,
    client: u32,
    kind: u32,
    bytes: [u32; 2],
}

/// The part of a handshake that others share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    /// `None` if it is the client's address.
    application: Option<u32>,
    /// `None` if it is the client's address.
    device: Option<u32>,
    host: u32,
    target: Target,
    network: Network,
    certificate: u32,
    nature: Nature,
    has_time: bool,
    is_timed: bool,
    is_full: bool,
    method: Option<Method>,
    protocol: Protocol,
    is_resumable: bool,
    visit: Visit,
}

/// The roles in which a ticket or a session ID is seen. Offers come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sight {
    OfferedTicket,
    OfferedSession,
    IssuedTicket,
    IssuedSession,
}

impl Sight {
    const COUNT: usize = Self::ALL.len();
    const ALL: [Self; 4] =
        [Self::OfferedTicket, Self::OfferedSession, Self::IssuedTicket, Self::IssuedSession];

    pub(super) fn is_offer(self) -> bool {
        matches!(self, Self::OfferedTicket | Self::OfferedSession)
    }

    fn of(self, handshake: &Handshake) -> Option<Digest> {
        match self {
            Self::OfferedTicket => handshake.offered_ticket_hash,
            Self::OfferedSession => handshake.offered_sid_hash,
            Self::IssuedTicket => handshake.issued_ticket_hash,
            Self::IssuedSession => handshake.session_id_hash,
        }
    }
}

impl Uses {
    pub(super) fn new(hasher: FixedState) -> Self {
        let seen = std::array::from_fn(|_| Vec::new());
        Self { rows: Vec::new(), kinds: Interned::new(hasher), seen }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds a handshake that may count.
    pub(super) fn add(&mut self, used: &CountedHandshake, handshake: &Handshake) {
        let at = self.rows.len() as u32;
        for (seen, sight) in self.seen.iter_mut().zip(Sight::ALL) {
            seen.extend(sight.of(handshake).map(|hash| (at, hash)));
        }
        self.push(used);
    }

    pub(super) fn push(&mut self, used: &CountedHandshake) {
        let CountedHandshake { begun_us, lasted_us, lifetime_s, ids, bytes, .. } = *used;
        let kind = Kind::of(used);
        let kind = self.kinds.id(&kind, || kind);
        self.rows.push(Row { begun_us, lasted_us, lifetime_s, client: ids.client, kind, bytes });
    }

    pub(super) fn get(&self, at: u32) -> CountedHandshake {
        self.joined(&self.rows[at as usize])
    }

    pub(super) fn begun_us(&self, at: u32) -> i64 {
        self.rows[at as usize].begun_us
    }

    pub(super) fn has_time(&self, at: u32) -> bool {
        self.kind(&self.rows[at as usize]).has_time
    }

    pub(super) fn nature(&self, at: u32) -> Nature {
        self.kind(&self.rows[at as usize]).nature
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = CountedHandshake> + Clone {
        self.rows.iter().map(|row| self.joined(row))
    }

    /// The places of all handshakes.
    pub(super) fn places(&self) -> Vec<u32> {
        (0..self.rows.len() as u32).collect()
    }

    /// The tickets and session IDs that were seen, with the places of their handshakes.
    pub(super) fn sights(&self) -> impl Iterator<Item = (Sight, u32, Digest)> {
        let of = |(sight, seen)| {
            let seen: &Vec<(u32, Digest)> = seen;
            seen.iter().map(move |(at, hash)| (sight, *at, *hash))
        };
        Sight::ALL.into_iter().zip(&self.seen).flat_map(of)
    }

    /// Brings the handshakes from `first` on into this order, by their places behind it.
    pub(super) fn arrange(&mut self, first: usize, order: &[u32]) {
        arrange(&mut self.rows[first..], order);
        let mut places = vec![0; order.len()];
        (0..).zip(order).for_each(|(to, from): (u32, _)| places[*from as usize] = to);
        for seen in &mut self.seen {
            let begin = begin(seen, first);
            for (at, _) in &mut seen[begin..] {
                *at = first as u32 + places[*at as usize - first];
            }
        }
    }

    /// Removes all handshakes from `first` on but those that `keeps` names, by their places behind it.
    pub(super) fn keep(&mut self, first: usize, keeps: &[bool]) {
        if keeps.iter().all(|keeps| *keeps) {
            return;
        }
        let mut places = vec![None; keeps.len()];
        let mut kept = first;
        for (from, _) in keeps.iter().enumerate().filter(|(_, keeps)| **keeps) {
            self.rows[kept] = self.rows[first + from];
            places[from] = Some(kept as u32);
            kept += 1;
        }
        self.rows.truncate(kept);
        for seen in &mut self.seen {
            let begin = begin(seen, first);
            let mut left = begin;
            for from in begin..seen.len() {
                let (at, hash) = seen[from];
                if let Some(place) = places[at as usize - first] {
                    seen[left] = (place, hash);
                    left += 1;
                }
            }
            seen.truncate(left);
        }
    }

    /// Removes the resumptions of these sessions, and of those that they issued in turn. Returns their number.
    pub(super) fn remove_resumptions(&mut self, sessions: &mut HashSet<Digest, FixedState>) -> u64 {
        if sessions.is_empty() {
            return 0;
        }
        let is_resumed = |at: u32| !self.kind(&self.rows[at as usize]).is_full;
        let sights = self.sights().filter(|(_, at, _)| is_resumed(*at));
        let mut sights: Vec<_> =
            sights.map(|(sight, at, hash)| ((self.begun_us(at), at, sight), hash)).collect();
        sights.sort_unstable();
        let mut keeps = vec![true; self.rows.len()];
        for of_one in sights.chunk_by(|((_, one, _), _), ((_, other, _), _)| one == other) {
            // A server that resumes by session ID states it again.
            if of_one.iter().any(|(_, hash)| sessions.contains(hash)) {
                let issued = of_one.iter().filter(|((.., sight), _)| !sight.is_offer());
                sessions.extend(issued.map(|(_, hash)| *hash));
                keeps[of_one[0].0.1 as usize] = false;
            }
        }
        drop(sights);
        self.keep(0, &keeps);
        keeps.iter().filter(|keeps| !**keeps).count() as u64
    }

    fn kind(&self, row: &Row) -> &Kind {
        self.kinds.get(row.kind).expect("it was interned with the row")
    }

    fn joined(&self, row: &Row) -> CountedHandshake {
        let Row { begun_us, lasted_us, lifetime_s, client, bytes, .. } = *row;
        let kind = self.kind(row);
        CountedHandshake {
            begun_us,
            has_time: kind.has_time,
            lasted_us,
            is_timed: kind.is_timed,
            lifetime_s,
            ids: Ids {
                application: kind.application.unwrap_or(client),
                device: kind.device.unwrap_or(client),
                client,
                host: kind.host,
                target: kind.target,
                network: kind.network,
                certificate: kind.certificate,
            },
            nature: kind.nature,
            is_full: kind.is_full,
            method: kind.method,
            protocol: kind.protocol,
            is_resumable: kind.is_resumable,
            bytes,
            visit: kind.visit,
        }
    }
}

/// The place of the first that was seen in a handshake from `first` on: they come after all others.
fn begin(seen: &[(u32, Digest)], first: usize) -> usize {
    seen.partition_point(|(at, _)| (*at as usize) < first)
}

impl Kind {
    fn of(used: &CountedHandshake) -> Self {
        let Ids { application, device, client, host, target, network, certificate } = used.ids;
        Self {
            application: (application != client).then_some(application),
            device: (device != client).then_some(device),
            host,
            target,
            network,
            certificate,
            nature: used.nature,
            has_time: used.has_time,
            is_timed: used.is_timed,
            is_full: used.is_full,
            method: used.method,
            protocol: used.protocol,
            is_resumable: used.is_resumable,
            visit: used.visit,
        }
    }
}

/// Brings values into an order, without another copy of them.
pub(super) fn arrange<T: Copy>(values: &mut [T], order: &[u32]) {
    let mut is_there = vec![false; order.len()];
    for first in 0..order.len() {
        if is_there[first] {
            continue;
        }
        let (held, mut to) = (values[first], first);
        loop {
            is_there[to] = true;
            let from = order[to] as usize;
            if from == first {
                values[to] = held;
                break;
            }
            values[to] = values[from];
            to = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_into_any_order() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 3, 0], [2, 0, 3, 1], [1, 0, 2, 3]] {
            let mut values = [10, 11, 12, 13];
            arrange(&mut values, &order);
            assert_eq!(values, order.map(|from| 10 + from));
        }
    }

    #[test]
    fn a_row_takes_few_bytes() {
        assert_eq!(size_of::<Row>(), 32);
        assert!(size_of::<(u32, Digest)>() == 12);
    }
}
