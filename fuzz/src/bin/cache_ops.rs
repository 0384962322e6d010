//! See [`rejoin_boundaries::cache_ops`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::cache_ops(bytes));
