//! See [`rejoin_boundaries::capture_quic`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::capture_quic(bytes));
