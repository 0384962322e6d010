//! One connection: a handshake, the tickets that follow it, and a close that lets the server keep the session.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use openssl::ssl::{ErrorCode, Ssl, SslContext, SslStream};
use openssl::x509::X509VerifyResult;
use serde::Serialize;

use crate::heard::{self, Heard, Token};
use crate::settings::Host;

/// The most bytes that a server may send on a connection.
const READ_BYTES: u64 = 256 << 10;
/// The time between two looks at what else must be heeded.
const STEP: Duration = Duration::from_millis(20);
/// The time that a server over TLS 1.3 has for its first ticket.
const TICKET_PATIENCE: Duration = Duration::from_millis(800);
/// The least time for another ticket after one.
const NEXT_TICKET_PATIENCE: Duration = Duration::from_millis(60);
/// The least time that a server has to close, too.
pub(crate) const FAREWELL: Duration = Duration::from_millis(100);
/// The time that it has to store the session then: some do when a connection has ended.
const STORING: Duration = Duration::from_millis(20);
/// A server's record begins with one of these types and its major version.
const RECORDS: std::ops::RangeInclusive<u8> = 20..=23;
const MAJOR: u8 = 3;
const PROTOCOL_VERSION: u8 = 70;
/// `SSL_R_UNSUPPORTED_PROTOCOL`
const UNSUPPORTED_PROTOCOL: i32 = 258;
/// `SSL_R_UNEXPECTED_EOF_WHILE_READING`
const UNEXPECTED_EOF: i32 = 294;

/// The reason for which a connection failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Failure {
    /// TCP does not reach it.
    #[error("no TCP connection: {0}")]
    Unreachable(String),
    /// This machine has no way to the address, as without IPv6.
    #[error("no route to it from this machine")]
    NoRoute,
    /// It answers too late.
    #[error("no answer in time")]
    TooLate,
    /// It ends the connection in the handshake.
    #[error("it closes the connection in the handshake")]
    Closed,
    /// Its first bytes are no record of TLS.
    #[error("it answers, but does not speak TLS")]
    NotTls,
    /// It sends more than a handshake can have.
    #[error("it sends more than {READ_BYTES} bytes")]
    TooMuch,
    /// It does not speak the version.
    #[error("it does not speak this version")]
    Version,
    /// It ends the handshake with this alert.
    #[error("it ends the handshake with alert {0}{alert}", alert = alert_name(*.0))]
    Alert(u8),
    /// OpenSSL ends the handshake.
    #[error("the handshake fails: {0}")]
    Handshake(String),
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The connections that this address may have are used up.
    #[error("no more connections are allowed (--connections)")]
    Spent,
}

impl Failure {
    /// Returns true if the run and not the server ended the connection.
    pub(crate) const fn is_end(&self) -> bool {
        matches!(self, Self::Interrupted | Self::Spent)
    }
}

fn alert_name(number: u8) -> &'static str {
    match number {
        40 => " (handshake_failure)",
        42 => " (bad_certificate)",
        70 => " (protocol_version)",
        80 => " (internal_error)",
        112 => " (unrecognized_name)",
        116 => " (certificate_required)",
        _ => "",
    }
}

/// The cost of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Bytes of TLS in both directions.
    pub bytes: u64,
    /// Round trips before the client may send.
    pub round_trips: u32,
    /// The time from the first byte to that point, in milliseconds.
    pub ms: f64,
}

/// A connection that was made.
pub(crate) struct Made {
    pub(crate) is_resumed: bool,
    pub(crate) cost: Cost,
    pub(crate) heard: Heard,
    /// Its newest session, which nothing may resume.
    pub(crate) token: Option<Token>,
    pub(crate) verified: X509VerifyResult,
    /// True if tickets came only after a request.
    pub(crate) had_to_ask: bool,
}

/// A connection to make.
pub(crate) struct Wanted<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) context: &'a SslContext,
    pub(crate) name: Option<&'a Host>,
    pub(crate) token: Option<&'a Token>,
    pub(crate) deadline: Duration,
    pub(crate) stop: &'a AtomicBool,
    /// True if tickets come after the handshake.
    pub(crate) tickets: Tickets,
}

/// The wait for tickets after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tickets {
    /// None is needed.
    None,
    /// They come by themselves, or else after a request.
    Wait,
    /// They come after a request, as was seen before.
    Ask,
}

