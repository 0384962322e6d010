//! See [`rejoin_boundaries::access_logs`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::access_logs(bytes));
