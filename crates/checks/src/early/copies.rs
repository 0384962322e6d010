//! Copies of first flights, sent to servers, and what came back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use rejoin_testkit::site::{Client, request};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

/// The time for which a copy waits for the server's first word.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The time that a server's application has to see early data that was accepted.
pub(super) const SETTLED: Duration = Duration::from_millis(300);
/// The time for which a copy that lacks its end waits: there is nothing that must come.
const IN_VAIN: Duration = Duration::from_millis(25);

/// A first flight, to be sent to a server.
#[derive(Debug, Clone)]
pub(super) struct Copy {
    pub(super) bytes: Vec<u8>,
    pub(super) from: Ipv4Addr,
    pub(super) to: SocketAddr,
    /// True if the server may wait for more.
    pub(super) is_cut: bool,
}

/// The server's first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// A handshake without a session, in which no early data is accepted.
    Full,
    /// A handshake with the session of the first flight.
    Resumed,
    /// It wants another ClientHello.
    Retry,
    Alert,
    /// It said nothing, or closed.
    Nothing,
}

/// Gets a client a session by a full handshake, and returns once it has it.
pub(super) fn renew(client: &Client) -> Result<(), String> {
    *client.session.lock().expect("no panic") = None;
    let mut early = client.open_early(request(client.name, "/first").as_bytes());
    let tls = &mut early.as_mut().map_err(|error| error.to_string())?.tls;
    let stream = &tls.get_ref();
    stream.get_ref().set_read_timeout(Some(IN_VAIN)).map_err(|error| error.to_string())?;
    let until = Instant::now() + PATIENCE;
    let has_one = || client.session.lock().expect("no panic").is_some();
    while !has_one() {
        if Instant::now() > until {
            return Err("no session came".to_owned());
        }
        let read = tls.ssl_read(&mut [0; 4096]);
        let wants_more = |code| code == openssl::ssl::ErrorCode::WANT_READ;
        if let Err(error) = read
            && !wants_more(error.code())
            && !has_one()
        {
            return Err(format!("no session came: {error}"));
        }
    }
    let _ = tls.shutdown();
    Ok(())
}

impl Copy {
    /// A whole copy from this machine's own address.
    pub(super) fn whole(bytes: Vec<u8>, to: SocketAddr) -> Self {
        Self { bytes, from: Ipv4Addr::LOCALHOST, to, is_cut: false }
    }

    /// Sends it, and stays until it is clear what the server makes of it.
    pub(super) fn send(&self) -> Heard {
        let Ok(stream) = self.open() else { return Heard::Nothing };
        let _ = (&stream).write_all(&self.bytes);
        self.hear(&stream)
    }

    /// Opens the connection.
    pub(super) fn open(&self) -> std::io::Result<TcpStream> {
        let SocketAddr::V4(to) = self.to else { return Err(ErrorKind::Unsupported.into()) };
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Thousands of ports would stay in use for a minute.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        if self.from != Ipv4Addr::LOCALHOST {
            bind(&socket, &SocketAddrV4::new(self.from, 0))?;
        }
        connect(&socket, &to)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    pub(super) fn hear(&self, stream: &TcpStream) -> Heard {
        let patience = if self.is_cut { IN_VAIN } else { PATIENCE };
        let _ = stream.set_read_timeout(Some(patience));
        let heard = first_word(stream);
        if heard == Heard::Resumed || heard == Heard::Nothing && !self.is_cut {
            wait_for_end(stream);
        }
        heard
    }
}

/// Reads on for as long as an application may need to see what was accepted.
fn wait_for_end(mut stream: &TcpStream) {
    let until = Instant::now() + SETTLED;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match stream.read(&mut [0; 4096]) {
            Ok(1..) => {}
            _ => return,
        }
    }
}

/// Reads the first record, and tells a ServerHello that has chosen a session from others (RFC 8446, section 4.2.11).
fn first_word(mut stream: &TcpStream) -> Heard {
    let mut head = [0; 5];
    if stream.read_exact(&mut head).is_err() {
        return Heard::Nothing;
    }
    let mut record = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    if stream.read_exact(&mut record).is_err() {
        return Heard::Nothing;
    }
    match (head[0], record.first()) {
        (ALERT, _) => Heard::Alert,
        (HANDSHAKE, Some(&SERVER_HELLO)) => server_hello(&record).unwrap_or(Heard::Nothing),
        _ => Heard::Nothing,
    }
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;
const PRE_SHARED_KEY: u16 = 41;
/// The first bytes of the random number that makes a ServerHello a HelloRetryRequest (RFC 8446, section 4.1.3).
const RETRY: [u8; 4] = [0xcf, 0x21, 0xad, 0x74];

fn server_hello(message: &[u8]) -> Option<Heard> {
    // Type, length and version come first; the session id follows 32 random bytes.
    let random = message.get(6..38)?;
    if random.starts_with(&RETRY) {
        return Some(Heard::Retry);
    }
    let id_bytes = usize::from(*message.get(38)?);
    // Suite, compression and the length of all extensions follow the id.
    let mut rest = message.get(39 + id_bytes + 5..)?;
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        if u16::from_be_bytes([head[0], head[1]]) == PRE_SHARED_KEY {
            return Some(Heard::Resumed);
        }
        rest = after.get(usize::from(u16::from_be_bytes([head[2], head[3]]))..)?;
    }
    Some(Heard::Full)
}

/// The number of bytes of a flight's ClientHello, with its record's head.
pub(super) fn hello_bytes(flight: &[u8]) -> usize {
    5 + usize::from(u16::from_be_bytes([flight[3], flight[4]]))
}