impl Wanted<'_> {
    pub(crate) fn make(&self) -> Result<Made, Failure> {
        let began = Instant::now();
        let mut stream = self.open()?;
        let (round_trip, begun) = (began.elapsed(), Instant::now());
        if let Err(error) = stream.connect() {
            return Err(self.failure(&error, stream.get_ref()));
        }
        let wire = stream.get_ref();
        let cost = Cost {
            bytes: wire.read + wire.written,
            round_trips: wire.round_trips,
            ms: begun.elapsed().as_secs_f64() * 1e3,
        };
        let had_to_ask =
            self.tickets != Tickets::None && self.await_tickets(&mut stream, round_trip);
        // A server over TLS 1.3 refuses a client without a certificate after the client has finished (RFC 8446, section
        // 4.4.2.4): that no ticket came says nothing of its tickets.
        if let Some(alert) = heard::heard(|heard| heard.alert) {
            return Err(Failure::Alert(alert));
        }
        stream.get_mut().wait(self.deadline);
        // Without close_notify, some servers drop the session.
        let _ = stream.shutdown();
        stream.get_mut().end(FAREWELL.max(2 * round_trip));
        let heard = heard::heard(std::mem::take);
        let token = Token::newest(stream.ssl());
        let verified = stream.ssl().verify_result();
        Ok(Made {
            is_resumed: stream.ssl().session_reused(),
            cost,
            heard,
            token,
            verified,
            had_to_ask,
        })
    }

    /// Opens a connection, over which nothing is sent yet.
    pub(crate) fn open(&self) -> Result<SslStream<Wire<'_>>, Failure> {
        let wire = Wire::open(self.address, self.deadline, self.stop)?;
        heard::forget();
        let mut ssl = heard::connection(self.context, self.token).map_err(|e| shown(&e))?;
        self.names(&mut ssl).map_err(|e| shown(&e))?;
        SslStream::new(ssl, wire).map_err(|e| shown(&e))
    }

    fn names(&self, ssl: &mut Ssl) -> Result<(), openssl::error::ErrorStack> {
        match self.name {
            Some(Host::Name(name)) => {
                ssl.set_hostname(name)?;
                ssl.param_mut().set_host(name)
            }
            Some(Host::Address(address)) => ssl.param_mut().set_ip(*address),
            None => Ok(()),
        }
    }

    /// Waits for tickets, and asks for a page if none comes. Returns true if one came only then.
    fn await_tickets(&self, stream: &mut SslStream<Wire<'_>>, round_trip: Duration) -> bool {
        let next = NEXT_TICKET_PATIENCE.max(2 * round_trip);
        if self.tickets == Tickets::Wait {
            let is_resumed = stream.ssl().session_reused();
            let patience = if is_resumed { TICKET_PATIENCE / 2 } else { TICKET_PATIENCE };
            // A resumed connection need not bring another ticket.
            if listen(stream, patience.max(4 * round_trip), next) || is_resumed {
                return false;
            }
        }
        stream.get_mut().wait(self.deadline);
        stream.ssl_write(self.request().as_bytes()).is_ok() && listen(stream, self.deadline, next)
    }

    /// The request for the head of a page.
    pub(crate) fn request(&self) -> String {
        let host = self.name.map(ToString::to_string).unwrap_or_default();
        format!(
            "HEAD / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: rejoin-doctor\r\nConnection: close\r\n\r\n"
        )
    }

    pub(crate) fn failure(&self, error: &openssl::ssl::Error, wire: &Wire<'_>) -> Failure {
        if self.stop.load(Ordering::Relaxed) {
            return Failure::Interrupted;
        }
        if wire.read > READ_BYTES {
            return Failure::TooMuch;
        }
        if wire.is_tls == Some(false) {
            return Failure::NotTls;
        }
        match heard::heard(|heard| heard.alert) {
            Some(PROTOCOL_VERSION) => return Failure::Version,
            Some(alert) => return Failure::Alert(alert),
            None => {}
        }
        if error.code() == ErrorCode::WANT_READ || Instant::now() >= wire.until {
            return Failure::TooLate;
        }
        match error.ssl_error().filter(|stack| !stack.errors().is_empty()) {
            Some(stack) => match stack.errors()[0].reason_code() {
                UNSUPPORTED_PROTOCOL => Failure::Version,
                UNEXPECTED_EOF => Failure::Closed,
                _ => shown(stack),
            },
            None => Failure::Closed,
        }
    }
}

