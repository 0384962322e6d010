//! See [`rejoin_boundaries::cache_model`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::cache_model(bytes));
