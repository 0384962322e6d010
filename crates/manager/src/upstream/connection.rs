//! A TLS connection to a server over a socket that the manager reads and writes, and its handshake.

use std::io;
use std::ops::{Deref, DerefMut};

use rustls::ProtocolVersion;
use tokio::io::Interest;
use tokio::time::{Duration, Instant, timeout_at};

use crate::failure::Failure;
use crate::protocol::ErrorKind;
use crate::state::State;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::tcp::{Sink, Source, Tcp};

/// A TLS connection to a server.
#[derive(Debug)]
pub(crate) struct Upstream {
    endpoint: Endpoint,
    pub(crate) tcp: Tcp,
}

/// The longest wait for a server's first message after the handshake: a rejection of the client certificate that it
/// requested, or a ticket.
const VERDICT: Duration = Duration::from_millis(300);

impl Upstream {
    pub(crate) fn new(endpoint: Endpoint, tcp: Tcp) -> Self {
        Self { endpoint, tcp }
    }

    /// Performs the handshake.
    pub(crate) async fn handshake(&mut self, deadline: Instant) -> Result<(), Failure> {
        let late = || Failure::new(ErrorKind::Timeout, "the handshake took too long");
        match timeout_at(deadline, self.until_connected()).await {
            Ok(done) => done,
            Err(_) => Err(late()),
        }
    }

    async fn until_connected(&mut self) -> Result<(), Failure> {
        loop {
            self.send().map_err(|error| Failure::of_io(&error))?;
            if !self.tls.is_handshaking() && !self.tls.wants_write() {
                break;
            }
            if self.tls.is_handshaking() && self.receive()? {
                continue;
            }
            let interest = match (self.tls.wants_write(), self.tls.is_handshaking()) {
                (true, true) => Interest::READABLE | Interest::WRITABLE,
                (true, false) => Interest::WRITABLE,
                _ => Interest::READABLE,
            };
            self.tcp.ready(interest).await.map_err(|error| Failure::of_io(&error))?;
        }
        Ok(())
    }

    /// Returns true if the server may still reject the client's certificate, or demand one.
    pub(crate) fn is_to_be_judged(&self) -> bool {
        self.context.certificate_requested && self.version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Waits for the server's first message. Returns false if the server remained silent for the whole wait.
    pub(crate) async fn await_verdict(&mut self, deadline: Instant) -> Result<bool, Failure> {
        let whole = Instant::now() + VERDICT;
        let speaks = |upstream: &mut Self| upstream.tls.reader().into_first_chunk().is_ok();
        let is_heard = self.until_issued(deadline.min(whole), speaks).await?;
        // A wait that the program's deadline cut short says nothing about the server.
        Ok(is_heard || deadline < whole)
    }

    /// Waits for a session to store, and ends the connection.
    pub(crate) async fn leave_with_session(mut self, state: &State) {
        // After a failure there may still be a session to store.
        let _ = self.until_issued(Instant::now() + VERDICT, |_| false).await;
        self.store_issued(state);
        self.tls.send_close_notify();
        let _ = self.send();
    }

    /// Waits until the server has issued a session, or `is_enough` returns true. Returns true if either happened in
    /// time.
    async fn until_issued(
        &mut self,
        until: Instant,
        is_enough: impl Fn(&mut Self) -> bool,
    ) -> Result<bool, Failure> {
        while !self.was_issued() {
            if self.receive()? {
                if is_enough(self) {
                    break;
                }
                // A server that never stops sending counts as silent, and other connections get their turn.
                if Instant::now() >= until {
                    return Ok(false);
                }
                tokio::task::yield_now().await;
                continue;
            }
            match timeout_at(until, self.tcp.readable()).await {
                Ok(ready) => ready.map_err(|error| Failure::of_io(&error))?,
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Reads available bytes. Returns true if there were any.
    fn receive(&mut self) -> Result<bool, Failure> {
        match self.endpoint.read_handshake(Source(&self.tcp)) {
            Ok(0) => Err(Failure::broken("the server closed the connection during the handshake")),
            Ok(_) => self.process().map(|()| true).map_err(|error| {
                // Sends the alert, if the socket takes it.
                let _ = self.send();
                self.failure(&error)
            }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(Failure::of_io(&error)),
        }
    }

    /// Sends pending records, as far as the socket takes them.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.endpoint.tls.write_tls(&mut Sink(&self.tcp)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Deref for Upstream {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl DerefMut for Upstream {
    fn deref_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }
}
