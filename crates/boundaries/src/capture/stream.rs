//! Segments of a TLS connection in any order: overlapping, missing, cut short, begun again.

use arbitrary::Arbitrary;

use super::wire;
use crate::structured;

#[derive(Debug, Arbitrary)]
struct Piece {
    from_client: bool,
    flags: u8,
    offset: u16,
    /// The piece: bytes of the fuzzer, or a part of a valid message.
    source: Result<Vec<u8>, (u16, u16)>,
    captured: u16,
}

pub(crate) fn check(bytes: &[u8]) {
    let Some(pieces) = structured::<Vec<Piece>>(bytes) else { return };
    let talk = talk();
    let frames: Vec<Vec<u8>> = pieces.iter().map(|piece| frame(piece, &talk)).collect();
    wire::check(&wire::pcap(101, &frames));
}

fn frame(piece: &Piece, talk: &[u8]) -> Vec<u8> {
    let payload = match &piece.source {
        Ok(bytes) => bytes,
        Err((from, length)) => {
            let rest = &talk[usize::from(*from) % talk.len()..];
            &rest[..rest.len().min(usize::from(*length))]
        }
    };
    // Close to the end of the numbers, so that they begin again.
    let sequence = 0xffff_ff00u32.wrapping_add(piece.offset.into());
    let mut frame = wire::tcp(piece.from_client, piece.flags & 0x12, sequence, payload);
    frame.truncate(usize::from(piece.captured).max(40));
    frame
}

/// Records of both sides, one after the other.
fn talk() -> Vec<u8> {
    let mut hello = vec![22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x2f, 1, 0, 0, 0]);
    let mut answer = vec![22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3];
    answer.extend([9; 32]);
    answer.extend([0, 0xc0, 0x2f, 0]);
    let certificate = [22, 3, 3, 0, 12, 11, 0, 0, 8, 0, 0, 5, 0, 0, 2, 0x30, 0];
    let ticket = [22, 3, 3, 0, 12, 4, 0, 0, 8, 0, 0, 0, 9, 0, 2, 5, 6];
    let rest = [20, 3, 3, 0, 1, 1, 22, 3, 3, 0, 4, 1, 2, 3, 4, 23, 3, 3, 0, 2, 0, 0];
    [hello, answer, certificate.to_vec(), ticket.to_vec(), rest.to_vec()].concat()
}
