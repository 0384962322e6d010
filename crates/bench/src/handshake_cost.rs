//! What a handshake costs a server: real ones, in one thread, over memory.
//!
//! Counted is the thread's CPU time in libssl on the server's side, from a new connection to its
//! end, and for a resumed one the lookup in the shipped cache. Not counted are sockets, the
//! application's data, and the client. Batches of full and of resumed handshakes take turns, and
//! the figures are medians over batches, so that a disturbance hits both or neither.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, ShutdownState, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions,
    SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};
use rejoin_cache::{Cache, Capacity, Hints, Settings};
use rejoin_openssl::{Client, ClientSession, InternalCache, ServerSessions};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::{Error, Identity};

/// The server's CPU time of a handshake, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HandshakeCost {
    /// As on the command line: `1.2` or `1.3`.
    pub tls: &'static str,
    /// Of a full one.
    pub full_us: f64,
    /// Of a resumed one, out of the shipped cache: by session id over TLS 1.2, by stateful ticket
    /// over TLS 1.3.
    pub resumed_us: f64,
}

/// Handshakes of a batch.
const BATCH: u32 = 20;
/// Batches of each kind, an odd number; fewer if they take longer than [`PATIENCE`].
const BATCHES: usize = 15;
/// For all batches of one version.
const PATIENCE: Duration = Duration::from_secs(2);
/// Sessions that OpenSSL's own cache is weighed with.
const WEIGHED: u64 = 200;

/// Measures TLS 1.2, then 1.3. Takes a few seconds at most.
///
/// # Errors
/// OpenSSL's.
pub fn measure(identity: &Identity) -> Result<Vec<HandshakeCost>, Error> {
    [("1.2", SslVersion::TLS1_2), ("1.3", SslVersion::TLS1_3)]
        .into_iter()
        .map(|(tls, version)| measure_version(tls, version, identity))
        .collect()
}

/// Bytes of a session in OpenSSL's own cache, over TLS 1.2. `None` unless
/// [`weigh_internal_cache`](crate::server::weigh_internal_cache) was called in time.
///
/// # Errors
/// OpenSSL's.
pub fn internal_cache_session_bytes(identity: &Identity) -> Result<Option<f64>, Error> {
    let version = SslVersion::TLS1_2;
    let mut server = server(version, identity)?;
    server.set_session_id_context(b"rejoin")?;
    server.set_session_cache_mode(SslSessionCacheMode::SERVER);
    server.set_options(SslOptions::NO_TICKET);
    let pair = Pair { server: server.build(), client: client(version)? };
    for _ in 0..WEIGHED {
        pair.connect(None)?;
    }
    let InternalCache { sessions, bytes } = InternalCache::empty(&pair.server);
    Ok((bytes > 0 && sessions > 0).then(|| bytes as f64 / sessions as f64))
}

fn measure_version(
    tls: &'static str,
    version: SslVersion,
    identity: &Identity,
) -> Result<HandshakeCost, Error> {
    let settings = Settings::new(Capacity::Sessions(10_000));
    let cache = Cache::new(&settings, [0; 16], rejoin_openssl::now_ms())?;
    // Nobody else ever sees these sessions.
    let sessions = ServerSessions::new(Arc::new(cache), [0; 16], Hints::Never);
    let mut server = server(version, identity)?;
    sessions.attach(&mut server, b"rejoin")?;
    let pair = Pair { server: server.build(), client: client(version)? };
    // What is only done once is not to be counted.
    let mut session = pair.connect(None)?.session;
    let (mut full, mut resumed) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while full.len() < BATCHES && (full.is_empty() || began.elapsed() < PATIENCE) {
        full.push(batch(|| {
            let connected = pair.connect(None)?;
            session = connected.session;
            if connected.resumed { Err(failed("resumed unasked")) } else { Ok(connected.cpu) }
        })?);
        resumed.push(batch(|| {
            let connected = pair.connect(Some(&session))?;
            session = connected.session;
            if connected.resumed { Ok(connected.cpu) } else { Err(failed("not resumed")) }
        })?);
    }
    Ok(HandshakeCost { tls, full_us: median(full), resumed_us: median(resumed) })
}

/// OpenSSL did not resume, or did resume, against what it was asked.
pub(crate) fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let what = "handshakes cannot be measured here; give their costs instead";
    Error::System { what, source: io::Error::other(cause) }
}

