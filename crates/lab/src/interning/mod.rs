//! The saving when a server decodes the certificates of its clients only once: the question of patch 002 of the JDK
//! (8286433), asked of OpenSSL.
//!
//! Two servers share one cache. One decodes a client's certificate at each resumption, as OpenSSL does; the other
//! once ([`rejoin_openssl::CERTIFICATES_BYTES`]). The same clients resume at both in turns, first at the one or at
//! the other, batch by batch, so that a disturbance hits both; figures are medians over batches, and ratios are
//! of batches that follow each other. Handshakes are real, in one thread, over memory.
//!
//! Only the server's side counts: its thread's CPU time from a new connection to its end, and, in separate batches,
//! the bytes that libssl and libcrypto allocate meanwhile. Rejoin's own allocations are not among them: for a
//! certificate that is found, a copy of its bytes.
//!
//! Not measured: certificates in stateless tickets, which OpenSSL decodes by itself.

mod clients;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use openssl::ssl::{ShutdownState, Ssl, SslContext, SslStream, SslVerifyMode};
use openssl::x509::X509;
use rejoin_cache::{Cache, Capacity, Hints, Settings as CacheSettings};
use rejoin_openssl::{
    CERTIFICATES_BYTES, Client, ClientSession, Memory, ServerSessions, count_memory,
};
use rejoin_report::median;
use serde::Serialize;

use crate::Error;
use crate::experiment::{Ended, Step, Turns, crossed};
use crate::over_memory::{self, Pipe, cpu_time, failed, shake_hands};
use clients::{Authority, Shown};
use rejoin_serve::{Identity, KeyType, Versions};

/// The settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Versions of TLS, in turn: each alone, never [`Versions::Both`]. Over TLS 1.2 a session is resumed again and
    /// again; over TLS 1.3 each resumption makes one, which is written with its certificate.
    pub versions: Vec<Versions>,
    /// How many distinct certificates clients have, in turn: 1 to [`Settings::MOST_CERTIFICATES`].
    pub certificates: Vec<u32>,
    /// The key type of the clients' certificates and of the server's.
    pub key_type: KeyType,
    /// Pairs of batches that are timed for each: an odd number is best.
    pub batches: u32,
    /// Bytes that the server may use for decoded certificates ([`ServerSessions::with_certificates`]); `None`: enough
    /// for all, and no less than [`CERTIFICATES_BYTES`].
    pub room_bytes: Option<usize>,
}

impl Settings {
    /// Each is a client with a session of its own: some 30 KB.
    pub const MOST_CERTIFICATES: u32 = 100_000;

    fn room_bytes(&self) -> usize {
        let most = self.certificates.iter().copied().max().unwrap_or(0) as usize;
        self.room_bytes.unwrap_or_else(|| CERTIFICATES_BYTES.max(most * ENOUGH_BYTES))
    }
}

/// Room for a decoded certificate, for any key and whichever part of the room it falls into.
const ENOUGH_BYTES: usize = 16 * 1_024;

/// The cost of a resumption for the server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Taken {
    /// CPU time in microseconds.
    pub cpu_us: f64,
    /// Resumptions that fit into a second of CPU time.
    pub per_cpu_s: f64,
    /// Bytes that libssl and libcrypto allocate.
    pub allocated_bytes: f64,
}

/// One version with so many certificates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The version: `1.2` or `1.3`.
    pub tls: &'static str,
    /// False if the machine did not keep up.
    pub kept_up: bool,
    /// Distinct certificates, each of a client that comes in turn.
    pub certificates: u32,
    /// Bytes of a certificate as DER, the median.
    pub certificate_bytes: usize,
    /// Bytes that one takes when decoded and not yet used, the median.
    pub decoded_bytes: u64,
    /// Bytes that are allocated to decode one, the median.
    pub decoding_allocates_bytes: u64,
    /// Where it is decoded at each resumption.
    pub each_time: Taken,
    /// Where it was decoded before, as long as there was room.
    pub once: Taken,
    /// CPU time of the resumption where it is decoded for the first time and kept, in microseconds.
    pub first_cpu_us: f64,
    /// How many times as many resumptions a second as before.
    pub times: f64,
    /// Bytes less for each resumption.
    pub saved_bytes: f64,
}

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// How the experiment ended, in rows.
    #[serde(flatten)]
    pub ended: Ended,
    /// Bytes that the server may use for decoded certificates.
    pub room_bytes: usize,
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
}

/// Resumptions of a batch.
const BATCH: usize = 25;
/// Pairs of batches in which memory is counted.
const WEIGHED: u32 = 3;
/// The bytes of a session with its client's certificate.
const SESSION_BYTES: u32 = 1_536;
/// The key of session ids; a fixed one, because no other process sees these sessions.
const ID_KEY: [u8; 16] = [7; 16];

