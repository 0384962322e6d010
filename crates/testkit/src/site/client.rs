//! A client that comes back with the session of its last connection.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslSession, SslSessionCacheMode,
    SslStream, SslVersion,
};

use crate::process::DEADLINE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    Tls12,
    Tls13,
}

pub struct Client {
    pub address: SocketAddr,
    context: SslContext,
    /// The session that is offered next.
    pub session: Arc<Mutex<Option<SslSession>>>,
    /// The server that is asked for.
    pub name: &'static str,
    /// The last line of each answer.
    pub answers: Vec<String>,
}

impl Client {
    pub fn new(address: SocketAddr, versions: Versions) -> Self {
        Self::with(address, versions, |_| {})
    }

    /// A client with a file that holds its certificate and its key.
    pub fn presenting(address: SocketAddr, versions: Versions, certificate: Option<&Path>) -> Self {
        Self::with(address, versions, |context| {
            if let Some(file) = certificate {
                context.set_certificate_chain_file(file).expect("a certificate");
                context.set_private_key_file(file, SslFiletype::PEM).expect("its key");
            }
        })
    }

    /// A client whose context the caller changes.
    pub fn with(
        address: SocketAddr,
        versions: Versions,
        more: impl FnOnce(&mut SslContextBuilder),
    ) -> Self {
        let version = match versions {
            Versions::Tls12 => SslVersion::TLS1_2,
            Versions::Tls13 => SslVersion::TLS1_3,
        };
        // It verifies nobody. A connector would read the system's authorities, which takes longer than a handshake.
        let mut context = SslContext::builder(SslMethod::tls_client()).expect("a context");
        context.set_min_proto_version(Some(version)).expect("a version");
        context.set_max_proto_version(Some(version)).expect("a version");
        context.set_session_cache_mode(SslSessionCacheMode::CLIENT);
        let session = Arc::new(Mutex::new(None));
        let newest = Arc::clone(&session);
        context.set_new_session_callback(move |_, session| {
            *newest.lock().expect("no panic") = Some(session);
        });
        more(&mut context);
        let context = context.build();
        Self { address, context, session, name: "localhost", answers: Vec::new() }
    }

    /// Asks for a page. Returns true if the session was resumed.
    pub fn connect(&mut self) -> bool {
        self.try_connect().expect("a handshake and a request")
    }

    /// Asks for a page of a server that may not answer. Returns true if the session was resumed.
    pub fn try_connect(&mut self) -> Result<bool, Box<dyn Error>> {
        let tls = self.shake_hands()?;
        self.ask(tls)
    }

    /// Asks for a page on a connection.
    pub fn ask(&mut self, mut tls: SslStream<Steady>) -> Result<bool, Box<dyn Error>> {
        let request = format!("GET / HTTP/1.0\r\nHost: {}\r\n\r\n", self.name);
        tls.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        // The answer counts even if the server ends without close_notify.
        let _ = tls.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        self.answers.push(answer.lines().last().unwrap_or_default().to_owned());
        // Without close_notify, OpenSSL would drop the session.
        let _ = tls.shutdown();
        Ok(tls.ssl().session_reused())
    }

    /// Asks for a page from an address of the loopback's. Returns true if the session was resumed.
    pub fn connect_from(&mut self, from: Ipv4Addr) -> bool {
        let stream = connected(from, self.address).expect("a connection");
        let tls = self.shake_hands_over(stream).expect("a handshake");
        self.ask(tls).expect("an answer")
    }

    /// A connection on which nothing was said yet.
    pub fn shake_hands(&self) -> Result<SslStream<Steady>, Box<dyn Error>> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        self.shake_hands_over(stream)
    }

    /// A connection over a stream on which something may have been said without TLS.
    pub fn shake_hands_over(&self, stream: TcpStream) -> Result<SslStream<Steady>, Box<dyn Error>> {
        Ok(self.ssl()?.connect(Steady(stream))?)
    }

    /// A new connection, with the session to offer.
    pub fn ssl(&self) -> Result<Ssl, Box<dyn Error>> {
        let mut ssl = Ssl::new(&self.context)?;
        ssl.set_hostname(self.name)?;
        if let Some(session) = &*self.session.lock().expect("no panic") {
            // SAFETY: it came from a connection of this context.
            unsafe { ssl.set_session(session) }?;
        }
        Ok(ssl)
    }
}

fn connected(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::from((from, 0)))?;
    connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    Ok(stream)
}

/// A socket that reads on after a signal. One with a timeout reports the signal, even if that only stopped the
/// process for a while, and OpenSSL takes the report for the connection's end.
#[derive(Debug)]
pub struct Steady(TcpStream);

impl Read for Steady {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| self.0.read(into))
    }
}

impl Write for Steady {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn uninterrupted(mut attempt: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
