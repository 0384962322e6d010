//! A client of each version that a balancer sends to two machines in turn, and that offers the session that it got last, and counts.

use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use openssl::ssl::{SslSession, SslStream};
use rejoin_testkit::site::{Client, Steady, Versions};

use super::ground::Balancer;
use super::kinds::{Holds, Kind};

pub(super) const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];
/// Connections of a client until it comes without its session, odd: to each machine in turn. HAProxy resumes no session
/// of TLS 1.2 that began more than five minutes before.
const FORGET_EVERY: usize = 5;
/// The pause after each connection.
const PAUSE: Duration = Duration::from_millis(100);
/// An excerpt is enough.
const MOST_REASONS: usize = 3;

/// The outcome of a client's connections.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    /// Connections that offered a session.
    pub(super) seconds: usize,
    pub(super) resumed: usize,
    /// Full handshakes because of what the server can hold.
    pub(super) beyond: usize,
    pub(super) failed: usize,
    /// Sessions of TLS 1.3 that were resumed, and for which the server gave no new one: clients use each once.
    pub(super) spent: usize,
    /// Connections that the server ended without close_notify, after which clients drop the session, and those of them
    /// that had no answer.
    pub(super) cut: usize,
    pub(super) unanswered: usize,
    /// Some of the reasons why connections failed, and sessions were lost.
    pub(super) why: Vec<String>,
}

/// The times that limit what servers resume.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) turn: Duration,
    pub(super) lifetime: Duration,
}

impl Counts {
    /// Full handshakes for which there is no excuse.
    pub(super) fn lost(&self) -> usize {
        self.seconds - self.resumed - self.beyond - self.failed
    }

    pub(super) fn percent(&self) -> f64 {
        100.0 * self.resumed as f64 / self.seconds.max(1) as f64
    }
}

/// Comes again and again until it is over.
pub(super) fn come_again(
    kind: Kind,
    balancers: &[Balancer; 2],
    limits: Limits,
    is_over: &AtomicBool,
) -> [Counts; 2] {
    let mut visitors = [0, 1].map(|at: usize| Visitor::new(balancers[at].address, VERSIONS[at]));
    for turn in 0.. {
        for visitor in &mut visitors {
            if is_over.load(Ordering::Relaxed) {
                assert!(balancers.iter().all(Balancer::is_even), "{}: uneven", kind.name);
                return visitors.map(|visitor| visitor.counts);
            }
            if turn % FORGET_EVERY == 0 {
                *visitor.client.session.lock().expect("no panic") = None;
            }
            visitor.visit(kind.holds, limits);
            thread::sleep(PAUSE);
        }
    }
    unreachable!("it goes on for ever")
}

struct Visitor {
    client: Client,
    is_tls13: bool,
    counts: Counts,
    /// The time of the last connection.
    last: Instant,
}

impl Visitor {
    fn new(address: SocketAddr, versions: Versions) -> Self {
        Self {
            client: Client::new(address, versions),
            is_tls13: versions == Versions::Tls13,
            counts: Counts::default(),
            last: Instant::now(),
        }
    }

    fn visit(&mut self, holds: Holds, limits: Limits) {
        let (offered, before) = (self.key_name(), self.ticket());
        let waited = self.last.elapsed();
        let connected = self.connect();
        self.last = Instant::now();
        let is_second = offered.is_some();
        if self.is_tls13 && is_second && connected.is_ok() && self.ticket() == before {
            *self.client.session.lock().expect("no panic") = None;
            self.counts.spent += 1;
        }
        let is_beyond = match holds {
            Holds::All => waited >= limits.lifetime,
            Holds::Three => waited >= limits.turn,
            Holds::One => self.key_name() != offered || waited >= limits.lifetime,
        };
        let newest = self.key_name();
        let counts = &mut self.counts;
        counts.seconds += usize::from(is_second);
        let why = match connected {
            Ok(true) => {
                counts.resumed += usize::from(is_second);
                return;
            }
            Ok(false) if is_beyond || !is_second => {
                counts.beyond += usize::from(is_second);
                return;
            }
            Ok(false) => format!("lost {waited:?} after {offered:02x?}, now {newest:02x?}"),
            Err(error) => {
                counts.failed += 1;
                // Only connections that offered a session are counted.
                counts.seconds += usize::from(!is_second);
                error.to_string()
            }
        };
        counts.why.truncate(MOST_REASONS - 1);
        counts.why.push(why);
    }

    /// Asks for a page. Returns true if the session was resumed.
    fn connect(&mut self) -> Result<bool, Box<dyn Error>> {
        let tls = self.client.shake_hands()?;
        if !self.is_tls13 && tls.ssl().session_reused() {
            // OpenSSL reports no new ticket of a session that was resumed over TLS 1.2, and drops the old one.
            let newest = tls.ssl().session().map(ToOwned::to_owned);
            *self.client.session.lock().expect("no panic") = newest;
        }
        self.ask(tls)
    }

    fn ask(&mut self, mut tls: SslStream<Steady>) -> Result<bool, Box<dyn Error>> {
        tls.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = Vec::new();
        let ended = tls.read_to_end(&mut answer);
        if ended.is_err() || answer.is_empty() {
            // OpenSSL drops the session of a connection that ends without close_notify.
            self.client.session.lock().expect("no panic").take();
            self.counts.cut += 1;
            self.counts.unanswered += usize::from(answer.is_empty());
        }
        let _ = tls.shutdown();
        Ok(tls.ssl().session_reused())
    }

    /// The name of the key under which the next ticket is encrypted. `None` if there is no session.
    fn key_name(&self) -> Option<[u8; 16]> {
        self.ticket()?.first_chunk().copied()
    }

    fn ticket(&self) -> Option<Vec<u8>> {
        self.client.session.lock().expect("no panic").as_ref().and_then(ticket)
    }
}

/// The ticket of a session: the element `[10]` of its serialised form (`SSL_SESSION_ASN1`).
fn ticket(session: &SslSession) -> Option<Vec<u8>> {
    const TICKET: u8 = 0xaa;
    let der = session.to_der().ok()?;
    let (_, mut rest, _) = element(&der)?;
    loop {
        let (tag, value, after) = element(rest)?;
        if tag == TICKET {
            return Some(element(value)?.1.to_vec());
        }
        rest = after;
    }
}

/// The first element's tag and value, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        _ => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
    };
    let (value, after) = rest.split_at_checked(length)?;
    Some((tag, value, after))
}
