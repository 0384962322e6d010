//! Reads captures: which TLS handshakes they hold, and which of them were resumed.
//!
//! An [`Analyser`] takes the bytes of a capture (pcap or pcapng, also gzipped) from any
//! [`std::io::Read`] and gives one [`Handshake`] per ClientHello: who spoke to whom, under which
//! name, and whether the handshake was full or resumed, with the evidence for it.
//!
//! The way of a byte is the way of the modules: `file` gives frames, `link` finds the IP packet
//! in a frame, `ip` the segment in packets and fragments, `tcp` the stream in segments, `tls` the
//! messages in a stream, `quic` the messages in datagrams, `classify` the answer in messages.
//!
//! Captures are not trusted: every length is checked, and what is kept is bounded by [`Limits`].
//! What is not here: files, clocks, and the contents of tickets and certificates.

#![forbid(unsafe_code)]

mod analyser;
mod bytes;
mod certificate;
mod classify;
mod connections;
mod digest;
mod error;
mod file;
mod fragments;
mod handshake;
mod hello;
mod ip;
mod limits;
mod link;
mod model;
mod networks;
mod pseudonyms;
mod quic;
pub mod report;
pub mod sharing;
mod tcp;
mod tls;
mod via;

pub use analyser::{Analyser, Summary};
pub use certificate::Certificate;
pub use digest::Digest;
pub use error::{Error, Stop};
pub use handshake::{Carrier, Class, Evidence, Handshake, Method, Version};
pub use limits::Limits;
pub use model::{Cost, Model};
pub use networks::Networks;
pub use pseudonyms::Pseudonyms;
pub use via::Via;
