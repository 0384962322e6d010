//! See [`rejoin_boundaries::layouts`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::layouts(bytes));
