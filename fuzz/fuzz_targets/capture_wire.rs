//! Any bytes as frames of any link layer.

#![no_main]

mod wire;

use libfuzzer_sys::fuzz_target;

/// The link layers that are known, and one that is not.
const LINKS: [u32; 16] = [0, 1, 9, 12, 50, 51, 101, 104, 105, 108, 113, 127, 228, 239, 276, 147];

fuzz_target!(|input: (u8, Vec<Vec<u8>>)| {
    let (link, frames) = input;
    wire::check(&wire::pcap(LINKS[usize::from(link) % LINKS.len()], &frames));
});
