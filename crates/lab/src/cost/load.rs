//! A closed loop of clients: each has one transaction after the other, and waits for its end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::TcpMaxSeg;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrIn};
use openssl::ssl::{ShutdownState, SslContextBuilder, SslMethod, SslStream, SslVerifyMode};
use rejoin_openssl::{Client, ClientSession};

use super::segments::Segments;
use super::{Cipher, Handshake, Suite, Traffic};
use crate::Error;

/// For anything that a client waits for, where the server is not slowed down.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// TCP segments are as on an Ethernet, and not as large as loopback would take them.
const SEGMENT_BYTES: u32 = 1_460;
/// The pause of a client after a transaction that failed: about as long as one takes, so that failures are counted as
/// transactions would be.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest head of a response.
const LONGEST_HEAD_BYTES: usize = 16 * 1024;
/// Room for a client's times; a client that is faster keeps the first ones.
const MOST_TIMES: usize = 1 << 20;

/// The load of a round, the same for all clients.
pub(super) struct Load<'a> {
    pub(super) address: SocketAddrV4,
    pub(super) traffic: Traffic,
    pub(super) body_bytes: u32,
    pub(super) clients: u32,
    pub(super) lasts: Duration,
    /// For anything that a client waits for.
    pub(super) patience: Duration,
    /// The maker of TLS connections; not used by plain HTTP.
    pub(super) client: Option<&'a Client>,
}

/// The clients' observations of a round.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) transactions: u64,
    pub(super) failed: u64,
    /// Why the first that failed did: others may follow from it.
    pub(super) failure: Option<String>,
    /// From the first to the last transaction of all clients.
    pub(super) took: Duration,
    /// Nanoseconds until a response's first byte was there.
    pub(super) first_byte_ns: Vec<u64>,
    pub(super) wire: Wire,
}

/// The bytes and segments on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wire {
    /// In TCP segments, without their headers.
    pub(super) bytes_to_server: u64,
    pub(super) bytes_to_client: u64,
    pub(super) segments: Segments,
}

/// Returns a client for a suite's connections. It does not verify servers: their certificates were made a moment ago,
/// and the clients' work is not measured.
pub(super) fn client(suite: Suite) -> Result<Client, Error> {
    let mut context = SslContextBuilder::new(SslMethod::tls_client())?;
    suite.versions.limit(&mut context)?;
    context.set_verify(SslVerifyMode::NONE);
    let (tls12, tls13) = match suite.cipher {
        Cipher::AesGcm => ("ECDHE+AESGCM+AES128", "TLS_AES_128_GCM_SHA256"),
        Cipher::ChaCha20 => ("ECDHE+CHACHA20", "TLS_CHACHA20_POLY1305_SHA256"),
    };
    context.set_cipher_list(tls12)?;
    context.set_ciphersuites(tls13)?;
    Ok(Client::new(context))
}