/// Measures one combination after the other until `stop` is set. `began` is told of steps within a combination, too.
///
/// To be called before anything else of OpenSSL's, for its memory is counted.
///
/// # Errors
/// Settings that cannot be; OpenSSL's; a handshake that is not resumed where it must be.
pub fn measure(
    settings: &Settings,
    stop: &AtomicBool,
    mut began: impl FnMut(&Step),
) -> Result<Outcome, Error> {
    if settings.certificates.iter().any(|n| !(1..=Settings::MOST_CERTIFICATES).contains(n)) {
        return Err(Error::Settings("certificates: give numbers from 1 to 100000"));
    }
    if settings.key_type == KeyType::MlDsa65 {
        return Err(Error::Settings(
            "key: give p-256 or rsa-2048; this is not measured with ML-DSA",
        ));
    }
    if !count_memory() {
        return Err(failed("OpenSSL was used before, and does not let its memory be counted"));
    }
    let room_bytes = settings.room_bytes();
    let authority = Authority::new(settings.key_type)?;
    let identity = Identity::made(settings.key_type)?;
    let cells = crossed(&settings.versions, &settings.certificates);
    let of = cells.len() * PARTS;
    let mut turns = Turns::new(cells.len());
    let cells = cells.into_iter().enumerate();
    let cells = cells.map(|(at, (versions, number))| Cell(versions, number, at * PARTS));
    let mut rows = turns.run(
        cells.clone(),
        stop,
        |_| {},
        |cell, _| {
            let Cell(versions, number, done) = cell;
            let mut site = Site::new(versions, number, room_bytes, &authority, &identity)?;
            let told = |part: f64| {
                let done = done + (part * PARTS as f64) as usize;
                began(&Step { done, of, what: cell.to_string() });
            };
            site.row(settings.batches, stop, told)
        },
    );
    let ended = turns.ended(rows.is_empty())?;
    // The first failure ends the loop: rows are of the first cells.
    for (row, cell) in rows.iter_mut().zip(cells) {
        row.kept_up = !ended.doubts(cell);
    }
    Ok(Outcome { ended, room_bytes, rows })
}

/// Steps of a combination.
const PARTS: usize = 1_000;

/// A version of TLS, a number of certificates, and the steps before it.
#[derive(Debug, Clone, Copy)]
struct Cell(Versions, u32, usize);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS {}, {} certificates", self.0.name(), self.1)
    }
}

/// Two servers with one cache, and their clients.
struct Site<'a> {
    versions: Versions,
    authority: &'a Authority,
    each_time: SslContext,
    once: SslContext,
    client: Client,
    /// One for each certificate.
    sessions: Vec<Option<ClientSession>>,
    next: usize,
}

/// The cost of a connection for the server.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    cpu: Duration,
    memory_bytes: u64,
}

/// The quantity that is counted.
#[derive(Debug, Clone, Copy)]
enum Counted {
    Time,
    Memory,
}

impl<'a> Site<'a> {
    fn new(
        versions: Versions,
        certificates: u32,
        room_bytes: usize,
        authority: &'a Authority,
        identity: &Identity,
    ) -> Result<Self, Error> {
        // Over TLS 1.3 a client has the session that it will use, and one that it will not.
        let capacity = Capacity::Sessions(u64::from(certificates) * 4 + 4_096);
        let settings = CacheSettings { block_bytes: SESSION_BYTES, ..CacheSettings::new(capacity) };
        let cache = Arc::new(Cache::new(&settings, [0; 16], rejoin_openssl::now_ms())?);
        let server = |bytes| -> Result<SslContext, Error> {
            let mut server = over_memory::server(versions, identity)?;
            server.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
            server.cert_store_mut().add_cert(authority.certificate().to_owned())?;
            let cache = Arc::clone(&cache);
            ServerSessions::with_certificates(cache, ID_KEY, Hints::Never, bytes)
                .attach(&mut server, b"rejoin")?;
            Ok(server.build())
        };
        let (each_time, once) = (server(0)?, server(room_bytes)?);
        let client = over_memory::client(versions)?;
        let sessions = (0..certificates).map(|_| None).collect();
        Ok(Self { versions, authority, each_time, once, client, sessions, next: 0 })
    }

