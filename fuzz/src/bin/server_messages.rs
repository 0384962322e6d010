//! See [`rejoin_boundaries::server_messages`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::server_messages(bytes));
