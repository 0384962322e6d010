//! See [`rejoin_boundaries::manager_socket`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::manager_socket(bytes));
