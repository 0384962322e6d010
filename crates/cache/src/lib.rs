//! A TLS session cache that keeps the sessions whose clients come back soonest.
//!
//! A shard is one region of plain memory holding sessions, the order in which their clients are
//! expected to return, and the histories those expectations come from. It is single-threaded and
//! has all the behaviour. A [`Cache`] is many shards, each used by one thread at a time. A
//! [`Visit`] is one TLS connection's use of a cache: look up, issue, hint, forget.
//!
//! Eviction is *predictive* (Stevens & Chen, "Predictive Eviction", GLOBECOM 2015). By their
//! Algorithm 1 a session overdue by more than the grace is evicted first, or else the one that
//! returns last; a new session that would return later still is refused. Where return times are
//! learned, the session whose place is worth least, by the returns of clients like it
//! ([`ReturnTimes`]), is evicted, and that may be the new one.
//!
//! Not here: clocks, random numbers, files, sockets and TLS. Every `now_ms` is an
//! argument: milliseconds of one clock that all callers of a cache share.

#![forbid(unsafe_code)]

mod ages;
mod alike;
mod cache;
mod candidates;
mod carry;
mod chain;
mod check;
mod counters;
mod counts;
mod error;
mod expectation;
mod fingerprint;
mod ghosts;
mod hazards;
mod history;
mod id;
mod index;
mod interval;
mod layout;
mod ledger;
mod occupancy;
mod order;
mod punctuality;
mod region;
mod return_time;
mod rhythm;
mod secret;
mod session;
mod session_store;
mod settings;
mod shard;
mod slots;
mod source;
mod stages;
mod visit;

pub use cache::Cache;
pub use check::{Checked, Inconsistency};
pub use counters::{Counters, EarlyCounters};
pub use error::{Error, Refusal};
pub use expectation::{Expectation, Trust};
pub use history::History;
pub use id::{Carried, ContextTag, IdSeal, SessionId};
pub use interval::{Interval, IntervalClass, TICK_MS};
pub use layout::Layout;
pub use ledger::{EarlyData, Ledger};
pub use occupancy::Occupancy;
pub use region::{HeapMemory, Line, Memory, Region};
pub use return_time::{ReturnTimes, Waits};
pub use rhythm::Rhythm;
pub use secret::SecretBytes;
pub use session::{Arrival, Inserted, Kept, NewSession};
pub use session_store::SessionStore;
pub use settings::{Capacity, Policy, Prediction, Settings};
pub use shard::REACHES_BACK_MS;
pub use source::{Fairness, Source, SourceBy};
pub use visit::{Hints, Issued, Visit};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
