//! The downstream end of a connection: plaintext, or TLS between the program and the manager.

use std::io;

use rustix::net::Shutdown;

use crate::downstream::descriptors::ProgramSocket;
use crate::downstream::input::{Received, is_gone, received};
use crate::hop::tls::Hop;
use crate::protocol::End;

/// See the module's documentation.
pub(crate) enum Downstream<'a> {
    Plain(&'a ProgramSocket),
    Hop(&'a mut Hop),
}

impl Downstream<'_> {
    /// Returns the program's socket, to wait for.
    pub(crate) fn socket(&self) -> &ProgramSocket {
        match self {
            Self::Plain(socket) => socket,
            Self::Hop(hop) => hop.socket(),
        }
    }

    /// Returns true if nothing can be read before something has been written.
    pub(crate) fn is_stuck(&self) -> bool {
        matches!(self, Self::Hop(hop) if hop.is_stuck())
    }

    /// Reads available plaintext into `piece`.
    pub(crate) fn receive(&mut self, piece: &mut [u8]) -> io::Result<Received> {
        let bytes = match self {
            Self::Plain(socket) => received(socket, piece)?,
            Self::Hop(hop) => return hop.receive(piece),
        };
        Ok(match bytes {
            // A program that died and a program that is done cause the same end of file.
            0 if is_gone(self.socket()) => Received::Gone,
            0 => Received::Done,
            bytes => Received::Bytes(bytes),
        })
    }

    /// Writes as much plaintext as the program takes. The caller passes the rest again.
    pub(crate) fn send(&mut self, plaintext: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(plaintext),
            Self::Hop(hop) => hop.send(plaintext),
        }
    }

    /// Has the program's TLS fail, as the server's has. Returns false if that has to be tried again. A program without
    /// TLS of its own asks how the connection ended.
    pub(crate) fn break_off(&mut self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Hop(hop) => hop.break_off(),
        }
    }

    /// Announces the end of the plaintext, with close_notify if the server sent one. Returns false if that has to be
    /// tried again. If the program is gone, writing fails soon.
    pub(crate) fn finish(&mut self, end: End) -> bool {
        if let Self::Hop(hop) = self
            && end == End::Clean
            && !hop.finish()
        {
            return false;
        }
        let _ = rustix::net::shutdown(&**self.socket(), Shutdown::Write);
        true
    }
}
