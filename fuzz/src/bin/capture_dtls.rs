//! See [`rejoin_boundaries::capture_dtls`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::capture_dtls(bytes));
