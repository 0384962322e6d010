//! The realistic savings: sessions expire, tickets are used up, and time runs forward.
//!
//! Handshakes are replayed by the clock. A full one is avoided if its key has a usable session: its
//! handshake was over, its lifetime has not ended, the server gave it an ID or a ticket, in TLS 1.3
//! one of its tickets is unused (RFC 8446, C.4), and it belongs to the same protocol, since TLS 1.2
//! cannot resume a QUIC session. A resumed handshake stays resumed, because it used an earlier
//! session; it uses up a ticket if one is known. Handshakes without a time are left out.

use super::counted::CountedHandshake;
use super::steps::{self, Counts};
use super::uses::Uses;

/// Assumptions about what a capture does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assumptions {
    /// Tickets that a server sends after a full handshake in TLS 1.3.
    pub tickets_per_full: u32,
    /// Tickets that a server sends after a resumption in TLS 1.3.
    pub tickets_per_resumption: u32,
    /// The longest lifetime of a session, in seconds, whatever its ticket says.
    pub longest_lifetime_s: u32,
}

impl Default for Assumptions {
    /// The ticket counts of OpenSSL, and seven days (RFC 8446, 4.6.1).
    fn default() -> Self {
        let longest_lifetime_s = 7 * 24 * 60 * 60;
        Self { tickets_per_full: 2, tickets_per_resumption: 1, longest_lifetime_s }
    }
}

/// The unused sessions of one key, the newest last.
#[derive(Debug, Default)]
struct Sessions(Vec<Session>);

/// The most sessions kept per key; beyond that, the oldest are dropped.
const MOST_SESSIONS: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Session {
    from_us: i64,
    until_us: i64,
    is_single_use: bool,
}

pub(super) fn counts(uses: &Uses, assumptions: &Assumptions) -> Counts {
    let shared_server = full(uses, assumptions, steps::network);
    let timed = || uses.iter().filter(|used| used.has_time);
    Counts {
        handshakes: timed().count() as u64,
        full_observed: timed().filter(|used| used.is_full).count() as u64,
        full_own_reuse: full(uses, assumptions, steps::own_address),
        full_shared_client: full(uses, assumptions, steps::address),
        full_own_reuse_server: full(uses, assumptions, steps::own_network),
        full_shared_server: shared_server,
        // A capture does not show under which names a server would resume a session, so none is
        // assumed.
        full_shared_certificate: shared_server,
    }
}

fn full<K: Ord>(
    uses: &Uses,
    assumptions: &Assumptions,
    key: impl Fn(&CountedHandshake) -> K,
) -> u64 {
    let by_clock = |at: u32| {
        let used = &uses.get(at);
        ((used.protocol, key(used)), (used.begun_us, at))
    };
    let mut full = 0;
    let mut sessions = Sessions::default();
    let mut timed = uses.places();
    timed.retain(|at| uses.has_time(*at));
    for group in steps::groups(&mut timed, by_clock) {
        sessions.0.clear();
        for used in group.iter().map(|at| uses.get(*at)) {
            let found = sessions.take(used.begun_us);
            let stays = used.is_full && !found;
            sessions.add(&used, stays, assumptions);
            full += u64::from(stays);
        }
    }
    full
}

impl Sessions {
    /// Uses a session. Returns false if none is valid at this time.
    fn take(&mut self, now_us: i64) -> bool {
        self.0.retain(|session| session.until_us > now_us);
        let Some(at) = self.0.iter().rposition(|session| session.from_us <= now_us) else {
            return false;
        };
        if self.0[at].is_single_use {
            self.0.remove(at);
        }
        true
    }

