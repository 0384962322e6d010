//! Datagrams: any bytes, or Initial packets under the right keys with any frames in them.

use arbitrary::Arbitrary;

use super::initial::{Ends, V1, sealed};
use super::wire;
use crate::structured;

const ID: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

#[derive(Debug, Arbitrary)]
enum Payload {
    Any(Vec<u8>),
    /// Any frames.
    Initial(Vec<u8>),
    /// CRYPTO frames: offset and bytes.
    Crypto(Vec<(u8, Vec<u8>)>),
}

#[derive(Debug, Arbitrary)]
struct Datagram {
    from_client: bool,
    payload: Payload,
    captured: Option<u16>,
}

pub(crate) fn check(bytes: &[u8]) {
    let Some(datagrams) = structured::<Vec<Datagram>>(bytes) else { return };
    let frames: Vec<Vec<u8>> = datagrams.iter().filter_map(frame).collect();
    wire::check(&wire::pcap(101, &frames));
}

fn frame(datagram: &Datagram) -> Option<Vec<u8>> {
    let payload = match &datagram.payload {
        Payload::Any(bytes) => bytes.clone(),
        Payload::Initial(frames) => initial(datagram.from_client, frames)?,
        Payload::Crypto(pieces) => {
            let frames = pieces.iter().filter(|(_, piece)| piece.len() < 64);
            let frames: Vec<u8> = frames
                .flat_map(|(offset, piece)| {
                    [&[6, offset & 0x3f, piece.len() as u8][..], piece].concat()
                })
                .collect();
            initial(datagram.from_client, &frames)?
        }
    };
    let mut frame = wire::udp(datagram.from_client, [40_000, 443], &payload);
    if let Some(captured) = datagram.captured {
        frame.truncate(usize::from(captured).max(28));
    }
    Some(frame)
}

/// An Initial packet of version 1 with a packet number of one byte.
fn initial(from_client: bool, frames: &[u8]) -> Option<Vec<u8>> {
    let (keys_of, to, from) = (&ID, &ID, &[]);
    sealed(V1, Ends { from_client, keys_of, to, from }, frames)
}
