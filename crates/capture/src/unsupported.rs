//! Kinds of frames and packets that are not looked into, so that a capture of them does not pass for
//! one without handshakes.

use std::fmt;

use crate::limits::DEEPEST_TUNNEL;

/// The most kinds in one capture that are told apart.
const MOST_KINDS: usize = 16;

/// A kind of frame or packet that is not looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// A link layer, as a LINKTYPE number.
    LinkType(i32),
    /// A packet of an interface that the file does not describe.
    NoInterface,
    /// A tunnel over IP, as a protocol number.
    IpProtocol(u8),
    /// A protocol that is not known over Ethernet or its like, as an EtherType. That of MPLS stands for pseudowires that carry
    /// something else than IP or Ethernet, or Ethernet with what is not known.
    EtherType(u16),
    /// A protocol of PPP that compresses or encrypts packets, or parts them.
    PppProtocol(u16),
    /// Encrypted data of 802.11.
    ProtectedWifi,
    /// ESP in UDP (RFC 3948).
    EspInUdp,
    /// `WireGuard`.
    WireGuard,
    /// Tunnels inside more tunnels than are looked into.
    TooDeep,
    /// All kinds that come after the most that are told apart.
    Others,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkType(number) => write!(f, "link type {number}"),
            Self::NoInterface => f.write_str("interfaces that the file does not describe"),
            Self::EtherType(number) => {
                let name = match number {
                    0x8847 => " (MPLS)",
                    0x88e5 => " (MACsec)",
                    0x894f => " (NSH)",
                    _ => "",
                };
                write!(f, "EtherType {number:#06x}{name}")
            }
            Self::PppProtocol(number) => {
                let name = match number {
                    0x3d => " (Multilink)",
                    0x53 | 0x55 => " (encrypted)",
                    0xfb | 0xfd => " (compressed or encrypted)",
                    _ => "",
                };
                write!(f, "PPP protocol {number:#06x}{name}")
            }
            Self::ProtectedWifi => f.write_str("encrypted 802.11"),
            Self::EspInUdp => f.write_str("ESP in UDP"),
            Self::WireGuard => f.write_str("WireGuard"),
            Self::TooDeep => write!(f, "packets in more than {DEEPEST_TUNNEL} tunnels"),
            Self::Others => f.write_str("other kinds"),
            Self::IpProtocol(number) => {
                let name = match number {
                    50 => " (ESP)",
                    97 => " (EtherIP)",
                    108 => " (IPComp)",
                    115 => " (L2TP)",
                    _ => "",
                };
                write!(f, "IP protocol {number}{name}")
            }
        }
    }
}

/// How many frames of each kind there were.
#[derive(Debug, Default)]
pub(crate) struct UnsupportedFrames {
    kinds: Vec<(Unsupported, u64)>,
    of_other_kinds: u64,
}

impl UnsupportedFrames {
    pub(crate) fn count(&mut self, kind: Unsupported) {
        self.add(kind, 1);
    }

    pub(crate) fn add(&mut self, kind: Unsupported, frames: u64) {
        if let Some((_, count)) = self.kinds.iter_mut().find(|(known, _)| *known == kind) {
            *count += frames;
        } else if frames > 0 && self.kinds.len() < MOST_KINDS {
            self.kinds.push((kind, frames));
        } else {
            self.of_other_kinds += frames;
        }
    }

    pub(crate) fn into_counts(self) -> Vec<(Unsupported, u64)> {
        let Self { mut kinds, of_other_kinds } = self;
        if of_other_kinds > 0 {
            kinds.push((Unsupported::Others, of_other_kinds));
        }
        kinds
    }
}
