//! The doctor for any TLS server: what resumes there, seen from outside, what is lost, and the mend.
//!
//! [`examine`] makes the connections and returns [`Facts`]; [`findings`] concludes from them, purely; [`Report`] shows both.
//! It needs no rights on the server, sends no secret, and changes nothing there but the sessions that the server keeps.
//! Certificates are judged and never refused.

mod connection;
mod facts;
mod findings;
mod heard;
mod mends;
mod message;
mod probe;
mod replay;
mod settings;
mod shown;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

pub use connection::{Cost, Failure};
pub use facts::{
    AddressFacts, Certificate, Crossing, Earlier, Facts, Key, Later, NameFacts, NotTried, Replay,
    Tally, Way, WayFacts,
};
pub use findings::{Cause, Finding, Loss, Severity, findings};
pub use mends::Mends;
pub use message::{Message, NewTicket};
pub use probe::examine;
pub use settings::{ADDRESSES, Host, Settings, Target};
pub use shown::Report;

/// The progress of an examination, and the means to end it early.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Set, it ends the examination within about a connection's time; what was found by then is returned.
    pub stop: &'a AtomicBool,
    /// Called before each connection, with its address and its number there.
    pub told: &'a dyn Fn(SocketAddr, u32),
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch(…)")
    }
}

/// An examination that found nothing to report on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name has no addresses.
    #[error("{0}: no address: {1}")]
    NoAddress(String, String),
    /// No handshake succeeded at any address.
    #[error("{0}: no handshake succeeded: {1}")]
    NoHandshake(String, String),
    /// OpenSSL cannot be used.
    #[error("OpenSSL: {0}")]
    Library(String),
}
