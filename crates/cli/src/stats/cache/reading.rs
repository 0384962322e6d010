//! What is known of a cache at one time: counts, facts, and when its clients return.

use rejoin_cache::{Counters, Occupancy};
use rejoin_serve::metrics::Meters;
use rejoin_store::{CacheName, Facts, Store, now_ms};
use serde_json::{Map, Value, json};

use crate::stats::percent;

/// By name.
type TicketCounts = [(&'static str, u64); rejoin_tickets::TicketEvent::ALL.len()];

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) name: CacheName,
    pub(super) counters: Counters,
    pub(super) facts: Facts,
    pub(super) occupancy: Occupancy,
    pub(super) tickets: TicketCounts,
    pub(super) capacity_sessions: u64,
}

impl Reading {
    pub(super) fn of(store: &Store) -> Self {
        Self::with(store, store.occupancy(now_ms()))
    }

    /// Where the sessions were counted by return time not long ago.
    pub(super) fn with(store: &Store, occupancy: Occupancy) -> Self {
        Self {
            name: store.name().clone(),
            counters: store.counters(),
            facts: store.facts(),
            occupancy,
            tickets: store.ticket_counters(),
            capacity_sessions: store.capacity_sessions(),
        }
    }

    /// Every count and its name.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_locks = self.of_locks().map(|(name, _, count)| (name, count));
        self.counters.named().into_iter().chain(self.tickets).chain(of_locks)
    }

    /// As one object.
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
        });
        for (name, count) in self.counts() {
            record[name] = count.into();
        }
        let expected = self.occupancy.named().map(|(name, count)| (name.to_owned(), count.into()));
        record["sessions_by_return"] = Map::from_iter(expected).into();
        record
    }

    /// As Prometheus reads it.
    pub(super) fn metrics(&self) -> String {
        let Self { facts, counters, .. } = self;
        let mut meters = Meters::default();
        meters.cache(counters);
        for (name, count) in self.tickets {
            meters.counter(format!("cache_{name}"), ticket_help(name), count);
        }
        for (name, help, count) in self.of_locks() {
            meters.counter(format!("cache_{name}"), help, count);
        }
        let help = "Sessions by when their clients are expected back, each counted once";
        let returns = self.occupancy.named().to_vec();
        meters.gauges("cache_sessions_by_return", help, "returns", returns);
        let help = "Sessions of up to one block that fit";
        meters.gauge("cache_capacity_sessions", help, self.capacity_sessions);
        meters.gauge("cache_capacity_bytes", "Bytes of the cache's file", facts.bytes);
        let help = "When the cache was made, in seconds since 1970";
        meters.gauge("cache_created_timestamp_seconds", help, facts.created_unix_s);
        let help = "1 once the cache was removed: nobody new can open it";
        meters.gauge("cache_removed", help, u64::from(!facts.is_named));
        meters.text(&[("cache", self.name.to_string())])
    }

    fn of_locks(&self) -> [(&'static str, &'static str, u64); 4] {
        let Facts { lock_waits, lock_timeouts, locks_broken, emptied, .. } = self.facts;
        [
            ("lock_waits", "Times a process waited for another", lock_waits),
            ("lock_timeouts", "Operations not done: a lock was not had in time", lock_timeouts),
            ("locks_broken", "Operations not done: somebody wrote over a lock", locks_broken),
            ("emptied", "Times a shard was emptied: nothing in it could be trusted", emptied),
        ]
    }
}

/// Of all handshakes.
pub(super) fn resumed_percent(counters: &Counters) -> Option<f64> {
    let Counters { full_handshakes, resumed_handshakes, .. } = *counters;
    percent(resumed_handshakes, full_handshakes + resumed_handshakes)
}

/// Of the sessions that were asked for.
pub(super) fn found_percent(counters: &Counters) -> Option<f64> {
    percent(counters.hits, counters.hits + counters.misses)
}

fn ticket_help(name: &str) -> &'static str {
    match name {
        "tickets_issued" => "Stateless tickets given to clients",
        "tickets_keyless" => "Stateless tickets given to clients though there was no key",
        "tickets_known" => "Stateless tickets presented, of a key that is alive",
        "tickets_renewed" => "Of those, of a key whose turn is over",
        "tickets_unknown" => "Stateless tickets presented, of no key that is alive",
        "tickets_overdue" => "Stateless tickets refused: the full handshake is too long ago",
        _ => "A count of stateless tickets",
    }
}
