//! See [`rejoin_boundaries::session_parts`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::session_parts(bytes));
