//! See [`rejoin_boundaries::session_id`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::session_id(bytes));
