//! An acceptor for servers on tokio, in place of tokio-rustls' own.
//!
//! Each handshake runs in the scope of its connection, so that the store follows a client from session to session, and
//! the counts of full and of resumed handshakes are complete.

use std::fmt;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use rustls::{HandshakeKind, ServerConfig, ServerConnection};
use tokio_rustls::{StartHandshake, TlsAcceptor, server};

use crate::{Connection, ServerSessions, Ticketer};

/// Accepts TLS connections, whose sessions are Rejoin's. Clones are the same acceptor.
#[derive(Clone)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    resumes: Resumes,
}

/// The means by which an acceptor resumes.
#[derive(Clone)]
enum Resumes {
    AsConfigured,
    BySessions(Arc<ServerSessions>),
    ByTickets(Arc<Ticketer>),
}

/// Leaves a configuration as it is. Handshakes are not counted.
impl From<Arc<ServerConfig>> for Acceptor {
    fn from(config: Arc<ServerConfig>) -> Self {
        Self { config, resumes: Resumes::AsConfigured }
    }
}

impl Acceptor {
    /// Keeps the sessions of a configuration in a store. The configuration's own store and ticketer are replaced.
    pub fn with_sessions(mut config: ServerConfig, sessions: &Arc<ServerSessions>) -> Self {
        config.session_storage = Arc::clone(sessions) as _;
        config.ticketer = Arc::new(NoTickets);
        Self { config: Arc::new(config), resumes: Resumes::BySessions(Arc::clone(sessions)) }
    }

    /// Gives clients tickets. The configuration's own ticketer is replaced. Its own store stays, for clients of TLS 1.2
    /// that do not take tickets, and its sessions resume where tickets do ([`Ticketer::checked`]).
    pub fn with_tickets(mut config: ServerConfig, tickets: &Arc<Ticketer>) -> Self {
        config.ticketer = Arc::clone(tickets) as _;
        config.session_storage = tickets.checked(config.session_storage);
        Self { config: Arc::new(config), resumes: Resumes::ByTickets(Arc::clone(tickets)) }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Makes the handshake. The caller limits its time.
    ///
    /// # Errors
    /// Those of tokio-rustls.
    pub async fn accept<IO>(&self, stream: IO) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = TlsAcceptor::from(Arc::clone(&self.config)).accept(stream);
        self.finish(Connection::default(), handshake).await
    }

    /// Makes the handshake of a client of a source ([`Connection::comes_from`]).
    ///
    /// # Errors
    /// Those of tokio-rustls.
    pub async fn accept_from<IO>(&self, stream: IO, known: &[u8]) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let connection = Connection::default();
        connection.comes_from(known);
        let handshake = TlsAcceptor::from(Arc::clone(&self.config)).accept(stream);
        self.finish(connection, handshake).await
    }

    /// Makes the handshake of a client whose ClientHello has been read
    /// ([`LazyConfigAcceptor`](tokio_rustls::LazyConfigAcceptor)), for servers that choose the acceptor by server name.
    ///
    /// # Errors
    /// Those of tokio-rustls.
    pub async fn accept_started<IO>(&self, start: StartHandshake<IO>) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let connection = Connection::default();
        // The ClientHello, and with it the client's session, is handled here.
        let handshake = connection.scope(|| start.into_stream(Arc::clone(&self.config)));
        self.finish(connection, handshake).await
    }

    async fn finish<IO>(
        &self,
        connection: Connection,
        handshake: tokio_rustls::Accept<IO>,
    ) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let tls = connection.around(handshake).await?;
        if let Some(kind) = tls.get_ref().1.handshake_kind() {
            self.record(&connection, kind);
        }
        Ok(TlsStream { tls, connection })
    }

    fn record(&self, connection: &Connection, kind: HandshakeKind) {
        match &self.resumes {
            Resumes::AsConfigured => {}
            Resumes::BySessions(sessions) => sessions.record(connection, kind),
            Resumes::ByTickets(tickets) => tickets.record(kind),
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resumes: &dyn fmt::Debug = match &self.resumes {
            Resumes::AsConfigured => &"as configured",
            Resumes::BySessions(sessions) => sessions,
            Resumes::ByTickets(tickets) => tickets,
        };
        f.debug_struct("Acceptor").field("resumes", resumes).finish_non_exhaustive()
    }
}

/// Stands for no tickets.
#[derive(Debug)]
struct NoTickets;

impl rustls::server::ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// A TLS connection after its handshake. A session that waits for a hint is stored when this and all clones of its
/// [`Connection`] are dropped. An error of the protocol makes the store forget the connection's sessions.
#[derive(Debug)]
pub struct TlsStream<IO> {
    tls: server::TlsStream<IO>,
    connection: Connection,
}

impl<IO> TlsStream<IO> {
    /// Returns the connection, to give hints.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns the stream below and rustls' state.
    pub fn get_ref(&self) -> (&IO, &ServerConnection) {
        self.tls.get_ref()
    }

    /// Returns the stream of tokio-rustls, and the connection.
    pub fn into_parts(self) -> (server::TlsStream<IO>, Connection) {
        (self.tls, self.connection)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.tls).poll_read(task, buffer));
        // rustls' own errors, alerts included.
        if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidData) {
            self.connection.forget();
        }
        Poll::Ready(read)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(task, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write_vectored(task, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(task)
    }
}