    /// Adds the sessions that a handshake leaves.
    fn add(&mut self, used: &CountedHandshake, was_full: bool, assumptions: &Assumptions) {
        if !used.is_resumable {
            return;
        }
        let lifetime_s = used.lifetime_s.min(assumptions.longest_lifetime_s);
        let session = Session {
            from_us: used.done_us(),
            until_us: used.done_us().saturating_add(i64::from(lifetime_s) * 1_000_000),
            is_single_use: used.protocol.is_1_3(),
        };
        let tickets = match (session.is_single_use, was_full) {
            (false, true) => 1,
            // A resumption does not extend a session's life. An observed one reveals a session that
            // was unknown so far.
            (false, false) => u32::from(!used.is_full && self.0.is_empty()),
            (true, true) => assumptions.tickets_per_full,
            (true, false) => assumptions.tickets_per_resumption,
        };
        self.0.extend((0..tickets).map(|_| session));
        let excess = self.0.len().saturating_sub(MOST_SESSIONS);
        self.0.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use foldhash::fast::FixedState;

    use super::super::counted::{Given, Ids, Network, Offer, Protocol, Target, Visit};
    use super::super::duplicates::{Nature, Outcome};
    use super::super::interned::NONE;
    use super::*;
    use crate::handshake::{Carrier, Class};

    fn at(begun_s: i64, is_single_use: bool) -> CountedHandshake {
        CountedHandshake {
            begun_us: begun_s * 1_000_000,
            has_time: true,
            lasted_us: 50_000,
            is_timed: false,
            lifetime_s: 100,
            ids: Ids {
                application: 0,
                device: 0,
                client: 0,
                host: 0,
                target: Target::Host(0),
                network: Network::Host(0),
                certificate: NONE,
            },
            nature: Nature {
                has_random: true,
                cls: Class::Full,
                carrier: Carrier::Tls,
                outcome: Outcome::Counts,
            },
            is_full: true,
            method: None,
            protocol: if is_single_use { Protocol::Tls13 } else { Protocol::Tls12 },
            is_resumable: true,
            visit: Visit {
                version: None,
                offer: Offer::Unknown,
                given: Given::Unknown,
                is_of_other_version: false,
                states_lifetime: false,
            },
            bytes: [0; 2],
        }
    }

    fn full_of(handshakes: &[CountedHandshake]) -> u64 {
        full_by(handshakes, &Assumptions::default())
    }

    fn full_by(handshakes: &[CountedHandshake], assumptions: &Assumptions) -> u64 {
        let mut uses = Uses::new(FixedState::with_seed(0));
        for (at, used) in (0..).zip(handshakes) {
            uses.push(used);
            assert_eq!(uses.get(at), *used);
        }
        counts(&uses, assumptions).full_shared_client
    }

    #[test]
    fn sessions_end() {
        assert_eq!(full_of(&[at(0, false), at(99, false)]), 1);
        assert_eq!(full_of(&[at(0, false), at(99, false), at(101, false)]), 2);
        let short = Assumptions { longest_lifetime_s: 10, ..Assumptions::default() };
        assert_eq!(full_by(&[at(0, false), at(11, false)], &short), 2);
    }

    #[test]
    fn tickets_are_spent() {
        // Two tickets serve three handshakes that begin before any of them is done.
        let burst = |is_single_use| {
            let late = at(10, is_single_use);
            [at(0, is_single_use), late, late, late]
        };
        assert_eq!((full_of(&burst(true)), full_of(&burst(false))), (2, 1));
        assert_eq!(full_of(&[at(0, true), at(10, true), at(20, true), at(30, true)]), 1);
    }

    #[test]
    fn protocols_do_not_resume_each_other() {
        let quic = CountedHandshake { protocol: Protocol::Quic, ..at(10, true) };
        assert_eq!(full_of(&[at(0, false), quic, at(20, true)]), 3);
    }

    #[test]
    fn an_observed_resumption_spends_a_ticket() {
        let resumed = CountedHandshake { is_full: false, ..at(10, true) };
        let late = at(10, true);
        // Two tickets, one of which is used up; its replacement comes too late.
        assert_eq!(full_of(&[at(0, true), resumed, late, late]), 2);
    }

    #[test]
    fn nobody_resumes_what_is_not_there_yet() {
        assert_eq!(
            full_of(&[at(0, false), CountedHandshake { begun_us: 40_000, ..at(0, false) }]),
            2
        );
        let nothing = CountedHandshake { is_resumable: false, ..at(0, false) };
        assert_eq!(full_of(&[nothing, at(1, false)]), 2);
    }

    #[test]
    fn the_clock_decides_whatever_the_order_of_captures() {
        let resumed = CountedHandshake { is_full: false, ..at(5, false) };
        assert_eq!(full_of(&[at(9, false), resumed]), 0);
        // The first session has expired, so the observed resumption reveals a new one.
        let late = CountedHandshake { is_full: false, ..at(200, false) };
        assert_eq!(full_of(&[at(0, false), late, at(210, false)]), 1);
        assert_eq!(full_of(&[at(1, false), resumed]), 1);
    }
}
