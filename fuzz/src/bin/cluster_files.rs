//! See [`rejoin_boundaries::cluster_files`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rejoin_boundaries::cluster_files(bytes));