impl Load<'_> {
    /// Each client warms up with a transaction, on the connection that stays if one does; then
    /// `before` is called; then all begin. Returns what it returned, and what they saw.
    pub(super) fn run<T>(
        &self,
        before: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(T, Seen), Error> {
        let both = || Barrier::new(self.clients as usize + 1);
        let (ready, go) = (both(), both());
        let all = Mutex::new(Seen::default());
        let (before, began) = thread::scope(|scope| {
            for _ in 0..self.clients {
                scope.spawn(|| {
                    let warm = self.warm_up();
                    ready.wait();
                    go.wait();
                    let seen = self.play(warm);
                    all.lock().unwrap_or_else(PoisonError::into_inner).add(seen);
                });
            }
            ready.wait();
            let before = before();
            // Even after a failure, because the others wait here.
            go.wait();
            (before, Instant::now())
        });
        let mut seen = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        seen.took = began.elapsed();
        Ok((before?, seen))
    }

    /// One client's transactions, one after the other. `session` is what the first may resume, and then what
    /// the last one got.
    pub(super) fn repeat(&self, count: u32, session: &mut Option<ClientSession>) -> io::Result<()> {
        let mut warm = Warm::Session(session.take());
        let mut seen = Seen::default();
        (0..count).try_for_each(|_| self.step(&mut warm, &mut seen))?;
        if let Warm::Session(last) = warm {
            *session = last;
        }
        Ok(())
    }

    fn warm_up(&self) -> io::Result<Warm> {
        match self.traffic {
            Traffic::Tls(_, Handshake::Once) => {
                let mut connection = self.connect(None)?;
                // Over TLS 1.3 the server's half of the handshake ends after ours.
                connection.exchange(KEEP_ALIVE, self.body_bytes)?;
                Ok(Warm::Connected(connection))
            }
            _ => Ok(Warm::Session(self.transaction(None, &mut Seen::default())?)),
        }
    }

    /// Has transactions until the round is over, also after failures: fewer clients would make the figures otherwise.
    fn play(&self, warm: io::Result<Warm>) -> Seen {
        let (mut seen, began) = (Seen::default(), Instant::now());
        let mut warm = warm.inspect_err(|why| seen.record_failure(why)).ok();
        let mut before = warm.as_ref().map_or_else(Wire::default, Warm::wire);
        while began.elapsed() < self.lasts {
            if let Err(why) = self.go_on(&mut warm, &mut before, &mut seen) {
                seen.record_failure(&why);
                thread::sleep(PAUSE);
            }
        }
        seen.wire.add(warm.as_ref().map_or_else(Wire::default, Warm::wire).since(before));
        seen
    }

    /// Has a transaction. What a failure has cost the client is made again first, and does not count. `before` is what
    /// went over the connection that stays until then.
    fn go_on(&self, warm: &mut Option<Warm>, before: &mut Wire, seen: &mut Seen) -> io::Result<()> {
        let state = match warm {
            Some(state) => state,
            None => {
                let made = self.warm_up()?;
                *before = made.wire();
                warm.insert(made)
            }
        };
        self.renew(state)?;
        let done = self.step(state, seen);
        if done.is_err() && matches!(state, Warm::Connected(_)) {
            seen.wire.add(state.wire().since(*before));
            (*warm, *before) = (None, Wire::default());
        }
        done
    }

    /// Gets a session for a client that lost its own with a transaction that failed, by a full handshake that does not
    /// count.
    fn renew(&self, warm: &mut Warm) -> io::Result<()> {
        match warm {
            Warm::Session(session @ None) if self.resumes() => {
                *session = self.transaction(None, &mut Seen::default())?;
            }
            Warm::Session(_) | Warm::Connected(_) => {}
        }
        Ok(())
    }

    fn resumes(&self) -> bool {
        matches!(self.traffic, Traffic::Tls(_, Handshake::Resumed))
    }

    fn step(&self, warm: &mut Warm, seen: &mut Seen) -> io::Result<()> {
        match warm {
            Warm::Session(session) => {
                let resumes = self.resumes();
                let offered = session.take().filter(|_| resumes);
                if resumes && offered.is_none() {
                    return Err(io::Error::other("there is no session to resume"));
                }
                *session = self.transaction(offered.as_ref(), seen)?;
            }
            Warm::Connected(connection) => {
                let asked = Instant::now();
                let first_byte = connection.exchange(KEEP_ALIVE, self.body_bytes)?;
                seen.record(first_byte - asked);
            }
        }
        Ok(())
    }

    /// A connection, its one response, and its end.
    fn transaction(
        &self,
        session: Option<&ClientSession>,
        seen: &mut Seen,
    ) -> io::Result<Option<ClientSession>> {
        let began = Instant::now();
        let mut connection = self.connect(session)?;
        let first_byte = connection.exchange(CLOSE, self.body_bytes)?;
        connection.end()?;
        seen.record(first_byte - began);
        seen.wire.add(connection.wire());
        Ok(connection.into_session())
    }

    fn connect(&self, session: Option<&ClientSession>) -> io::Result<Connection> {
        let tcp = Counted { tcp: connect(self.address, self.patience)?, sent: 0, received: 0 };
        let Some(client) = self.client else { return Ok(Connection::Plain(tcp)) };
        let mut stream = SslStream::new(client.connection(session)?, tcp)?;
        stream.connect().map_err(io::Error::other)?;
        if stream.ssl().session_reused() != session.is_some() {
            return Err(io::Error::other("a handshake was full that was to be resumed"));
        }
        Ok(Connection::Tls(stream))
    }
}

/// The state of a client before its first measured transaction.
enum Warm {
    /// A session, if there is TLS.
    Session(Option<ClientSession>),
    /// The connection for all transactions.
    Connected(Connection),
}

impl Warm {
    /// Returns the traffic of the connection that stays.
    fn wire(&self) -> Wire {
        match self {
            Self::Session(_) => Wire::default(),
            Self::Connected(connection) => connection.wire(),
        }
    }
}

