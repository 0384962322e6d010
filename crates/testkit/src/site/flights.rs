//! First flights with early data: sent, recorded, and sent again.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use openssl::ssl::SslStream;

use super::{Client, Site};
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
pub struct Recorded<S> {
    stream: S,
    written: Arc<Mutex<Vec<u8>>>,
    has_read: bool,
}

impl<S> Recorded<S> {
    fn over(stream: S) -> (Self, Arc<Mutex<Vec<u8>>>) {
        let written = Arc::new(Mutex::new(Vec::new()));
        (Self { stream, written: Arc::clone(&written), has_read: false }, written)
    }

    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: Read> Read for Recorded<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.has_read = true;
        self.stream.read(into)
    }
}

impl<S: Write> Write for Recorded<S> {
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

/// A stream to nobody.
#[derive(Debug)]
struct Nobody;

impl Read for Nobody {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

impl Write for Nobody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection whose first flight brought a request, if the session allowed it. Otherwise the request followed the
/// handshake.
#[derive(Debug)]
pub struct Early {
    pub tls: SslStream<Recorded<TcpStream>>,
    pub flight: Flight,
}

impl Client {
    /// Returns the first flight with this as early data, which nobody gets. `None` if the session allows none.
    pub fn first_flight(&self, early: &[u8]) -> Option<Vec<u8>> {
        let (recorded, written) = Recorded::over(Nobody);
        let mut tls = self.begin(recorded).expect("a connection");
        if !allows_early(&tls) {
            return None;
        }
        tls.write_early_data(early).expect("written");
        Some(std::mem::take(&mut *written.lock().expect("no panic")))
    }

    /// Opens a connection, and sends this as early data, if the session allows it. What was not accepted is sent again.
    pub fn open_early(&self, first: &[u8]) -> Result<Early, Box<dyn Error>> {
        self.open(first, true)
    }

    /// The same, or without early data.
    pub fn open(&self, first: &[u8], early: bool) -> Result<Early, Box<dyn Error>> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let (recorded, written) = Recorded::over(stream);
        let mut tls = self.begin(recorded)?;
        if early && allows_early(&tls) {
            let mut unsent = first;
            while !unsent.is_empty() {
                unsent = &unsent[tls.write_early_data(unsent)?..];
            }
        }
        tls.do_handshake()?;
        let accepted = early_data_was_accepted(&tls);
        if !accepted {
            tls.write_all(first)?;
        }
        let bytes = std::mem::take(&mut *written.lock().expect("no panic"));
        let flight = Flight { bytes, accepted, resumed: tls.ssl().session_reused() };
        Ok(Early { tls, flight })
    }

    fn begin<S: Read + Write>(&self, stream: S) -> Result<SslStream<S>, Box<dyn Error>> {
        let mut ssl = self.ssl()?;
        ssl.set_connect_state();
        Ok(SslStream::new(ssl, stream)?)
    }

    /// Asks for `path` in early data, if the session allows it, and records the first flight. A server that has answered
    /// early data closes before it sends a ticket, so this is a session's last use.
    pub fn try_ask_early(&self, path: &str) -> Result<Flight, Box<dyn Error>> {
        let Early { mut tls, flight } = self.open_early(request(self.name, path).as_bytes())?;
        let mut answer = Vec::new();
        let _ = tls.read_to_end(&mut answer);
        let _ = tls.shutdown();
        match answer.starts_with(b"HTTP/1.") {
            true => Ok(flight),
            false => Err(format!("{path}: {}", String::from_utf8_lossy(&answer)).into()),
        }
    }

    /// The same, of a server that answers.
    pub fn ask_early(&self, path: &str) -> Flight {
        self.try_ask_early(path).expect("an answer")
    }
}

impl Client {
    /// Has the client believe that its session allows so many bytes of early data. The server still counts what it
    /// allowed.
    pub fn overstate_early_data(&self, most: u32) {
        use foreign_types::ForeignTypeRef;
        unsafe extern "C" {
            fn SSL_SESSION_set_max_early_data(
                session: *mut openssl_sys::SSL_SESSION,
                most: u32,
            ) -> libc::c_int;
        }
        let session = self.session.lock().expect("no panic");
        let session = session.as_ref().expect("a session").as_ptr();
        // SAFETY: the session is valid, and nobody else reads it: the lock is held.
        unsafe { SSL_SESSION_set_max_early_data(session, most) };
    }
}

impl Site {
    /// Has `openssl s_client` ask for a page over TLS 1.3. Returns what it says until the server closes. The file `request`
    /// in the site's folder holds the request.
    pub fn s_client(&self, path: &str, arguments: &[&str]) -> String {
        let asked = request("localhost", path);
        fs::write(self.file("request"), &asked).expect("a file");
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &self.address().to_string()]);
        command.args(["-servername", "localhost", "-tls1_3"]).args(arguments);
        command.current_dir(&self.folder).stderr(Stdio::null()).stdout(Stdio::piped());
        let mut client = command.stdin(Stdio::piped()).spawn().expect("openssl is installed");
        // It ends with its input.
        let mut input = client.stdin.take().expect("piped");
        // It does not repeat early data that was rejected.
        let _ = input.write_all(asked.as_bytes());
        let output = client.wait_with_output().expect("our own child");
        drop(input);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The request for a page, after which the server closes.
pub fn request(name: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")
}

fn allows_early<S>(tls: &SslStream<S>) -> bool {
    tls.ssl().session().is_some_and(|session| session.max_early_data() > 0)
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

/// The requests for a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    pub all: usize,
    /// Those that came as early data (`Early-Data: 1`, RFC 8470, section 5.1).
    pub early: usize,
}

/// An HTTP server behind the one that is tested. It counts the requests for each path that it gets.
#[derive(Debug)]
pub struct Origin {
    pub address: SocketAddr,
    seen: Arc<Mutex<HashMap<String, Requests>>>,
}

impl Origin {
    /// Serves until the process ends.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let seen: Arc<Mutex<HashMap<String, Requests>>> = Arc::default();
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
        self.seen(path).all
    }

    /// Returns the requests for this path.
    pub fn seen(&self, path: &str) -> Requests {
        self.seen.lock().expect("no panic").get(path).copied().unwrap_or_default()
    }
}

fn answer(stream: TcpStream, seen: &Mutex<HashMap<String, Requests>>) {
    let mut lines = BufReader::new(&stream).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers = lines.map_while(|line| line.ok().filter(|line| !line.is_empty()));
    let is_early = headers.fold(false, |is_early, line| {
        is_early | line.to_ascii_lowercase().starts_with("early-data: 1")
    });
    let mut seen = seen.lock().expect("no panic");
    let requests = seen.entry(path).or_default();
    requests.all += 1;
    requests.early += usize::from(is_early);
    drop(seen);
    let _ =
        (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
}