    /// `None` if it was stopped.
    fn row(
        &mut self,
        batches: u32,
        stop: &AtomicBool,
        mut progress: impl FnMut(f64),
    ) -> Result<Option<Row>, Error> {
        let (mut sizes, mut decoded, mut first) = (Vec::new(), Vec::new(), Vec::new());
        let certificates = self.sessions.len();
        for who in 0..certificates {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            progress(0.5 * who as f64 / certificates as f64);
            let shown = self.authority.client(who)?;
            let der = shown.certificate.to_der()?;
            // What OpenSSL only does once is not the certificate's.
            drop(X509::from_der(&der)?);
            let (_certificate, memory) = Memory::of(|| X509::from_der(&der));
            sizes.push(der.len() as f64);
            decoded.push(memory);
            self.connect(&self.each_time.clone(), who, Some(&shown), Counted::Time)?;
            let spent = self.connect(&self.once.clone(), who, None, Counted::Time)?;
            first.push(spent.cpu.as_secs_f64() * 1e6);
        }
        let (mut times, mut memories) = (Vec::new(), Vec::new());
        for batch in 0..batches {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            progress(0.5 + 0.5 * f64::from(batch) / f64::from(batches));
            times.push(self.pair_of_batches(batch, Counted::Time)?);
        }
        for batch in 0..WEIGHED {
            memories.push(self.pair_of_batches(batch, Counted::Memory)?);
        }
        let bytes = |of: fn(&Memory) -> u64| median(decoded.iter().map(|m| of(m) as f64).collect());
        let taken = |which: usize| {
            let cpu_us = median(times.iter().map(|pair| pair[which]).collect());
            let allocated_bytes = median(memories.iter().map(|pair| pair[which]).collect());
            Taken { cpu_us, per_cpu_s: 1e6 / cpu_us, allocated_bytes }
        };
        let (each_time, once) = (taken(0), taken(1));
        Ok(Some(Row {
            kept_up: true,
            tls: self.versions.name(),
            certificates: certificates as u32,
            certificate_bytes: median(sizes) as usize,
            decoded_bytes: bytes(|memory| memory.allocated_bytes - memory.freed_bytes) as u64,
            decoding_allocates_bytes: bytes(|memory| memory.allocated_bytes) as u64,
            each_time,
            once,
            first_cpu_us: median(first),
            times: median(times.iter().map(|pair| pair[0] / pair[1]).collect()),
            saved_bytes: each_time.allocated_bytes - once.allocated_bytes,
        }))
    }

    /// The mean of a resumption where certificates are decoded each time, and where once, of the same clients:
    /// microseconds or bytes.
    fn pair_of_batches(&mut self, batch: u32, counted: Counted) -> Result<[f64; 2], Error> {
        let mut means = [0.0; 2];
        let first = batch as usize % 2;
        for which in [first, 1 - first] {
            let server = if which == 0 { self.each_time.clone() } else { self.once.clone() };
            for turn in 0..BATCH {
                let who = (self.next + turn) % self.sessions.len();
                let spent = self.connect(&server, who, None, counted)?;
                means[which] += match counted {
                    Counted::Time => spent.cpu.as_secs_f64() * 1e6,
                    Counted::Memory => spent.memory_bytes as f64,
                } / BATCH as f64;
            }
        }
        self.next = (self.next + BATCH) % self.sessions.len();
        Ok(means)
    }

    /// A client shows its certificate, or resumes its session.
    fn connect(
        &mut self,
        server: &SslContext,
        who: usize,
        shown: Option<&Shown<'_>>,
        counted: Counted,
    ) -> Result<Spent, Error> {
        let session = self.sessions[who].take();
        let (ours, theirs) = Pipe::pair();
        let mut ssl = self.client.connection(session.as_ref())?;
        if let Some(Shown { certificate, key }) = shown {
            ssl.set_certificate(certificate)?;
            ssl.set_private_key(key)?;
        }
        let mut client = SslStream::new(ssl, theirs)?;
        let mut spent = Spent::default();
        let mut server = spent.of(counted, || SslStream::new(Ssl::new(server)?, ours))?;
        let accept = || spent.of(counted, || server.accept());
        let is_through = shake_hands(|| client.connect(), accept)?;
        // Tickets come after the handshake; there is nothing else to be read.
        let _ = client.ssl_read(&mut [0]);
        let resumed = server.ssl().session_reused();
        if !is_through || resumed != shown.is_none() {
            return Err(failed("a client was not resumed where it had to be, or was where not"));
        }
        self.sessions[who] = ClientSession::newest(client.ssl());
        // Sessions of connections that are not closed would not be used again.
        client.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
        spent.of(counted, || {
            server.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
            drop(server);
        });
        Ok(spent)
    }
}

impl Spent {
    /// A step of the server's.
    fn of<T>(&mut self, counted: Counted, step: impl FnOnce() -> T) -> T {
        match counted {
            Counted::Time => {
                let began = cpu_time();
                let done = step();
                self.cpu += cpu_time() - began;
                done
            }
            Counted::Memory => {
                let (done, memory) = Memory::of(step);
                self.memory_bytes += memory.allocated_bytes;
                done
            }
        }
    }
}
