//! Reads network captures: finds the TLS handshakes in them and tells which ones were resumed.
//!
//! An [`Analyser`] takes the bytes of a capture (pcap or pcapng, optionally in gzip or zstd) from any
//! [`std::io::Read`] and gives one [`Handshake`] per ClientHello: the endpoints, the server name,
//! and whether the handshake was full or resumed, with the evidence for it.
//!
//! The modules follow the path of a byte: `file` extracts frames, `link` finds the IP packet in a
//! frame, `ip` the segment in packets and fragments, `tcp` the stream in segments, `tls` the
//! messages in a stream, `quic`, `dtls` and `openvpn` the messages in datagrams, and `classify` the verdict from
//! the messages.
//!
//! Captures are not trusted: every length is checked, and [`Limits`] bounds the memory used. This
//! crate opens no files, reads no clock, and keeps no contents of tickets or certificates.

#![forbid(unsafe_code)]

mod analyser;
mod beginning;
mod bytes;
mod certificate;
mod classify;
mod clock;
mod connections;
mod copies;
mod digest;
mod dtls;
mod error;
mod file;
mod fingerprint;
mod fragments;
mod handshake;
mod hello;
mod ip;
mod limits;
mod link;
mod model;
mod networks;
mod numbers;
mod observation;
mod openvpn;
mod owners;
mod program;
mod proxy;
mod pseudonyms;
mod quic;
pub mod report;
pub mod sharing;
mod table;
mod tcp;
mod tls;
mod unsupported;
mod via;

pub use analyser::{Analyser, Summary};
pub use beginning::Beginning;
pub use certificate::Certificate;
pub use digest::Digest;
pub use error::{Error, Stop};
pub use fingerprint::Ja4;
pub use handshake::{Carrier, Class, Evidence, Handshake, Method, Version};
pub use limits::Limits;
pub use model::{AverageCost, Cost, Model};
pub use networks::Networks;
pub use numbers::{CipherSuite, Group};
pub use pseudonyms::Pseudonyms;
pub use unsupported::Unsupported;
pub use via::Via;
