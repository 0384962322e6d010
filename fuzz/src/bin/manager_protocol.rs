//! See [`rejoin_boundaries::manager_protocol`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::manager_protocol(bytes));
