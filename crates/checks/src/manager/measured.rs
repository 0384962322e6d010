//! The cost of a connection through the manager, and its savings, against a program that does its own TLS
//! with rustls. All figures of an object are measured in one run, in turns.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rejoin_manager::client::Manager;
use rejoin_manager::protocol::{Base64, Connect, EarlyData};
use rejoin_report::median_time;
use rejoin_testkit::house::House;
use rejoin_testkit::house::rustls_server::{self, provider};
use rejoin_testkit::proxy::delayed::SlowWay;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion, version,
};
use serde_json::{Value, json};

const ROUNDS: u64 = 300;
/// The orders in which three things are measured, round after round.
const ORDERS: [[u8; 3]; 6] = [[0, 1, 2], [2, 0, 1], [1, 0, 2], [2, 1, 0], [0, 2, 1], [1, 2, 0]];
const WARM_ROUNDS: u64 = 20;
const DELAYED_ROUNDS: usize = 9;
const DOWNLOAD_BYTES: u64 = 512 << 20;
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// A request for one byte.
const FIRST: [u8; 8] = 1_u64.to_be_bytes();
const NAME: &str = "server.test";

/// Measures everything, or with `quick` a quarter of it: an object for each figure.
pub(super) fn measure(quick: bool) -> Vec<Value> {
    let mut house = House::empty();
    house.threads = rejoin_manager::threads();
    house.start(house.settings());
    let part = |of: u64| if quick { of / 4 } else { of };
    let mut all: Vec<_> =
        [&version::TLS13, &version::TLS12].map(|tls| first_byte(part(ROUNDS), &house, tls)).into();
    all.push(throughput(part(DOWNLOAD_BYTES), &house));
    all.extend(delayed(&house));
    all
}

/// Starts a server whose clients ask, by eight bytes, for a number of bytes.
fn server(house: &House, tls: &'static SupportedProtocolVersion) -> u16 {
    let pair = {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).expect("a key");
        house.authority.issue_for(&key, &[NAME], |_| {})
    };
    let config = rustls_server::config(&pair, |config| {
        let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("PEM");
        let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
        let made = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[tls])
            .expect("a version")
            .with_no_client_auth()
            .with_single_cert(chain, key.expect("PEM"));
        *config = made.expect("a pair");
        config.max_early_data_size = 1_024;
        config.send_half_rtt_data = true;
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || serve(stream, config));
        }
    });
    port
}

fn serve(mut stream: TcpStream, config: Arc<ServerConfig>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut tls = ServerConnection::new(config).ok()?;
    let (mut asked, mut early) = ([0; 8], 0);
    let mut left = None;
    while tls.is_handshaking() {
        while tls.wants_write() {
            tls.write_tls(&mut stream).ok()?;
        }
        if !tls.is_handshaking() {
            break;
        }
        if tls.read_tls(&mut stream).ok()? == 0 {
            return None;
        }
        tls.process_new_packets().ok()?;
        if let Some(mut data) = tls.early_data() {
            early += data.read(&mut asked[early..]).ok()?;
        }
        // The client's own flight has not arrived yet.
        if early == asked.len() && left.is_none() {
            tls.writer().write_all(&[7]).ok()?;
            left = Some(u64::from_be_bytes(asked) - 1);
        }
    }
    let mut stream = StreamOwned::new(tls, stream);
    stream.read_exact(&mut asked[early..]).ok()?;
    let (mut left, piece) = (left.unwrap_or_else(|| u64::from_be_bytes(asked)), [7; 64 * 1024]);
    while left > 0 {
        let part = left.min(piece.len() as u64);
        stream.write_all(&piece[..part as usize]).ok()?;
        left -= part;
    }
    stream.conn.send_close_notify();
    stream.flush().ok()
}

/// A program's own rustls, which offers what the manager offers.
fn own(house: &House, resumes: bool) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(house.authority.pem().as_bytes());
    roots.add(authority.expect("PEM")).expect("an authority");
    let mut same = (*provider()).clone();
    same.kx_groups.insert(0, rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768);
    let config = ClientConfig::builder_with_provider(Arc::new(same));
    let config = config.with_protocol_versions(&[&version::TLS13, &version::TLS12]);
    let mut config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Arc::new(config)
}

fn own_connection(
    config: &Arc<ClientConfig>,
    port: u16,
) -> StreamOwned<ClientConnection, TcpStream> {
    let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server");
    tcp.set_nodelay(true).expect("a socket");
    let tls = ClientConnection::new(Arc::clone(config), NAME.try_into().expect("a name"));
    StreamOwned::new(tls.expect("a client"), tcp)
}

