//! Captures made by hand, message by message.

use rejoin_capture::{Analyser, Handshake, Limits};

pub const CLIENT: u16 = 40_000;
pub const SERVER: u16 = 443;
pub const CLIENT_BEGIN: u32 = 1_000;
pub const SERVER_BEGIN: u32 = 0xffff_ff00;

pub const CLIENT_HELLO: u8 = 1;
pub const SERVER_HELLO: u8 = 2;
pub const TICKET: u8 = 4;
pub const CERTIFICATE: u8 = 11;
pub const SERVER_HELLO_DONE: u8 = 14;
pub const CLIENT_KEY_EXCHANGE: u8 = 16;

pub fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3], &length[..], body].concat()
}

pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind], &length[1..], body].concat()
}

pub fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&kind.to_be_bytes()[..], &length, value].concat()
}

pub fn with_length(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length[..], bytes].concat()
}

pub fn client_hello(random: u8, ticket: &[u8]) -> Vec<u8> {
    client_hello_with(random, ticket, &[])
}

/// The same, with more extensions.
pub fn client_hello_with(random: u8, ticket: &[u8], more: &[u8]) -> Vec<u8> {
    let name = with_length(&[&[0][..], &with_length(b"rejoin.example")].concat());
    let extensions = [&extension(0, &name)[..], &extension(35, ticket), more].concat();
    let body = [
        &[3, 3][..],
        &[random; 32],
        &[4, 1, 2, 3, 4],
        &[0, 2, 0x13, 1],
        &[1, 0],
        &with_length(&extensions),
    ];
    message(CLIENT_HELLO, &body.concat())
}

pub fn server_hello(extensions: &[u8]) -> Vec<u8> {
    let body = [&[3, 3][..], &[9; 32], &[0], &[0x13, 1], &[0], &with_length(extensions)];
    message(SERVER_HELLO, &body.concat())
}

pub fn tls_1_3(extensions: &[u8]) -> Vec<u8> {
    server_hello(&[&extension(43, &[3, 4])[..], extensions].concat())
}

pub fn change_cipher_spec() -> Vec<u8> {
    [record(20, &[1]), record(22, &[0x55; 40])].concat()
}

/// A full handshake of TLS 1.2: what the client and the server say.
pub fn full_1_2() -> (Vec<u8>, Vec<u8>) {
    let server =
        [server_hello(&[]), message(CERTIFICATE, &[7; 2000]), message(SERVER_HELLO_DONE, &[])];
    let client = [
        record(22, &client_hello(1, &[])),
        record(22, &message(CLIENT_KEY_EXCHANGE, &[8; 66])),
        change_cipher_spec(),
    ];
    (client.concat(), [record(22, &server.concat()), change_cipher_spec()].concat())
}

/// A capture of raw IPv4 packets.
#[derive(Default, Debug)]
pub struct Capture(pub Vec<u8>);

impl Capture {
    pub fn new() -> Self {
        let header = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101];
        Self(header.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// A capture of [`full_1_2`], with the ClientHello in a segment of its own.
    pub fn of_full_1_2() -> Self {
        let (client, server) = full_1_2();
        let hello = record(22, &client_hello(1, &[])).len();
        let mut capture = Self::new();
        capture.client(0, &client[..hello]);
        capture.server(0, &server);
        capture.client(hello, &client[hello..]);
        capture
    }

    pub fn packet(&mut self, packet: &[u8]) {
        let length = u32::try_from(packet.len()).unwrap();
        for word in [1_700_000_000, 5, length, length] {
            self.0.extend_from_slice(&word.to_le_bytes());
        }
        self.0.extend_from_slice(packet);
    }

    /// A segment of which the capture holds `captured` bytes.
    pub fn cut(&mut self, (from, to): (u16, u16), sequence: u32, payload: &[u8], captured: usize) {
        let tcp = [
            &from.to_be_bytes()[..],
            &to.to_be_bytes(),
            &sequence.to_be_bytes(),
            &[0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0],
            payload,
        ]
        .concat();
        let packet = ip(6, from, &tcp);
        self.packet(&packet[..packet.len() - (payload.len() - captured)]);
    }

    pub fn segment(&mut self, ports: (u16, u16), sequence: u32, payload: &[u8]) {
        self.cut(ports, sequence, payload, payload.len());
    }

    pub fn client(&mut self, offset: usize, payload: &[u8]) {
        self.segment((CLIENT, SERVER), at(CLIENT_BEGIN, offset), payload);
    }

    pub fn server(&mut self, offset: usize, payload: &[u8]) {
        self.segment((SERVER, CLIENT), at(SERVER_BEGIN, offset), payload);
    }

    /// The packets that the capture holds.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[24..];
        std::iter::from_fn(move || {
            let (header, after) = rest.split_at_checked(16)?;
            let length = u32::from_le_bytes(header[8..12].try_into().unwrap());
            let (packet, after) = after.split_at(length as usize);
            rest = after;
            Some(packet)
        })
    }

    pub fn handshakes(&self) -> Vec<Handshake> {
        let mut found = Vec::new();
        let summary = Analyser::new(Limits::default())
            .read(&self.0[..], |handshake| found.push(handshake))
            .unwrap();
        assert!(summary.stop.is_none(), "{:?}", summary.stop);
        assert_eq!(summary.handshakes, found.len() as u64);
        found
    }

    pub fn handshake(&self) -> Handshake {
        let mut found = self.handshakes();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }
}

pub fn at(begin: u32, offset: usize) -> u32 {
    begin.wrapping_add(u32::try_from(offset).unwrap())
}

pub fn ip(protocol: u8, from: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(payload.len() + 20).unwrap().to_be_bytes();
    let (client, server) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    let (source, destination) = if from == CLIENT { (client, server) } else { (server, client) };
    let header = [0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0];
    [&header[..], &source, &destination, payload].concat()
}