impl Seen {
    fn record(&mut self, first_byte: Duration) {
        self.transactions += 1;
        if self.first_byte_ns.len() < MOST_TIMES {
            self.first_byte_ns.push(first_byte.as_nanos() as u64);
        }
    }

    fn record_failure(&mut self, why: &io::Error) {
        self.failed += 1;
        self.failure.get_or_insert_with(|| why.to_string());
    }

    fn add(&mut self, other: Self) {
        self.transactions += other.transactions;
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
        self.first_byte_ns.extend(other.first_byte_ns);
        self.wire.add(other.wire);
    }
}

impl Wire {
    fn since(self, earlier: Self) -> Self {
        Self {
            bytes_to_server: self.bytes_to_server - earlier.bytes_to_server,
            bytes_to_client: self.bytes_to_client - earlier.bytes_to_client,
            segments: Segments {
                sent: self.segments.sent.saturating_sub(earlier.segments.sent),
                received: self.segments.received.saturating_sub(earlier.segments.received),
            },
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.bytes_to_server += other.bytes_to_server;
        self.bytes_to_client += other.bytes_to_client;
        self.segments.sent += other.segments.sent;
        self.segments.received += other.segments.received;
    }
}

const CLOSE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const KEEP_ALIVE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n";

enum Connection {
    Plain(Counted),
    Tls(SslStream<Counted>),
}

impl Connection {
    /// Asks, and reads the whole response. Returns when its first byte was there.
    fn exchange(&mut self, request: &[u8], body_bytes: u32) -> io::Result<Instant> {
        self.stream().write_all(request)?;
        let mut buffer = [0; READ_BYTES];
        let mut head = Vec::new();
        let mut first_byte = None;
        let head_bytes = loop {
            let read = self.read(&mut buffer)?;
            first_byte.get_or_insert_with(Instant::now);
            head.extend_from_slice(&buffer[..read]);
            if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if head.len() > LONGEST_HEAD_BYTES {
                return Err(io::Error::other("the head of a response has no end"));
            }
        };
        if !head.starts_with(b"HTTP/1.1 200 ") {
            return Err(io::Error::other("the answer is not HTTP 200"));
        }
        let mut missing = u64::from(body_bytes) + head_bytes as u64;
        missing = missing.saturating_sub(head.len() as u64);
        while missing > 0 {
            missing = missing.saturating_sub(self.read(&mut buffer)? as u64);
        }
        first_byte.ok_or_else(|| io::Error::other("no response"))
    }

    /// Waits for the server's end, and gives ours.
    fn end(&mut self) -> io::Result<()> {
        match self.stream().read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => return Err(io::Error::other("a response is longer than it says")),
            Err(error) => return Err(error),
        }
        self.counted().tcp.shutdown(Shutdown::Write)?;
        if let Self::Tls(stream) = self {
            // The server has closed and would not read our alert. Without this, OpenSSL would not
            // resume the session.
            stream.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream().read(buffer)? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "a response is cut short")),
            read => Ok(read),
        }
    }

    fn stream(&mut self) -> &mut dyn Stream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream,
        }
    }

    fn counted(&self) -> &Counted {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref(),
        }
    }

    fn wire(&self) -> Wire {
        let Counted { tcp, sent, received } = self.counted();
        // What the kernel does not tell is not counted.
        let segments = Segments::of(tcp).unwrap_or_default();
        Wire { bytes_to_server: *sent, bytes_to_client: *received, segments }
    }

    fn into_session(self) -> Option<ClientSession> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => ClientSession::newest(stream.ssl()),
        }
    }
}

/// The buffer of a client, as large as the most that TLS yields at a time.
const READ_BYTES: usize = 16 * 1024;

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// Counts what TLS makes of requests and responses.
struct Counted {
    tcp: TcpStream,
    sent: u64,
    received: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = uninterrupted(|| self.tcp.read(buffer))?;
        self.received += read as u64;
        Ok(read)
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = uninterrupted(|| self.tcp.write(bytes))?;
        self.sent += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

/// Waiting with a deadline is interrupted when the process, or the machine, is stopped and goes on: nothing has failed.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// With segments as on an Ethernet, which is agreed on as the connection is made.
fn connect(address: SocketAddrV4, patience: Duration) -> io::Result<TcpStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let fd = socket::socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    socket::setsockopt(&fd, TcpMaxSeg, &SEGMENT_BYTES)?;
    let tcp = TcpStream::from(fd);
    // Connecting has no deadline but this.
    tcp.set_write_timeout(Some(patience))?;
    tcp.set_read_timeout(Some(patience))?;
    socket::connect(tcp.as_raw_fd(), &SockaddrIn::from(address))?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use openssl::ssl::{SslAcceptor, SslFiletype};
    use rejoin_serve::{Identity, KeyType, Versions};

