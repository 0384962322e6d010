//! See [`rejoin_boundaries::share_messages`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::share_messages(bytes));
