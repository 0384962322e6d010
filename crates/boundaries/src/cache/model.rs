//! The engine against the naive exact model that its own tests use.

use rejoin_cache::{Layout, Line};
use rejoin_testkit::cache_model::twins::Twins;

use super::input::{CLIENTS, CONTEXTS, Input};
use crate::structured;

pub(crate) fn check(bytes: &[u8]) {
    let Some(input) = structured::<Input>(bytes) else { return };
    let memory = |layout: &Layout| vec![Line::ZERO; layout.region_lines()];
    let (settings, hash_key) = (input.cache.settings(), input.cache.hash_key);
    let mut twins = Twins::new(&settings, hash_key, CLIENTS, 0, memory);
    let mut end_ms = 0;
    for (now_ms, operation) in input.operations {
        twins.apply(now_ms, operation);
        twins.compare_counters();
        end_ms = now_ms;
    }
    twins.compare_all(end_ms, &CONTEXTS);
}
