//! Two streams of bytes, in clean segments.

use super::wire;
use crate::structured;

const SEGMENT_BYTES: usize = 1_000;

pub(crate) fn check(bytes: &[u8]) {
    let Some(streams) = structured::<[Vec<u8>; 2]>(bytes) else { return };
    let mut frames = Vec::new();
    let mut pieces = streams.each_ref().map(|stream| stream.chunks(SEGMENT_BYTES).enumerate());
    loop {
        let before = frames.len();
        for (from_client, pieces) in [true, false].into_iter().zip(&mut pieces) {
            if let Some((place, piece)) = pieces.next() {
                let sequence = (place * SEGMENT_BYTES) as u32;
                frames.push(wire::tcp(from_client, 0x10, sequence, piece));
            }
        }
        if frames.len() == before {
            break;
        }
    }
    wire::check(&wire::pcap(101, &frames));
}