/// The mean of a batch, in microseconds.
fn batch(mut connect: impl FnMut() -> Result<Duration, Error>) -> Result<f64, Error> {
    let total = (0..BATCH).try_fold(Duration::ZERO, |sum, _| connect().map(|cpu| sum + cpu))?;
    Ok(total.as_secs_f64() * 1e6 / f64::from(BATCH))
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

pub(crate) fn server(version: SslVersion, identity: &Identity) -> Result<SslContextBuilder, Error> {
    let mut server = context(SslMethod::tls_server(), version)?;
    let (leaf, issuers) = identity
        .chain
        .split_first()
        .ok_or(Error::Settings("the certificate chain is empty: give a certificate"))?;
    server.set_certificate(leaf)?;
    for issuer in issuers {
        server.add_extra_chain_cert(issuer.clone())?;
    }
    server.set_private_key(&identity.key)?;
    Ok(server)
}

pub(crate) fn client(version: SslVersion) -> Result<Client, ErrorStack> {
    let mut client = context(SslMethod::tls_client(), version)?;
    // The certificate was made a moment ago, and what the client does is not measured.
    client.set_verify(SslVerifyMode::NONE);
    Ok(Client::new(client))
}

pub(crate) fn context(
    method: SslMethod,
    version: SslVersion,
) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContextBuilder::new(method)?;
    context.set_min_proto_version(Some(version))?;
    context.set_max_proto_version(Some(version))?;
    Ok(context)
}

/// A server and a client of one version.
struct Pair {
    server: SslContext,
    client: Client,
}

/// A connection that is over.
struct Connected {
    /// The client's newest.
    session: ClientSession,
    resumed: bool,
    /// The server's.
    cpu: Duration,
}

impl Pair {
    fn connect(&self, session: Option<&ClientSession>) -> Result<Connected, Error> {
        let (ours, theirs) = Pipe::pair();
        let mut client = SslStream::new(self.client.connection(session)?, theirs)?;
        let began = cpu_time();
        let mut server = SslStream::new(Ssl::new(&self.server)?, ours)?;
        let mut cpu = cpu_time() - began;
        let (mut connected, mut accepted) = (false, false);
        for _ in 0..MOST_FLIGHTS {
            connected = connected || is_done(client.connect())?;
            let began = cpu_time();
            accepted = accepted || is_done(server.accept())?;
            cpu += cpu_time() - began;
        }
        if !(connected && accepted) {
            return Err(failed("no end of a handshake"));
        }
        // Tickets come after the handshake; there is nothing else to be read.
        let _ = client.ssl_read(&mut [0]);
        let resumed = server.ssl().session_reused();
        let newest = ClientSession::newest(client.ssl());
        // Sessions of connections that are not closed would not be used again.
        client.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
        let began = cpu_time();
        server.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
        drop(server);
        cpu += cpu_time() - began;
        let session = newest.ok_or_else(|| failed("no session"))?;
        Ok(Connected { session, resumed, cpu })
    }
}

/// No handshake takes more turns.
pub(crate) const MOST_FLIGHTS: u32 = 4;

/// False if the other side has the word.
pub(crate) fn is_done(step: Result<(), openssl::ssl::Error>) -> Result<bool, Error> {
    match step {
        Ok(()) => Ok(true),
        Err(error) if error.code() == ErrorCode::WANT_READ => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Of this thread, user and system.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// One end of a connection in memory.
pub(crate) struct Pipe {
    incoming: Rc<RefCell<VecDeque<u8>>>,
    outgoing: Rc<RefCell<VecDeque<u8>>>,
}

impl Pipe {
    pub(crate) fn pair() -> (Self, Self) {
        let (one, other) = (Rc::default(), Rc::default());
        let end = Self { incoming: Rc::clone(&one), outgoing: Rc::clone(&other) };
        (end, Self { incoming: other, outgoing: one })
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut incoming = self.incoming.borrow_mut();
        if incoming.is_empty() {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            incoming.read(buffer)
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyType;

    #[test]
    fn a_resumed_handshake_costs_the_server_less() {
        let identity = Identity::made(KeyType::Rsa2048).expect("an identity");
        let costs = measure(&identity).expect("measured");
        assert_eq!(costs.iter().map(|cost| cost.tls).collect::<Vec<_>>(), ["1.2", "1.3"]);
        // Over TLS 1.3 there is a key exchange in any case: what is saved is the signature.
        for (cost, times) in costs.iter().zip([3.0, 1.2]) {
            assert!(cost.resumed_us > 1.0 && cost.full_us > times * cost.resumed_us, "{cost:?}");
        }
    }

    #[test]
    fn the_middle_one_is_the_median() {
        assert_eq!(median(vec![9.0, 1.0, 4.0]), 4.0);
    }
}
