//! First flights with early data: sent, recorded, and sent again.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use openssl::ssl::{SslStream, SslVersion};

use super::Client;
use crate::process::DEADLINE;

/// The bytes that a client sent before it read anything: its ClientHello and its early data.
#[derive(Debug, Clone)]
pub struct Flight {
    pub bytes: Vec<u8>,
    /// The server accepted the original's early data.
    pub accepted: bool,
    pub resumed: bool,
}

/// A stream that records what is written before the first read.
#[derive(Debug)]
struct Recorded {
    stream: TcpStream,
    written: Arc<Mutex<Vec<u8>>>,
    has_read: bool,
}

impl Read for Recorded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.has_read = true;
        self.stream.read(into)
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.has_read {
            self.written.lock().expect("no panic").extend_from_slice(bytes);
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Client {
    /// Asks for `path` in early data, if the session allows it, and records the first flight. A server that has answered
    /// early data closes before it sends a ticket, so this is a session's last use.
    pub fn ask_early(&self, path: &str) -> Flight {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_nodelay(true).expect("set");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        let written = Arc::new(Mutex::new(Vec::new()));
        let recorded = Recorded { stream, written: Arc::clone(&written), has_read: false };
        let mut ssl =
            self.ssl().and_then(|ssl| Ok(ssl.into_ssl(self.name)?)).expect("a connection");
        ssl.set_connect_state();
        let mut tls = SslStream::new(ssl, recorded).expect("a stream");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.name);
        let is_early = tls.ssl().session().is_some_and(|session| session.max_early_data() > 0);
        if is_early {
            let sent = tls.write_early_data(request.as_bytes());
            let sent = sent.unwrap_or_else(|error| panic!("{path}: {error:?}"));
            assert_eq!(sent, request.len());
        }
        tls.do_handshake().expect("a handshake");
        let accepted = early_data_was_accepted(&tls);
        if !accepted {
            tls.write_all(request.as_bytes()).expect("sent");
        }
        let mut answer = Vec::new();
        let _ = tls.read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1."), "{path}: {}", String::from_utf8_lossy(&answer));
        let _ = tls.shutdown();
        let (resumed, version) = (tls.ssl().session_reused(), tls.ssl().version2());
        assert!(version == Some(SslVersion::TLS1_3) || !is_early);
        let bytes = std::mem::take(&mut *written.lock().expect("no panic"));
        Flight { bytes, accepted, resumed }
    }
}

fn early_data_was_accepted<S>(tls: &SslStream<S>) -> bool {
    use foreign_types::ForeignTypeRef;
    unsafe extern "C" {
        fn SSL_get_early_data_status(ssl: *const openssl_sys::SSL) -> libc::c_int;
    }
    // SAFETY: the stream has a valid SSL, and the call reads a number.
    unsafe { SSL_get_early_data_status(tls.ssl().as_ptr()) == 2 }
}

impl Flight {
    /// Sends the flight again, and stays for as long as the server says something.
    pub fn replay(&self, address: SocketAddr) {
        const QUIET: Duration = Duration::from_millis(200);
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        let _ = stream.set_read_timeout(Some(QUIET));
        let _ = stream.write_all(&self.bytes);
        while stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {}
    }
}

/// An HTTP server behind the one that is tested. It counts the requests for each path that it gets.
#[derive(Debug)]
pub struct Origin {
    pub address: SocketAddr,
    seen: Arc<Mutex<HashMap<String, usize>>>,
}

impl Origin {
    /// Serves until the process ends.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let seen: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counted = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), counted) = (stream, Arc::clone(&counted)) else { continue };
                thread::spawn(move || answer(stream, &counted));
            }
        });
        Self { address, seen }
    }

    /// Returns the number of requests for this path.
    pub fn requests(&self, path: &str) -> usize {
        self.seen.lock().expect("no panic").get(path).copied().unwrap_or_default()
    }
}

fn answer(stream: TcpStream, seen: &Mutex<HashMap<String, usize>>) {
    let mut lines = BufReader::new(&stream).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    *seen.lock().expect("no panic").entry(path).or_default() += 1;
    let _ =
        (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
}
