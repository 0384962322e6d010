//! Datagrams of DTLS: any bytes, or records with fragments of messages in any order.

use arbitrary::Arbitrary;

use super::wire;
use crate::structured;

#[derive(Debug, Arbitrary)]
struct Datagram {
    from_client: bool,
    payload: Payload,
    captured: Option<u16>,
}

#[derive(Debug, Arbitrary)]
enum Payload {
    Any(Vec<u8>),
    Records(Vec<Record>),
}

#[derive(Debug, Arbitrary)]
struct Record {
    is_encrypted: bool,
    number: u8,
    content: Content,
}

#[derive(Debug, Arbitrary)]
enum Content {
    /// A part of a valid message: which, where it begins, and its length.
    Part(u8, u8, u8),
    /// Kind, length, number, offset, and a body.
    Fragment(u8, u16, u8, u16, Vec<u8>),
    ChangeCipherSpec,
    Other(u8, Vec<u8>),
    /// A record with the short header of DTLS 1.3.
    Short(u8, Vec<u8>),
}

pub(crate) fn check(bytes: &[u8]) {
    let Some(datagrams) = structured::<Vec<Datagram>>(bytes) else { return };
    let frames: Vec<Vec<u8>> = datagrams.iter().map(frame).collect();
    wire::check(&wire::pcap(101, &frames));
}

fn frame(datagram: &Datagram) -> Vec<u8> {
    let payload = match &datagram.payload {
        Payload::Any(bytes) => bytes.clone(),
        Payload::Records(records) => {
            let from_client = datagram.from_client;
            records.iter().flat_map(|record| bytes(from_client, record)).collect()
        }
    };
    let mut frame = wire::udp(datagram.from_client, [40_000, 4_433], &payload);
    if let Some(captured) = datagram.captured {
        frame.truncate(usize::from(captured).max(28));
    }
    frame
}

fn bytes(from_client: bool, record: &Record) -> Vec<u8> {
    let (kind, body) = match &record.content {
        Content::Part(message, begin, length) => (22, part(from_client, *message, *begin, *length)),
        Content::Fragment(kind, length, message, offset, body) => {
            let length = u32::from(*length);
            (22, fragment(*kind, length, (*message).into(), (*offset).into(), body))
        }
        Content::ChangeCipherSpec => (20, vec![1]),
        Content::Other(kind, body) => (20 + kind % 7, body.clone()),
        Content::Short(first, body) => return [&[0x20 | first & 0x1f][..], body].concat(),
    };
    let epoch = u8::from(record.is_encrypted);
    let number = [0, epoch, 0, 0, 0, 0, 0, record.number];
    let length = (body.len() as u16).to_be_bytes();
    [&[kind, 0xfe, 0xfd][..], &number, &length, &body].concat()
}

fn fragment(kind: u8, length: u32, message: u16, offset: u32, body: &[u8]) -> Vec<u8> {
    let three = |number: u32| number.to_be_bytes()[1..].to_vec();
    let head = [&[kind][..], &three(length), &message.to_be_bytes(), &three(offset)].concat();
    [head, three(body.len() as u32), body.to_vec()].concat()
}

/// A part of a hello, a request to verify the address, a certificate, a ticket, or another message.
fn part(from_client: bool, message: u8, begin: u8, length: u8) -> Vec<u8> {
    let (random, message) = ([7; 32], message % 5);
    let (kind, body): (u8, Vec<u8>) = match (from_client, message) {
        (true, 0 | 1) => {
            let cookie: &[u8] = if message == 0 { &[0] } else { &[2, 8, 8] };
            let rest = [0, 2, 0xc0, 0x2f, 1, 0, 0, 0];
            (1, [&[0xfe, 0xfd][..], &random, &[0], cookie, &rest].concat())
        }
        (false, 0) => (3, vec![0xfe, 0xff, 2, 8, 8]),
        (false, 1) => (2, [&[0xfe, 0xfd][..], &random, &[0, 0xc0, 0x2f, 0]].concat()),
        (_, 2) => (11, vec![0, 0, 5, 0, 0, 2, 0x30, 0]),
        (true, _) => (16, vec![1, 9]),
        (false, 3) => (4, vec![0, 0, 0, 9, 0, 2, 5, 6]),
        (false, _) => (14, vec![]),
    };
    let begin = usize::from(begin).min(body.len());
    let end = (begin + usize::from(length)).min(body.len());
    fragment(kind, body.len() as u32, message.into(), begin as u32, &body[begin..end])
}

#[cfg(test)]
mod tests {
    use rejoin_capture::{Analyser, Carrier, Class, Limits};

    use super::*;

    /// The builder makes what the analyser reads, or the target would test little.
    #[test]
    fn a_handshake_that_is_built_is_found() {
        let record = |number, message, begin, length| Record {
            is_encrypted: false,
            number,
            content: Content::Part(message, begin, length),
        };
        let datagram = |from_client, records| Datagram {
            from_client,
            payload: Payload::Records(records),
            captured: None,
        };
        let frames = [
            datagram(true, vec![record(0, 0, 0, 20), record(1, 0, 20, 255)]),
            datagram(false, vec![record(0, 1, 0, 255), record(1, 2, 0, 255)]),
        ];
        let capture = wire::pcap(101, &frames.each_ref().map(frame));
        let mut found = Vec::new();
        let mut analyser = Analyser::new(Limits::default());
        analyser.read(&capture[..], |it| found.push((it.carrier, it.cls))).expect("a capture");
        assert_eq!(found, [(Carrier::Dtls, Class::Full)]);
    }
}
