//! See [`rejoin_boundaries::key_page`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::key_page(bytes));
