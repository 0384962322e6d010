//! Any bytes as a capture file.

#![no_main]

mod wire;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::check(bytes));
