//! See [`rejoin_boundaries::http`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::http(bytes));
