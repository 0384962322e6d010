//! See [`rejoin_boundaries::plans`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::plans(bytes));
