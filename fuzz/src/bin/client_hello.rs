//! See [`rejoin_boundaries::client_hello`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::client_hello(bytes));
