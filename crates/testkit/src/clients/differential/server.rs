//! A server that behaves as it is told, and writes down what it sees of each client.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use openssl::pkey::PKey;
use openssl::ssl::{
    AlpnError, ErrorCode, Ssl, SslContext, SslMethod, SslStream, SslVerifyMode, SslVersion,
    select_next_proto,
};
use openssl::x509::X509;
use rustix::net::sockopt::set_socket_linger;

use super::dialects::{self, Dialect};
use super::faults::{End, Point};
use crate::certificates::Pair;
use crate::process::DEADLINE;
use crate::proxy::extension;
use crate::stacks::Tls;

/// The framing of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// The answer says how long it is.
    #[default]
    Length,
    /// The answer lasts until the connection ends.
    Close,
}

/// The server's conduct at a ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hello {
    Answered,
    /// Answered late, and everything after it in pieces.
    Late,
    Silent,
    Reset,
    /// One that fills more than a packet is never seen.
    LostIfBig,
}

/// The server's conduct.
#[derive(Clone)]
pub(super) struct Behaviour {
    pub(super) hello: Hello,
    pub(super) framing: Framing,
    pub(super) point: Point,
    pub(super) end: End,
    /// Done when the client has all up to the point.
    pub(super) at_point: Option<Arc<dyn Fn() + Send + Sync>>,
    /// The rest follows after that.
    pub(super) goes_on: bool,
    /// The conduct with all clients after the first.
    pub(super) afterwards: Option<Box<Self>>,
}

impl Default for Behaviour {
    fn default() -> Self {
        let (hello, framing) = (Hello::Answered, Framing::Length);
        let (point, end) = (Point::All, End::Notify);
        Self { hello, framing, point, end, at_point: None, goes_on: false, afterwards: None }
    }
}

/// A client, as the server saw it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Client {
    pub sni: String,
    pub alpn: String,
    /// True if it showed a certificate.
    pub certificate: bool,
    /// All that it said, without the server's port and other chance.
    pub said: String,
    /// Its own end of the connection.
    pub end: String,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sni, alpn, certificate, said, end } = self;
        let shown = if *certificate { ", a certificate" } else { "" };
        write!(formatter, "<{sni} {alpn}{shown}: {said:?} → {end}>")
    }
}

/// A TLS server on loopback, ended when dropped.
pub(super) struct Server {
    pub(super) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    dialect: Dialect,
    folder: std::path::PathBuf,
}

struct State {
    behaviour: Behaviour,
    tls: Tls,
    asks: bool,
    /// It has the keys of tickets.
    first: SslContext,
    /// It has the certificate.
    current: Arc<Mutex<SslContext>>,
    seen: Vec<Client>,
    open: usize,
    is_stopped: bool,
}

/// The time in which a client reads what it was sent, before something happens.
const PAUSE: Duration = Duration::from_millis(300);
/// The largest ClientHello that fits into one packet.
const PACKET: usize = 1_400;

impl Server {
    /// Starts a server that serves a folder's files, or speaks another protocol than HTTP.
    pub(super) fn start(
        (dialect, folder): (Dialect, &Path),
        (tls, pair): (Tls, &Pair),
        (behaviour, asks): (Behaviour, bool),
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (first, current) = contexts(pair, tls, asks);
        let state = State {
            behaviour,
            tls,
            asks,
            first,
            current,
            seen: Vec::new(),
            open: 0,
            is_stopped: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { state, changed, dialect, folder: folder.to_owned() });
        let listening = Arc::clone(&shared);
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let mut state = listening.state();
                if state.is_stopped {
                    return;
                }
                state.open += 1;
                drop(state);
                let shared = Arc::clone(&listening);
                thread::spawn(move || shared.serve(tcp, port));
            }
        });
        Self { port, shared }
    }

    /// Shows another certificate from now on, and keeps the keys of tickets.
    pub(super) fn show(&self, pair: &Pair) {
        let state = self.shared.state();
        let context = context(pair, state.tls, state.asks).build();
        *state.current.lock().expect("no panic") = context;
    }

    /// Behaves like this from now on.
    pub(super) fn behave(&self, behaviour: Behaviour) {
        self.shared.state().behaviour = behaviour;
    }

    /// Has new keys of tickets from now on.
    pub(super) fn rotate(&self, pair: &Pair) {
        let mut state = self.shared.state();
        (state.first, state.current) = contexts(pair, state.tls, state.asks);
    }

    /// Waits until all clients have gone, for a time. Returns what it saw since the last time, in order.
    pub(super) fn seen(&self) -> Vec<Client> {
        let state = self.shared.state();
        let waits = |state: &mut State| state.open > 0;
        let waited = self.shared.changed.wait_timeout_while(state, PATIENCE, waits);
        let (mut state, waited) = waited.expect("no panic");
        let mut seen = std::mem::take(&mut state.seen);
        if waited.timed_out() {
            seen.push(Client { end: HELD.to_owned(), ..Client::default() });
        }
        seen.sort();
        seen
    }
}

