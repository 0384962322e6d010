//! See [`rejoin_boundaries::traces`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::traces(bytes));
