//! The cost of a lookup and a store with a real session, serialised and read again.
//!
//! Rounds have a median each; the least disturbed one counts, for others may use the machine.

use std::hint::black_box;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslOptions, SslSession,
    SslSessionCacheMode, SslVersion,
};
use rejoin_cache::{Capacity, ContextTag, IdSeal, NewSession, SecretBytes, SessionId, Settings};
use rejoin_openssl::session_bytes;
use rejoin_store::{Store, now_ms};

use super::{Effort, Found, median};
use rejoin_testkit::site::Site;

const MOST_US: f64 = 6.0;
const SESSIONS: u64 = 20_000;
const CLIENTS: u64 = 18_000;
const PAIRS: usize = 20_000;
const CONTEXT: ContextTag = ContextTag(1);
const LABEL: &[u8] = b"\x06rejoin\0localhost";

pub(crate) fn microseconds(effort: Effort) -> Option<Found> {
    let site = Site::new("operation");
    let session = session(&site);
    let settings = Settings::new(Capacity::Sessions(SESSIONS));
    let store = Store::open(Path::new(Store::FOLDER), &site.cache(), Some(&settings)).ok()?;
    let seal = IdSeal::new(*store.id_key());
    (0..CLIENTS).for_each(|client| insert(&store, &seal, client, &session));
    let mut rounds: Vec<Round> = (0..if effort.quick { 3 } else { 20 })
        .map(|_| Round::of(&store, &seal, &session))
        .collect();
    rounds.sort_by(|one, other| one.both.total_cmp(&other.both));
    let Round { get, insert, both, openssl } = rounds[0];
    let slowest = rounds[rounds.len() - 1].both;
    let bytes = session.to_der().ok()?.len();
    Some(Found {
        figure: format!(
            "{both:.2} (get {get:.2}, insert {insert:.2}, {bytes} bytes; OpenSSL's own i2d and d2i \
             {openssl:.2}; most disturbed {slowest:.2})"
        ),
        holds: both <= MOST_US,
    })
}

/// Medians of many pairs, in microseconds.
struct Round {
    get: f64,
    insert: f64,
    both: f64,
    /// The time of OpenSSL's i2d and d2i of the same session, without a cache.
    openssl: f64,
}

impl Round {
    fn of(store: &Store, seal: &IdSeal, session: &SslSession) -> Self {
        let [mut gets, mut inserts, mut both, mut openssl] = [const { Vec::new() }; 4];
        let mut client = 1;
        for _ in 0..PAIRS {
            // A generator of full period over the clients.
            client = (client * 6_301 + 17) % CLIENTS;
            let began = Instant::now();
            get(store, seal, client);
            let found = Instant::now();
            insert(store, seal, client, session);
            let ended = Instant::now();
            gets.push((found - began).as_secs_f64() * 1e6);
            inserts.push((ended - found).as_secs_f64() * 1e6);
            both.push((ended - began).as_secs_f64() * 1e6);
            let began = Instant::now();
            let bytes = session.to_der().expect("serialised");
            black_box(SslSession::from_der(&bytes).expect("a session"));
            openssl.push(began.elapsed().as_secs_f64() * 1e6);
        }
        Self {
            get: median(gets),
            insert: median(inserts),
            both: median(both),
            openssl: median(openssl),
        }
    }
}

/// Does the work of a client that presents its id.
fn get(store: &Store, seal: &IdSeal, client: u64) {
    let (id, mut value) = (id(client), SecretBytes::default());
    let arrival = store.cache().get(now_ms(), &id, CONTEXT, &mut value);
    assert!(arrival.found, "client {client} is not found");
    let value = seal.open_value(&id, LABEL, &value).expect("as it was stored");
    black_box(SslSession::from_der(value).expect("a session"));
}

/// Does the work of a handshake that has made a session.
fn insert(store: &Store, seal: &IdSeal, client: u64, session: &SslSession) {
    let (now_ms, id) = (now_ms(), id(client));
    let mut value = session_bytes(session).expect("serialised");
    seal.seal_value(&id, LABEL, &mut value);
    let new = NewSession::new(id, &value, now_ms + 86_400_000, CONTEXT);
    store.cache().insert(now_ms, &new).expect("there is room");
}

fn id(client: u64) -> SessionId {
    let mut id = [0; SessionId::LONGEST];
    id[..8].copy_from_slice(&client.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    SessionId::new(&id).expect("32 bytes")
}

/// A session that a server of TLS 1.2 would keep.
fn session(site: &Site) -> SslSession {
    let made = Arc::new(Mutex::new(None));
    let server = server(site, &made);
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let client = thread::spawn(move || {
        let client = SslContextBuilder::new(SslMethod::tls_client()).expect("a context").build();
        let mut client = Ssl::new(&client).expect("a client");
        client.set_hostname("localhost").expect("a name");
        client.connect(theirs).expect("a handshake");
    });
    Ssl::new(&server).expect("a server").accept(ours).expect("a handshake");
    client.join().expect("no panic");
    let session = made.lock().expect("no panic").take();
    session.expect("a handshake makes a session")
}

fn server(site: &Site, made: &Arc<Mutex<Option<SslSession>>>) -> SslContext {
    let mut server = SslContextBuilder::new(SslMethod::tls_server()).expect("a context");
    server.set_certificate_chain_file(site.file("cert.pem")).expect("a certificate");
    server.set_private_key_file(site.file("key.pem"), SslFiletype::PEM).expect("a key");
    server.set_max_proto_version(Some(SslVersion::TLS1_2)).expect("a version");
    server.set_options(SslOptions::NO_TICKET);
    server.set_session_cache_mode(SslSessionCacheMode::SERVER);
    server.set_session_id_context(b"rejoin").expect("a context");
    let made = Arc::clone(made);
    server.set_new_session_callback(move |_, session| {
        *made.lock().expect("no panic") = Some(session);
    });
    server.build()
}