/// Asks for so many bytes and reads all, until the end: tickets are stored by then.
fn fetch(stream: &mut (impl Read + Write), bytes: u64) -> Duration {
    let since = Instant::now();
    stream.write_all(&bytes.to_be_bytes()).expect("taken");
    stream.flush().expect("taken");
    read_all(stream, bytes);
    since.elapsed()
}

fn read_all(stream: &mut impl Read, bytes: u64) {
    let (mut left, mut piece) = (bytes, vec![0; 256 * 1024]);
    while left > 0 {
        let read = stream.read(&mut piece).expect("bytes");
        assert!(read > 0);
        left -= read as u64;
    }
}

fn own_fetch(config: &Arc<ClientConfig>, port: u16) -> Duration {
    let since = Instant::now();
    let mut stream = own_connection(config, port);
    fetch(&mut stream, 1);
    let taken = since.elapsed();
    let _ = stream.read(&mut [0]);
    taken
}

fn wanted(port: u16, label: &str) -> Connect {
    let mut wanted = Connect::new(NAME.parse().expect("a name"), port.try_into().expect("a port"));
    wanted.addresses = vec![Ipv4Addr::LOCALHOST.into()];
    wanted.label = label.parse().expect("a label");
    wanted
}

fn managed_fetch(manager: &Manager, wanted: &Connect) -> Duration {
    let first: &[u8] = if wanted.early_data.is_some() { &[] } else { &FIRST };
    let since = Instant::now();
    let mut stream = manager.connect_sending(wanted, first).expect("a connection");
    if wanted.early_data.is_some() && stream.session().early_data != EarlyData::Accepted {
        stream.write_all(&FIRST).expect("taken");
    }
    read_all(&mut stream, 1);
    let taken = since.elapsed();
    let _ = stream.read(&mut [0]);
    taken
}

fn first_byte(rounds: u64, house: &House, tls: &'static SupportedProtocolVersion) -> Value {
    let port = server(house, tls);
    let label = format!("{:?}", tls.version);
    let (manager, wanted) = (Manager::at(house.socket()), wanted(port, &label));
    let (resumes, full) = (own(house, true), own(house, false));
    let (mut managed, mut own, mut in_full) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..WARM_ROUNDS + rounds {
        // The work that one leaves behind falls into the next one's time: each follows each of the others equally often.
        for who in ORDERS[round as usize % ORDERS.len()] {
            let (times, time) = match who {
                0 => (&mut managed, managed_fetch(&manager, &wanted)),
                1 => (&mut own, own_fetch(&resumes, port)),
                _ => (&mut in_full, own_fetch(&full, port)),
            };
            if round >= WARM_ROUNDS {
                times.push(time);
            }
        }
    }
    // The least that any question to the manager takes: it is accepted, read and answered.
    let asked = (0..rounds).map(|_| {
        own_fetch(&resumes, port);
        let since = Instant::now();
        manager.stats().expect("an answer");
        since.elapsed()
    });
    let asked = median_time(asked.collect());
    let (managed, own, in_full) = (median_time(managed), median_time(own), median_time(in_full));
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    json!({"what": "first_byte", "tls": label, "managed_us": us(managed), "asked_us": us(asked),
                       "own_resumed_us": us(own), "own_full_us": us(in_full)})
}

fn throughput(bytes: u64, house: &House) -> Value {
    let port = server(house, &version::TLS13);
    let config = own(house, true);
    let (manager, wanted) = (Manager::at(house.socket()), wanted(port, ""));
    let (mut managed, mut own) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let connection = manager.connect(&wanted);
        managed.push(fetch(&mut connection.expect("a connection"), bytes));
        own.push(fetch(&mut own_connection(&config, port), bytes));
    }
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e6;
    let (managed, own) = (rate(median_time(managed)), rate(median_time(own)));
    json!({"what": "relay", "tls": "TLSv1_3", "managed_mb_s": managed, "own_mb_s": own})
}

fn delayed(house: &House) -> [Value; 2] {
    [(&version::TLS12, false), (&version::TLS13, true)].map(|(tls, early)| {
        let port = SlowWay::to(server(house, tls), ROUND_TRIP).port;
        let label = format!("{:?}", tls.version);
        let (manager, plain) = (Manager::at(house.socket()), wanted(port, &label));
        let early_data = early.then(|| Base64(FIRST.to_vec().into()));
        let better = Connect { early_data, ..plain.clone() };
        let worse = Connect { share: early, ..plain.clone() };
        managed_fetch(&manager, &plain);
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..DELAYED_ROUNDS {
            with.push(managed_fetch(&manager, &better));
            without.push(managed_fetch(&manager, &worse));
        }
        let (with, without) = (median_time(with), median_time(without));
        let saved = without.saturating_sub(with).as_secs_f64() / ROUND_TRIP.as_secs_f64();
        json!({"what": "delayed", "tls": label, "round_trips_saved": saved})
    })
}
