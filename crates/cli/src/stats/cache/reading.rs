//! A snapshot of a cache: counters, facts, and the return times of its clients.

use rejoin_cache::{Counters, EarlyCounters, Occupancy};
use rejoin_serve::metrics::{Meters, by};
use rejoin_store::{CacheName, Facts, Store, now_ms};
use serde_json::{Map, Value, json};

use crate::stats::percent;
use crate::ticket_keys::TicketKeys;

/// The counters of tickets, with their names.
type TicketCounts = [(&'static str, u64); rejoin_tickets::TicketEvent::ALL.len()];

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) name: CacheName,
    pub(super) counters: Counters,
    pub(super) facts: Facts,
    pub(super) occupancy: Occupancy,
    pub(super) tickets: TicketCounts,
    early: EarlyCounters,
    ticket_keys: TicketKeys,
    pub(super) capacity_sessions: u64,
}

impl Reading {
    pub(super) fn of(store: &Store) -> Self {
        Self::with(store, store.occupancy(now_ms()))
    }

    /// Takes a snapshot with the return times counted before.
    pub(super) fn with(store: &Store, occupancy: Occupancy) -> Self {
        Self {
            name: store.name().clone(),
            counters: store.counters(),
            facts: store.facts(),
            occupancy,
            tickets: store.ticket_counters(),
            early: store.early_counters(),
            ticket_keys: TicketKeys::of(store),
            capacity_sessions: store.capacity_sessions(),
        }
    }

    /// Returns every counter with its name.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_locks = self.of_locks().map(|(name, _, count)| (name, count));
        let early = self.early.named();
        self.counters.named().into_iter().chain(self.tickets).chain(early).chain(of_locks)
    }

    /// Returns the snapshot as a JSON object.
    pub(super) fn json(&self) -> Value {
        let Self { facts, counters, .. } = self;
        let mut record = json!({
            "name": self.name.to_string(),
            "removed": !facts.is_named,
            "bytes": facts.bytes,
            "created_unix_s": facts.created_unix_s,
            "capacity_sessions": self.capacity_sessions,
            "resumed_percent": resumed_percent(counters),
            "found_percent": found_percent(counters),
            "mean_prediction_error_ms": counters.mean_prediction_error_ms(),
            "lock_waited_ms": facts.lock_waited_us / 1_000,
        });
        for (name, count) in self.counts() {
            record[name] = count.into();
        }
        let expected = self.occupancy.named().map(|(name, count)| (name.to_owned(), count.into()));
        record["sessions_by_return"] = Map::from_iter(expected).into();
        record
    }

    /// Returns the snapshot as metrics.
    pub(super) fn metrics(&self) -> Meters {
        let Self { facts, counters, .. } = self;
        let mut meters = Meters::new(vec![("cache", self.name.to_string())]);
        meters.cache(counters);
        for (name, count) in self.tickets {
            meters.counter(format!("cache_{name}"), ticket_help(name), count);
        }
        for (name, count) in self.early.named() {
            meters.counter(format!("cache_{name}"), early_help(name), count);
        }
        for (name, help, count) in self.of_locks() {
            meters.counter(format!("cache_{name}"), help, count);
        }
        let help =
            "Time that processes waited for each other, at most a hundredth of all time for each";
        let waited_s = facts.lock_waited_us as f64 / 1e6;
        meters.counter("cache_lock_waited_seconds", help, waited_s);
        let help = "Sessions stored now, by when their clients are expected back";
        let returns = by("returns", self.occupancy.named());
        meters.gauges("cache_sessions_by_return", help, returns);
        let help = "Sessions that fit, if each takes one block";
        meters.gauge("cache_capacity_sessions", help, self.capacity_sessions);
        meters.gauge("cache_capacity_bytes", "Size of the cache", facts.bytes);
        let help = "Time at which the cache was created, in seconds since 1970";
        meters.gauge("cache_created_timestamp_seconds", help, facts.created_unix_s);
        let help = "1 once the cache is removed or cut short; no new process can open it";
        meters.gauge("cache_removed", help, u64::from(!facts.is_named));
        self.ticket_keys.add_to(&mut meters);
        meters
    }

    fn of_locks(&self) -> [(&'static str, &'static str, u64); 5] {
        let Facts { lock_waits, lock_timeouts, lock_skips, locks_broken, emptied, .. } = self.facts;
        [
            ("lock_waits", "Times a process waited for another", lock_waits),
            (
                "lock_timeouts",
                "Operations skipped because a lock was not free within 0.1 s",
                lock_timeouts,
            ),
            (
                "lock_skips",
                "Operations skipped at once, because the process had waited in vain or for its share",
                lock_skips,
            ),
            (
                "locks_broken",
                "Operations skipped because another process overwrote a lock",
                locks_broken,
            ),
            (
                "emptied",
                "Shards emptied because a process died in one, or something overwrote it",
                emptied,
            ),
        ]
    }
}

/// Returns the percentage of handshakes that resumed.
pub(super) fn resumed_percent(counters: &Counters) -> Option<f64> {
    let Counters { full_handshakes, resumed_handshakes, .. } = *counters;
    percent(resumed_handshakes, full_handshakes + resumed_handshakes)
}

/// Returns the percentage of lookups that found a session.
pub(super) fn found_percent(counters: &Counters) -> Option<f64> {
    percent(counters.hits, counters.hits + counters.misses)
}

fn early_help(name: &str) -> &'static str {
    match name {
        "early_data_accepted" => "Early data accepted, each once",
        "early_data_unknown" => {
            "Early data rejected because its session is used up, or gone: replays are among it"
        }
        "early_data_waiting" => {
            "Early data rejected because a copy could have been accepted before"
        }
        _ => "Early data rejected by the TLS library or the program",
    }
}

fn ticket_help(name: &str) -> &'static str {
    match name {
        "tickets_issued" => "Stateless tickets issued",
        "tickets_keyless" => "Stateless tickets issued without a shared key",
        "tickets_known" => "Stateless tickets presented under a live key",
        "tickets_renewed" => "Stateless tickets presented under a live key that no longer encrypts",
        "tickets_unknown" => "Stateless tickets presented under no live key",
        "tickets_overdue" => "Stateless tickets refused because the full handshake is too old",
        _ => "A count of stateless tickets",
    }
}
