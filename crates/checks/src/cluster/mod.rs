//! The promises of Rejoin to several machines: `make check-cluster`.

mod failovers;
mod faults;
mod fleet;
mod load;
mod lookups;
mod own;
mod rekey;
pub(crate) mod relay;
mod revoked;
mod ring;
mod scale;
mod secrets;
mod sites;

use crate::frame::{self, Effort, Found, Group};

pub(crate) const GROUP: Group = Group {
    name: "cluster",
    arguments: frame::ARGUMENTS,
    example: "faults",
    packages: frame::SHIPPED,
    checks: &[
        (1, "fleet-1.2", "resumed over 3 machines (one for all, less 2 points)", fleet::tls12),
        (1, "fleet-1.3", "the same, TLS 1.3", fleet::tls13),
        (2, "valkey-hits", "points between Valkey and a machine (≤ 0.5)", own::hits),
        (2, "valkey-round-trips", "a put that evicts (one)", own::round_trips),
        (2, "valkey-speed", "operations a second of one client (≥ 25,000)", own::speed),
        (2, "valkey-latency", "ms a get takes at half of that, p99 (< 2)", own::latency),
        (3, "faults-restart", "Valkey stopped, and back empty (none fails)", faults::restart),
        (3, "faults-pause", "Valkey stands still", faults::pause),
        (3, "faults-scripts", "scripts flushed", faults::scripts),
        (3, "faults-full", "Valkey has no memory left", faults::full),
        (3, "faults-altered", "values corrupted", faults::altered),
        (3, "faults-replayed", "values under other ids", faults::replayed),
        (3, "faults-failover", "a primary of three killed", faults::failover),
        (3, "faults-cut", "one machine cut off from Valkey while keys change", faults::cut),
        (
            3,
            "failovers-sentinel",
            "the primary killed 20 times (none fails, resumed ≤ 5 s)",
            failovers::sentinel,
        ),
        (
            3,
            "failovers-cluster",
            "the same, of three primaries with replicas",
            failovers::clustered,
        ),
        (3, "revoked", "restart orders after which a revoked key is back (none)", revoked::orders),
        (3, "scale-1", scale::PROMISE, scale::at::<1>),
        (3, "scale-2", scale::PROMISE, scale::at::<2>),
        (3, "scale-4", scale::PROMISE, scale::at::<4>),
        (3, "scale-8", scale::PROMISE, scale::at::<8>),
        (3, "lookups", lookups::PROMISE, lookups::asked),
        (2, "sites-1ms", sites::PROMISE, sites::at::<1>),
        (2, "sites-10ms", sites::PROMISE, sites::at::<10>),
        (2, "sites-40ms", sites::PROMISE, sites::at::<40>),
        (2, "sites-100ms", sites::PROMISE, sites::at::<100>),
        (
            4,
            "rekey-sessions",
            "the cluster's key replaced in its steps (none fails, resumed as before)",
            rekey::sessions,
        ),
        (4, "rekey-tickets", "the same, of stateless tickets", rekey::tickets),
        (4, "rotations", "a thousand, of four servers", own::rotations),
        (5, "secrets", "found (none)", secrets::unseen),
    ],
};