/// The end of a client that says nothing about it.
const NO_WORD: &str = "no word";
/// The end of a client whose ClientHello was ignored.
const UNANSWERED: &str = "not answered";
/// The end of one that has not ended.
const HELD: &str = "still connected";

impl Client {
    pub(super) fn is_held(&self) -> bool {
        self.end == HELD
    }

    /// Records the end of the connection. A client that sent nothing before does not choose between an end and a reset.
    fn ends(&mut self, end: String) {
        let is_word = end == "close_notify" || end.contains("alert") || end == UNANSWERED;
        self.end = if self.said.is_empty() && !is_word { NO_WORD.to_owned() } else { end };
    }
}

/// The longest wait for a client's end after its program has ended.
const PATIENCE: Duration = Duration::from_secs(3);

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.state().is_stopped = true;
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    fn serve(&self, tcp: TcpStream, port: u16) {
        let mut client = Client::default();
        let end = self.talk(tcp, &mut client);
        let is_here = end.is_ok() || client != Client::default();
        client.said = client.said.replace(&port.to_string(), "PORT");
        client.ends(end.unwrap_or_else(|error| ended_by(&error)));
        let mut state = self.state();
        // Who only looks whether somebody listens is no client.
        if is_here {
            state.seen.push(client);
        }
        state.open -= 1;
        self.changed.notify_all();
    }

    fn talk(&self, mut tcp: TcpStream, client: &mut Client) -> io::Result<String> {
        tcp.set_read_timeout(Some(DEADLINE))?;
        tcp.set_nodelay(true)?;
        self.dialect.before_tls(&mut tcp)?;
        let hello = peeked(&tcp)?;
        let (behaviour, first) = {
            let mut state = self.state();
            let behaviour = state.behaviour.clone();
            if let Some(afterwards) = &behaviour.afterwards {
                state.behaviour = (**afterwards).clone();
            }
            (behaviour, state.first.clone())
        };
        let text = |kind| {
            let content = extension(&hello, kind).unwrap_or_default();
            let shown = content.iter().filter(|byte| byte.is_ascii_graphic());
            shown.map(|byte| char::from(*byte)).collect::<String>()
        };
        (client.sni, client.alpn) = (text(0), text(16));
        match behaviour.hello {
            Hello::Reset => return reset(&tcp),
            Hello::Late => thread::sleep(PAUSE),
            Hello::LostIfBig if hello.len() <= PACKET => {}
            Hello::Silent | Hello::LostIfBig => {
                let _ = io::copy(&mut tcp, &mut io::sink());
                return Ok(UNANSWERED.to_owned());
            }
            Hello::Answered => {}
        }
        let mut stream = SslStream::new(Ssl::new(&first)?, tcp)?;
        if let Err(error) = stream.accept() {
            return Ok(farewell(&error));
        }
        client.certificate = stream.ssl().peer_certificate().is_some();
        let mut speaker =
            dialects::Speaker { stream, behaviour, said: String::new(), last: Vec::new() };
        let spoke = self.dialect.speak(&mut speaker, &self.folder);
        client.said = std::mem::take(&mut speaker.said);
        spoke?;
        let end = speaker.end();
        client.said += &self.dialect.text(&speaker.last);
        end
    }
}

impl dialects::Speaker {
    /// Sends an answer as far as the server's conduct wants.
    pub(super) fn answer(&mut self, head: &[u8], body: &[u8]) -> io::Result<()> {
        let half = body.len() / 2;
        let (sent, rest) = match self.behaviour.point {
            Point::Nothing => (Vec::new(), &[][..]),
            Point::One => ([head, &body[..1.min(body.len())]].concat(), &[][..]),
            Point::Half => ([head, &body[..half]].concat(), &body[half..]),
            Point::All => ([head, body].concat(), &[][..]),
        };
        let pieces = if self.behaviour.hello == Hello::Late { 4 } else { 1 };
        for piece in sent.chunks((sent.len() / pieces).max(1)) {
            self.stream.write_all(piece)?;
            if pieces > 1 {
                thread::sleep(PAUSE / 4);
            }
        }
        if let Some(act) = &self.behaviour.at_point {
            thread::sleep(PAUSE);
            act();
        }
        if self.behaviour.goes_on {
            thread::sleep(PAUSE);
            self.stream.write_all(rest)?;
        }
        Ok(())
    }

