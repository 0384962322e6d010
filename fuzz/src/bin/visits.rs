//! See [`rejoin_boundaries::visits`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::visits(bytes));
