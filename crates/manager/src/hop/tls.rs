//! TLS towards a program that does its own, over a Unix socket: its library offers a key that was
//! made for this connection, and runs as it would with the server.
//!
//! It is OpenSSL's server, since rustls takes no key that it did not make itself.

use std::io::{self, Read, Write};

use openssl::ex_data::Index;
use openssl::ssl::{
    AlpnError, ErrorCode, Ssl, SslContext, SslMethod, SslMode, SslOptions, SslSessionCacheMode,
    SslStream, SslVerifyMode, SslVersion,
};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::io::Interest;
use tokio::time::{Instant, timeout_at};

use crate::downstream::descriptors::ProgramSocket;
use crate::downstream::stream::{Received, is_gone, received};
use crate::protocol::{self, HopKey, Token};

/// What every hop starts from.
pub(crate) struct Hops {
    context: SslContext,
    terms: Index<Ssl, Terms>,
}

/// What a program may come with, and what it is told.
struct Terms {
    identity: Token,
    key: HopKey,
    alpn: Option<Vec<u8>>,
}

/// A connection to a program whose handshake is over.
#[derive(Debug)]
pub(crate) struct Hop {
    tls: SslStream<Records>,
    /// It reads no more before it has written.
    is_stuck: bool,
}

impl std::fmt::Debug for Hops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hops").finish_non_exhaustive()
    }
}

/// A program's socket, as OpenSSL reads and writes it.
#[derive(Debug)]
struct Records(ProgramSocket);

impl Hops {
    pub(crate) fn new() -> Result<Self, openssl::error::ErrorStack> {
        let terms = Ssl::new_ex_index::<Terms>()?;
        let mut context = SslContext::builder(SslMethod::tls_server())?;
        context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        context.set_ciphersuites("TLS_AES_128_GCM_SHA256")?;
        // Whatever the system's configuration says: programs without one of these do not come.
        context.set_groups_list("X25519:P-256")?;
        context.set_verify(SslVerifyMode::NONE);
        // Nothing is to be resumed here.
        context.set_options(SslOptions::NO_TICKET);
        context.set_num_tickets(0)?;
        context.set_session_cache_mode(SslSessionCacheMode::OFF);
        // As the relay writes.
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

    /// Does the handshake with a program, which is told this protocol.
    pub(crate) async fn accept(
        &self,
        line: ProgramSocket,
        wanted: &protocol::Hop,
        alpn: Option<&[u8]>,
        deadline: Instant,
    ) -> io::Result<Hop> {
        let mut tls = Ssl::new(&self.context)?;
        let (identity, key) = (wanted.identity, wanted.key.clone());
        tls.set_ex_data(self.terms, Terms { identity, key, alpn: alpn.map(<[u8]>::to_vec) });
        let mut tls = SslStream::new(tls, Records(line))?;
        let shaken = async {
            while let Err(error) = tls.accept() {
                let interest = match error.code() {
                    ErrorCode::WANT_READ => Interest::READABLE,
                    ErrorCode::WANT_WRITE => Interest::WRITABLE,
                    _ => return Err(io::Error::other(error)),
                };
                tls.get_ref().0.ready(interest).await?;
            }
            Ok(())
        };
        timeout_at(deadline, shaken).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(Hop { tls, is_stuck: false })
    }
}

impl Hop {
    pub(crate) fn line(&self) -> &ProgramSocket {
        &self.tls.get_ref().0
    }

    pub(crate) fn receive(&mut self, piece: &mut [u8]) -> io::Result<Received> {
        let read = self.tls.ssl_read(piece);
        let why = read.as_ref().err().map(openssl::ssl::Error::code);
        // An answer to the program's own change of keys finds no room.
        self.is_stuck = why == Some(ErrorCode::WANT_WRITE);
        match (read, why) {
            (Ok(bytes), _) => Ok(Received::Bytes(bytes)),
            (_, Some(ErrorCode::ZERO_RETURN)) => Ok(Received::Done),
            (_, Some(ErrorCode::WANT_READ | ErrorCode::WANT_WRITE)) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            _ if is_gone(self.line()) => Ok(Received::Gone),
            _ => Ok(Received::Cut),
        }
    }

    /// Whether it is to be written to before anything is read.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    pub(crate) fn send(&mut self, plaintext: &[u8]) -> io::Result<usize> {
        self.tls.ssl_write(plaintext).map_err(|error| match is_blocked(&error) {
            true => io::ErrorKind::WouldBlock.into(),
            false => io::Error::other(error),
        })
    }

    /// Says that this was all. Returns whether there was room for it, or nobody to hear it.
    pub(crate) fn finish(&mut self) -> bool {
        !self.tls.shutdown().is_err_and(|error| is_blocked(&error))
    }
}

fn is_blocked(error: &openssl::ssl::Error) -> bool {
    matches!(error.code(), ErrorCode::WANT_READ | ErrorCode::WANT_WRITE)
}

/// The protocol, where it stands in a client's list.
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

impl Read for Records {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        received(&self.0, buffer)
    }
}

impl Write for Records {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let send = || send(&*self.0, buffer, flags).map_err(Errno::into);
        self.0.try_io(Interest::WRITABLE, send)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
