//! The packets that begin connections in which TLS may come.

use std::net::SocketAddr;

use crate::ip;
use crate::tcp;

/// The beginning of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// True for TCP, false for UDP.
    pub is_tcp: bool,
    /// The end that sent the packet: the client's, unless a server speaks QUIC first.
    pub from: SocketAddr,
    /// The other end.
    pub to: SocketAddr,
    /// True for a SYN: the connection is certainly another one than any before it.
    pub is_first: bool,
}

impl Beginning {
    /// Looks for a SYN or a ClientHello in a TCP segment, and for an Initial of QUIC or a ClientHello of DTLS in a UDP
    /// datagram. `None`: this IP packet begins nothing.
    pub fn of(packet: &[u8]) -> Option<Self> {
        const TCP: u8 = 6;
        const UDP: u8 = 17;
        const UDP_HEADER_BYTES: usize = 8;
        let packet = ip::parse(packet).filter(|packet| packet.fragment.is_none())?;
        let [a, b, c, d] = *packet.payload.first_chunk()?;
        let is_first = match packet.protocol {
            TCP => {
                let segment = tcp::parse(packet.payload, packet.length)?;
                let is_first = segment.syn && !segment.ack;
                if !is_first && !is_client_hello(segment.payload) {
                    return None;
                }
                is_first
            }
            UDP if may_begin(packet.payload.get(UDP_HEADER_BYTES..)?) => false,
            _ => return None,
        };
        Some(Self {
            is_tcp: packet.protocol == TCP,
            from: SocketAddr::new(packet.source, u16::from_be_bytes([a, b])),
            to: SocketAddr::new(packet.destination, u16::from_be_bytes([c, d])),
            is_first,
        })
    }
}

fn is_client_hello(payload: &[u8]) -> bool {
    matches!(payload, [22, 3, _, _, _, 1, ..])
}

fn may_begin(payload: &[u8]) -> bool {
    /// The shortest datagram with a client's Initial (RFC 9000, 14.1).
    const INITIAL_BYTES: usize = 1_200;
    let is_dtls = matches!(payload, [22, 0xfe, ..]) && payload.get(13) == Some(&1);
    is_dtls || payload.len() >= INITIAL_BYTES && payload.first().is_some_and(|it| it & 0xc0 == 0xc0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let [high, low] = u16::try_from(payload.len() + 20).unwrap().to_be_bytes();
        let head = [0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&head[..], payload].concat()
    }

    fn segment(flags: u8, payload: &[u8]) -> Vec<u8> {
        let head = [0x9c, 0x40, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0];
        packet(6, &[&head[..], payload].concat())
    }

    fn datagram(payload: &[u8]) -> Vec<u8> {
        packet(17, &[&[0x9c, 0x40, 1, 0xbb, 0, 0, 0, 0][..], payload].concat())
    }

    #[test]
    fn a_syn_and_a_hello_begin_connections() {
        let begun = |is_tcp, is_first| {
            let (from, to) = ("10.0.0.1:40000".parse().unwrap(), "10.0.0.2:443".parse().unwrap());
            Some(Beginning { is_tcp, from, to, is_first })
        };
        assert_eq!(Beginning::of(&segment(2, &[])), begun(true, true));
        assert_eq!(Beginning::of(&segment(24, &[22, 3, 1, 0, 99, 1])), begun(true, false));
        assert_eq!(Beginning::of(&datagram(&[0xc3; 1_200])), begun(false, false));
        let dtls = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 1];
        assert_eq!(Beginning::of(&datagram(&dtls)), begun(false, false));
    }

    #[test]
    fn all_else_begins_none() {
        let server_hello = segment(24, &[22, 3, 3, 0, 99, 2]);
        let others = [segment(18, &[]), segment(16, &[]), server_hello, segment(24, &[23, 3, 3])];
        let datagrams = [datagram(&[0xc3; 1_199]), datagram(&[0x43; 1_200]), packet(1, &[8; 40])];
        for other in others.iter().chain(&datagrams) {
            assert_eq!(Beginning::of(other), None);
            assert_eq!(Beginning::of(&other[..22]), None);
        }
    }
}
