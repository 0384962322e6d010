//! Any bytes as frames of any link layer.

use rejoin_capture::Beginning;

use super::wire;
use crate::structured;

/// The link layers that are known, and one that is not.
const LINKS: [u32; 20] =
    [0, 1, 9, 10, 12, 50, 51, 101, 104, 105, 108, 113, 117, 127, 228, 239, 258, 276, 149, 147];

pub(crate) fn check(bytes: &[u8]) {
    let Some(input) = structured::<(u8, Vec<Vec<u8>>)>(bytes) else { return };
    let (link, frames) = input;
    for frame in &frames {
        // What it finds has ports, behind an IP header.
        assert!(Beginning::of(frame).is_none() || frame.len() >= 24);
    }
    wire::check(&wire::pcap(LINKS[usize::from(link) % LINKS.len()], &frames));
}
