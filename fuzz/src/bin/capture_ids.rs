//! See [`rejoin_boundaries::capture_ids`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::capture_ids(bytes));
