//! Connections in one thread, with memory between their ends.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use openssl::error::ErrorStack;
use openssl::ssl::{ErrorCode, SslContextBuilder, SslMethod, SslVerifyMode};
use rejoin_openssl::Client;
use rustix::time::{ClockId, clock_gettime};

use crate::Error;
use rejoin_serve::{Identity, Versions};

/// No handshake takes more turns.
pub(crate) const MOST_FLIGHTS: u32 = 4;

/// Returns the CPU time of this thread, user and system.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A library did not do what it was asked for.
pub(crate) fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let what = "handshakes cannot be measured here";
    Error::System { what, source: io::Error::other(cause) }
}

/// One end of a connection in memory.
pub(crate) struct Pipe {
    incoming: Rc<RefCell<Way>>,
    outgoing: Rc<RefCell<Way>>,
}

/// One direction.
#[derive(Default)]
struct Way {
    waiting: VecDeque<u8>,
    carried: u64,
}

impl Pipe {
    pub(crate) fn pair() -> (Self, Self) {
        let (one, other) = (Rc::default(), Rc::default());
        let end = Self { incoming: Rc::clone(&one), outgoing: Rc::clone(&other) };
        (end, Self { incoming: other, outgoing: one })
    }

    /// Returns true if there is something to read.
    pub(crate) fn has_news(&self) -> bool {
        !self.incoming.borrow().waiting.is_empty()
    }

    /// Bytes written to this end so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.outgoing.borrow().carried
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let waiting = &mut self.incoming.borrow_mut().waiting;
        if waiting.is_empty() {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            waiting.read(buffer)
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut way = self.outgoing.borrow_mut();
        way.carried += bytes.len() as u64;
        way.waiting.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// False if the other side has the word.
fn is_done(step: Result<(), openssl::ssl::Error>) -> Result<bool, Error> {
    match step {
        Ok(()) => Ok(true),
        Err(error) if error.code() == ErrorCode::WANT_READ => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Lets both sides take their steps in turn. Returns true if both are through.
pub(crate) fn shake_hands(
    mut connect: impl FnMut() -> Result<(), openssl::ssl::Error>,
    mut accept: impl FnMut() -> Result<(), openssl::ssl::Error>,
) -> Result<bool, Error> {
    let (mut connected, mut accepted) = (false, false);
    for _ in 0..MOST_FLIGHTS {
        connected = connected || is_done(connect())?;
        accepted = accepted || is_done(accept())?;
    }
    Ok(connected && accepted)
}

/// Returns a context for one version, with the groups that all libraries have.
pub(crate) fn context(
    method: SslMethod,
    versions: Versions,
) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContextBuilder::new(method)?;
    versions.limit(&mut context)?;
    // OpenSSL 3.5 would have others by itself. Over TLS 1.2 the certificates' curve must be among them.
    context.set_groups_list("X25519:P-256")?;
    Ok(context)
}

/// A server of OpenSSL's.
pub(crate) fn server(versions: Versions, identity: &Identity) -> Result<SslContextBuilder, Error> {
    let mut server = context(SslMethod::tls_server(), versions)?;
    identity.install(&mut server)?;
    Ok(server)
}

/// A client of OpenSSL's to a server whose certificate was made a moment ago: it believes it.
pub(crate) fn client(versions: Versions) -> Result<Client, ErrorStack> {
    let mut client = context(SslMethod::tls_client(), versions)?;
    client.set_verify(SslVerifyMode::NONE);
    Ok(Client::new(client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_counts_what_it_carries() {
        let (mut one, mut other) = Pipe::pair();
        one.write_all(b"three").expect("memory");
        assert!(other.has_news() && !one.has_news());
        let mut two = [0; 2];
        other.read_exact(&mut two).expect("it is there");
        assert_eq!((&two, one.sent_bytes(), other.sent_bytes()), (b"th", 5, 0));
        assert_eq!(one.read(&mut two).expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
    }
}
