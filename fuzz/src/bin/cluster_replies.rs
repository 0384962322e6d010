//! See [`rejoin_boundaries::cluster_replies`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::cluster_replies(bytes));
