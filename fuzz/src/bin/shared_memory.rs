//! See [`rejoin_boundaries::shared_memory`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::shared_memory(bytes));
