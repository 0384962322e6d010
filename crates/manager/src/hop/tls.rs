//! TLS with a program over a Unix socket: the program's TLS library offers an external PSK that was made for this
//! connection, and otherwise behaves as with the origin server.
//!
//! The server side is OpenSSL, because rustls accepts no external PSKs.

use std::io::{self, Write};

use openssl::ex_data::Index;
use openssl::ssl::{
    AlpnError, ErrorCode, Ssl, SslContext, SslMethod, SslMode, SslOptions, SslSessionCacheMode,
    SslStream, SslVerifyMode, SslVersion,
};
use tokio::io::Interest;
use tokio::time::{Instant, timeout_at};

use crate::downstream::descriptors::ProgramSocket;
use crate::downstream::input::{Received, is_gone};
use crate::hop::line::Line;
use crate::protocol::{self, HopKey, Token};

/// The configuration of all hops.
pub(crate) struct Hops {
    context: SslContext,
    terms: Index<Ssl, Terms>,
}

/// One hop's PSK identity, its key, and the ALPN protocol to select.
struct Terms {
    identity: Token,
    key: HopKey,
    alpn: Option<Vec<u8>>,
}

/// A TLS connection with a program after its handshake.
#[derive(Debug)]
pub(crate) struct Hop {
    tls: SslStream<Line>,
    /// True if nothing can be read before something has been written.
    is_stuck: bool,
    /// The bytes of [`UNREADABLE`] that were written.
    broken_off: usize,
}

/// A record of application data (RFC 8446, section 5.2) under no key.
const UNREADABLE: [u8; 37] = {
    let mut record = [0; 37];
    (record[0], record[1], record[2], record[4]) = (23, 3, 3, 32);
    record
};

impl std::fmt::Debug for Hops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hops").finish_non_exhaustive()
    }
}

impl Hops {
    pub(crate) fn new() -> Result<Self, openssl::error::ErrorStack> {
        let terms = Ssl::new_ex_index::<Terms>()?;
        let mut context = SslContext::builder(SslMethod::tls_server())?;
        context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        context.set_ciphersuites("TLS_AES_128_GCM_SHA256")?;
        // Overrides the system's configuration: every program that hops supports one of these.
        context.set_groups_list("X25519:P-256:P-384:P-521:X448")?;
        context.set_verify(SslVerifyMode::NONE);
        // Hops are never resumed.
        context.set_options(SslOptions::NO_TICKET);
        context.set_num_tickets(0)?;
        context.set_session_cache_mode(SslSessionCacheMode::OFF);
        // Required by the way the relay writes.
        context.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
        context.set_psk_server_callback(move |tls, identity, room| {
            let Some(terms) = tls.ex_data(terms) else { return Ok(0) };
            let (key, own) = (terms.key.expose(), terms.identity.to_string());
            match room.get_mut(..key.len()) {
                Some(room) if identity == Some(own.as_bytes()) => {
                    room.copy_from_slice(key);
                    Ok(key.len())
                }
                _ => Ok(0),
            }
        });
        context.set_alpn_select_callback(move |tls, offered| {
            let chosen = tls.ex_data(terms).and_then(|terms| terms.alpn.as_deref());
            chosen.and_then(|chosen| among(offered, chosen)).ok_or(AlpnError::NOACK)
        });
        Ok(Self { context: context.build(), terms })
    }

    /// Performs the handshake with a program, selecting this ALPN protocol.
    pub(crate) async fn accept(
        &self,
        socket: ProgramSocket,
        wanted: &protocol::Hop,
        alpn: Option<&[u8]>,
        deadline: Instant,
    ) -> io::Result<Hop> {
        let mut tls = Ssl::new(&self.context)?;
        let (identity, key) = (wanted.identity, wanted.key.clone());
        tls.set_ex_data(self.terms, Terms { identity, key, alpn: alpn.map(<[u8]>::to_vec) });
        let mut tls = SslStream::new(tls, Line::new(socket))?;
        let shaken = async {
            while let Err(error) = tls.accept() {
                let interest = match error.code() {
                    ErrorCode::WANT_READ => Interest::READABLE,
                    ErrorCode::WANT_WRITE => Interest::WRITABLE,
                    _ => return Err(io::Error::other(error)),
                };
                tls.get_ref().socket.ready(interest).await?;
            }
            Ok(())
        };
        timeout_at(deadline, shaken).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(Hop { tls, is_stuck: false, broken_off: 0 })
    }
}

impl Hop {
    pub(crate) fn socket(&self) -> &ProgramSocket {
        &self.tls.get_ref().socket
    }

    pub(crate) fn receive(&mut self, piece: &mut [u8]) -> io::Result<Received> {
        let read = self.tls.ssl_read(piece);
        let why = read.as_ref().err().map(openssl::ssl::Error::code);
        // The socket has no room for an answer to the program's KeyUpdate.
        self.is_stuck = why == Some(ErrorCode::WANT_WRITE);
        match (read, why) {
            (Ok(bytes), _) => Ok(Received::Bytes(bytes)),
            (_, Some(ErrorCode::ZERO_RETURN)) => Ok(Received::Done),
            (_, Some(ErrorCode::WANT_READ | ErrorCode::WANT_WRITE)) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            _ if is_gone(self.socket()) => Ok(Received::Gone),
            _ => Ok(Received::Cut),
        }
    }

    /// Returns true if nothing can be read before something has been written.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    pub(crate) fn send(&mut self, plaintext: &[u8]) -> io::Result<usize> {
        self.tls.ssl_write(plaintext).map_err(|error| match is_blocked(&error) {
            true => io::ErrorKind::WouldBlock.into(),
            false => io::Error::other(error),
        })
    }

    /// Writes a record that the program cannot decrypt: OpenSSL has no function that sends an alert. All plaintext must
    /// have been taken. Returns false if the socket has no room for all of it; a program that is gone counts as told.
    pub(crate) fn break_off(&mut self) -> bool {
        while let Some(rest @ [_, ..]) = UNREADABLE.get(self.broken_off..) {
            match self.tls.get_mut().write(rest) {
                Ok(written) => self.broken_off += written,
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Has the program read an end of file, and not a reset, when its socket is closed.
    pub(crate) fn settle(&mut self) {
        self.tls.get_mut().settle();
    }

    /// Sends close_notify. Returns false if the socket had no room for it; a program that is gone counts as told.
    pub(crate) fn finish(&mut self) -> bool {
        !self.tls.shutdown().is_err_and(|error| is_blocked(&error))
    }
}

fn is_blocked(error: &openssl::ssl::Error) -> bool {
    matches!(error.code(), ErrorCode::WANT_READ | ErrorCode::WANT_WRITE)
}

/// Finds the protocol in a client's list.
fn among<'a>(mut offered: &'a [u8], chosen: &[u8]) -> Option<&'a [u8]> {
    while let [length, rest @ ..] = offered {
        let (name, more) = rest.split_at_checked(usize::from(*length))?;
        if name == chosen {
            return Some(name);
        }
        offered = more;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::among;

    #[test]
    fn a_protocol_is_found_in_a_list() {
        let list = b"\x02h2\x08http/1.1";
        assert_eq!(among(list, b"http/1.1"), Some(&b"http/1.1"[..]));
        assert_eq!(among(list, b"h3"), None);
        assert_eq!(among(b"\x09h2", b"h2"), None);
    }
}