    use super::*;
    use crate::scratch::Scratch;

    const BODY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n.";

    /// A server with OpenSSL's own tickets. It answers so many requests on a connection, and drops the connections of
    /// these numbers without a word.
    fn serve(listener: &TcpListener, drops: Range<usize>, requests: usize, ends: &AtomicBool) {
        let port = listener.local_addr().expect("an address").port();
        let scratch = Scratch::new(&format!("load-test-{port}")).expect("a folder");
        let [certificate, key] = ["pem", "key"].map(|name| scratch.path().join(name));
        let identity = Identity::made(KeyType::P256).expect("made");
        identity.write(&certificate, &key).expect("written");
        let mut acceptor =
            SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).expect("a context");
        acceptor.set_certificate_chain_file(&certificate).expect("a certificate");
        acceptor.set_private_key_file(&key, SslFiletype::PEM).expect("a key");
        acceptor.set_session_id_context(b"test").expect("short");
        let acceptor = acceptor.build();
        for (number, tcp) in listener.incoming().enumerate() {
            if ends.load(Ordering::Relaxed) {
                return;
            }
            let tcp = tcp.expect("a connection");
            if drops.contains(&number) {
                continue;
            }
            // A client that has gone is no failure of this server.
            let Ok(mut stream) = acceptor.accept(tcp) else { continue };
            for _ in 0..requests {
                let asked = stream.read(&mut [0; 1_024]).is_ok_and(|read| read > 0);
                let _ = asked.then(|| stream.write_all(BODY));
            }
            let _ = stream.shutdown();
        }
    }

    /// Plays a round of one client against such a server.
    fn played(handshake: Handshake, drops: Range<usize>, requests: usize) -> Seen {
        let suite = Suite { versions: Versions::Tls13, key: KeyType::P256, cipher: Cipher::AesGcm };
        let client = client(suite).expect("a client");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let std::net::SocketAddr::V4(address) = listener.local_addr().expect("an address") else {
            panic!("IPv4 was asked for");
        };
        let load = Load {
            address,
            traffic: Traffic::Tls(suite, handshake),
            body_bytes: 1,
            clients: 1,
            lasts: Duration::from_millis(500),
            patience: PATIENCE,
            client: Some(&client),
        };
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let server = thread::spawn(move || serve(&listener, drops, requests, &told));
        let ((), seen) = load.run(|| Ok(())).expect("a round");
        ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(address);
        server.join().expect("it ends");
        seen
    }

    #[test]
    fn a_client_goes_on_after_a_connection_that_was_dropped() {
        // The first connection warms up.
        let seen = played(Handshake::Resumed, 3..4, 1);
        assert_eq!(seen.failed, 1, "{:?}", seen.failure);
        let why = seen.failure.expect("a reason");
        assert!(!why.contains("no session"), "{why}");
        assert!(seen.transactions > 5, "{}", seen.transactions);
    }

    #[test]
    fn a_client_goes_on_however_often_it_failed() {
        for handshake in [Handshake::Full, Handshake::Resumed] {
            for drops in [3..9, 0..6] {
                let seen = played(handshake, drops.clone(), 1);
                assert_eq!(seen.failed, 6, "{handshake:?} {drops:?}: {:?}", seen.failure);
                assert!(seen.transactions > 5, "{handshake:?} {drops:?}: {}", seen.transactions);
            }
        }
    }

    #[test]
    fn a_connection_that_broke_is_made_again() {
        let seen = played(Handshake::Once, 0..0, 4);
        // One of four requests warms up.
        assert!(seen.failed > 1 && seen.transactions > 5, "{seen:?}");
        assert!(seen.transactions.abs_diff(3 * seen.failed) <= 3, "{seen:?}");
        let bytes = seen.wire.bytes_to_client / seen.transactions;
        assert!((BODY.len() as u64..200).contains(&bytes), "{bytes} bytes for each of {seen:?}");
    }
}