fn shown(stack: &openssl::error::ErrorStack) -> Failure {
    let reason = stack.errors().first().and_then(openssl::error::Error::reason);
    Failure::Handshake(reason.unwrap_or("no reason given").to_owned())
}

/// Reads until tickets have come and no other follows, or data or the end comes. Returns true if there are tickets.
fn listen(stream: &mut SslStream<Wire<'_>>, first: Duration, next: Duration) -> bool {
    let count = || heard::heard(|heard| heard.tickets.len());
    let (mut seen, mut until) = (count(), Instant::now() + first);
    let mut ignored = [0; 1024];
    let last = stream.get_ref().last;
    while Instant::now() < until.min(last) {
        stream.get_mut().wait(STEP);
        match stream.ssl_read(&mut ignored) {
            Err(error) if error.code() == ErrorCode::WANT_READ => {}
            _ => break,
        }
        let now = count();
        if now > seen {
            (seen, until) = (now, Instant::now() + next);
        }
    }
    count() > 0
}

/// A socket that counts, and that heeds a deadline and an interruption.
pub(crate) struct Wire<'a> {
    socket: TcpStream,
    until: Instant,
    /// The end of the connection, whatever it waits for.
    last: Instant,
    stop: &'a AtomicBool,
    pub(crate) read: u64,
    written: u64,
    /// The bytes written, where they are held back.
    pub(crate) held: Option<Vec<u8>>,
    round_trips: u32,
    was_written: bool,
    /// True if the first bytes can be a record. `None`: there are none yet.
    is_tls: Option<bool>,
}

impl<'a> Wire<'a> {
    pub(crate) fn open(
        address: SocketAddr,
        deadline: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Self, Failure> {
        let socket = TcpStream::connect_timeout(&address, deadline);
        let socket = socket.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => Failure::TooLate,
            ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => Failure::NoRoute,
            _ => Failure::Unreachable(error.to_string()),
        })?;
        let _ = socket.set_nodelay(true);
        let now = Instant::now();
        Ok(Self {
            socket,
            until: now + deadline,
            last: now + 2 * deadline + TICKET_PATIENCE + FAREWELL,
            stop,
            read: 0,
            written: 0,
            held: None,
            round_trips: 0,
            was_written: false,
            is_tls: None,
        })
    }

    /// Sets the longest time that the next reads and writes take together.
    pub(crate) fn wait(&mut self, longest: Duration) {
        self.until = (Instant::now() + longest).min(self.last);
    }

    /// Reads what is left until the server has closed, and gives it time to store the session.
    pub(crate) fn end(&mut self, longest: Duration) {
        self.wait(longest);
        let mut ignored = [0; 1024];
        while self.read(&mut ignored).is_ok_and(|count| count > 0) {}
        std::thread::sleep(STORING);
    }

    /// Tries again until the deadline. `WouldBlock`: it is over.
    fn steadily(
        &mut self,
        mut attempt: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stop.load(Ordering::Relaxed) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let step = Some(left.min(STEP));
            self.socket.set_read_timeout(step)?;
            self.socket.set_write_timeout(step)?;
            match attempt(&self.socket) {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                done => return done,
            }
        }
    }
}

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.read > READ_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let count = self.steadily(|mut socket| socket.read(into))?;
        let first = into.get(..count).unwrap_or_default();
        if self.is_tls.is_none() && count > 0 {
            let is_major = first.get(1).is_none_or(|major| *major == MAJOR);
            self.is_tls = Some(RECORDS.contains(&first[0]) && is_major);
        }
        self.read += count as u64;
        self.round_trips += u32::from(std::mem::take(&mut self.was_written) && count > 0);
        Ok(count)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(held) = &mut self.held {
            held.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let count = self.steadily(|mut socket| socket.write(bytes))?;
        self.written += count as u64;
        self.was_written = true;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_ends_however_long_it_would_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let serve = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            while stream.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let (stop, deadline, began) =
            (AtomicBool::new(false), Duration::from_millis(50), Instant::now());
        let mut wire = Wire::open(address, deadline, &stop).expect("a connection");
        let error = loop {
            wire.wait(Duration::from_secs(60));
            if let Err(error) = wire.read(&mut [0; 16]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        drop(wire);
        serve.join().expect("no panic");
    }
}