    /// Ends the connection. Returns how the client ended its own side.
    fn end(&mut self) -> io::Result<String> {
        let ends_all = self.behaviour.end;
        match ends_all {
            End::Notify => {
                let _ = self.stream.shutdown();
                let _ = self.stream.get_ref().shutdown(Shutdown::Write);
            }
            End::Fin => {
                let _ = self.stream.get_ref().shutdown(Shutdown::Write);
            }
            End::Reset => {
                thread::sleep(PAUSE);
                return reset(self.stream.get_ref());
            }
            End::Stalls => {}
            End::Freezes => {
                let _ = io::copy(&mut self.stream.get_ref(), &mut io::sink());
                return Ok(NO_WORD.to_owned());
            }
        }
        let mut piece = [0; 4096];
        loop {
            match self.stream.ssl_read(&mut piece) {
                Ok(read) => self.last.extend(&piece[..read]),
                Err(error) => return Ok(farewell(&error)),
            }
        }
    }
}

/// Names the end of a connection that failed.
fn ended_by(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => NO_WORD.to_owned(),
        _ => error.to_string(),
    }
}

/// Names the end of a connection. An end and a reset are one: which of them a close becomes depends on what is unread.
fn farewell(error: &openssl::ssl::Error) -> String {
    if error.code() == ErrorCode::ZERO_RETURN {
        return "close_notify".to_owned();
    }
    if let Some(error) = error.io_error() {
        return ended_by(error);
    }
    let reason = error.ssl_error().and_then(|errors| errors.errors().first()?.reason());
    match reason {
        Some(reason) if !reason.contains("unexpected eof") => reason.to_owned(),
        _ => NO_WORD.to_owned(),
    }
}

/// Ends a connection by a reset.
fn reset(tcp: &TcpStream) -> io::Result<String> {
    set_socket_linger(tcp, Some(Duration::ZERO))?;
    Ok("reset by the server".to_owned())
}

/// Returns the ClientHello's records without taking them.
fn peeked(tcp: &TcpStream) -> io::Result<Vec<u8>> {
    let mut hello = vec![0; 16 * 1024];
    let until = Instant::now() + DEADLINE;
    loop {
        let read = tcp.peek(&mut hello)?;
        let whole = |read| 5 + usize::from(u16::from_be_bytes([hello[3], hello[4]])) <= read;
        if read >= 5 && whole(read) {
            hello.truncate(read);
            return Ok(hello);
        }
        if read == 0 || Instant::now() > until {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A context that keeps its keys of tickets, and the one whose certificate is shown.
fn contexts(pair: &Pair, tls: Tls, asks: bool) -> (SslContext, Arc<Mutex<SslContext>>) {
    let current = Arc::new(Mutex::new(context(pair, tls, asks).build()));
    let shown = Arc::clone(&current);
    let mut first = context(pair, tls, asks);
    first.set_servername_callback(move |ssl, _| {
        let context = shown.lock().expect("no panic");
        ssl.set_ssl_context(&context).map_err(|_| openssl::ssl::SniError::ALERT_FATAL)
    });
    (first.build(), current)
}

fn context(pair: &Pair, tls: Tls, asks: bool) -> openssl::ssl::SslContextBuilder {
    let version = if tls == Tls::V12 { SslVersion::TLS1_2 } else { SslVersion::TLS1_3 };
    let mut context = SslContext::builder(SslMethod::tls_server()).expect("memory");
    let certificate = X509::from_pem(pair.certificate.as_bytes()).expect("PEM");
    let key = PKey::private_key_from_pem(pair.key.as_bytes()).expect("PEM");
    let mut set = || -> Result<(), openssl::error::ErrorStack> {
        context.set_min_proto_version(Some(version))?;
        context.set_max_proto_version(Some(version))?;
        context.set_certificate(&certificate)?;
        context.set_private_key(&key)?;
        context.set_session_id_context(b"differential")
    };
    set().expect("settings that OpenSSL has");
    context.set_alpn_select_callback(|_, offered| {
        select_next_proto(b"\x08http/1.1", offered).ok_or(AlpnError::NOACK)
    });
    if asks {
        context.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
    }
    context
}

impl Read for dialects::Speaker {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}
