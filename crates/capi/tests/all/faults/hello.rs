//! Handwritten ClientHellos: with more sessions than any client has, and with random bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{clients, counters, lines_of_ours, nginx};
use rejoin_testkit::site::{Client, Site, Versions};

/// The longest wait for a first answer.
const DEADLINE: Duration = Duration::from_secs(2);

/// Returns the server's answer to a handshake message, until it closes or sends nothing more.
fn answer_to(address: SocketAddr, message: &[u8]) -> Vec<u8> {
    let records = message.chunks(16_000).flat_map(record);
    exchange(address, &records.collect::<Vec<_>>())
}

fn record(part: &[u8]) -> Vec<u8> {
    [&[0x16, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat()
}

fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    // A server that has seen enough may close before all is sent.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Makes a ClientHello that offers unknown sessions: identities for TLS 1.3, or an id for TLS 1.2.
fn client_hello(versions: &[u8], legacy_id: &[u8], identities: &[[u8; 32]]) -> Vec<u8> {
    let long = |bytes: Vec<u8>| [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
    let extension = |kind: u16, bytes: Vec<u8>| [&kind.to_be_bytes()[..], &long(bytes)].concat();
    let identity = |id: &[u8; 32]| [long(id.to_vec()), vec![0; 4]].concat();
    let offered = long(identities.iter().flat_map(identity).collect());
    let binders = long(identities.iter().flat_map(|_| [vec![32], vec![0; 32]].concat()).collect());
    let key_share = [&[0, 29][..], &long(vec![9; 32])].concat();
    let name = [&[0][..], &long(b"localhost".to_vec())].concat();
    let mut extensions = vec![
        extension(0, long(name)),
        extension(43, [&[versions.len() as u8], versions].concat()),
        extension(10, vec![0, 2, 0, 29]),
        extension(13, vec![0, 4, 8, 4, 4, 3]),
        extension(51, long(key_share)),
        extension(45, vec![1, 1]),
    ];
    if !identities.is_empty() {
        extensions.push(extension(41, [offered, binders].concat()));
    }
    let id = [&[legacy_id.len() as u8], legacy_id].concat();
    let suites = vec![0, 4, 0x13, 1, 0xc0, 0x2b];
    let body =
        [vec![3, 3], vec![7; 32], id, suites, vec![1, 0], long(extensions.concat())].concat();
    let length = (body.len() as u32).to_be_bytes();
    [&[1][..], &length[1..], &body].concat()
}

fn made_up(identities: usize) -> Vec<[u8; 32]> {
    (0..identities).map(|number| [number as u8 ^ 0x5a; 32]).collect()
}

const TLS_1_3: [u8; 2] = [3, 4];
const TLS_1_2: [u8; 2] = [3, 3];

/// A server with Rejoin and one without answer the same.
#[test]
fn nine_hundred_identities_cost_no_lookup() {
    let Some(site) = nginx("identities", "") else { return };
    let without = without_rejoin("identities-without");
    let hello = client_hello(&TLS_1_3, &[], &made_up(900));
    assert!(hello.len() > 63_000);
    for rounds in 1..=3 {
        let start = Instant::now();
        let with = answer_to(site.address(), &hello);
        assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
        let without = answer_to(without.address(), &hello);
        // A record's type and version, and a message's type: the parts that do not depend on the random.
        assert_eq!((with.get(..3), with.get(5)), (without.get(..3), without.get(5)));
        assert!(with.len() > 500 && with.len().abs_diff(without.len()) < 16, "no ServerHello");
        let counters = counters(&site);
        assert_eq!((counters.forged, counters.hits + counters.misses), (900 * rounds, 0));
    }
    clients(&site).iter_mut().for_each(|client| assert!(!client.connect() && client.connect()));
    assert_eq!(lines_of_ours(&site), [""; 0]);
}

/// An attacker saw an identity on the wire, and does not know its secret. With the session's hash this is an error, as
/// without Rejoin; with another hash the session is found each time, and not resumed.
#[test]
fn somebody_elses_identity_again_and_again_costs_its_owner_nothing() {
    let Some(site) = nginx("identity", "") else { return };
    let mut owner = site.client(Versions::Tls13);
    for (suite, answer) in [([0x13, 2], ALERT), ([0x13, 1], HANDSHAKE)] {
        owner.connect();
        let genuine = identity_of(&owner).expect("an id, and no session in a ticket");
        let mut hello = client_hello(&TLS_1_3, &[], &[genuine; 900]);
        hello[SUITE..SUITE + 2].copy_from_slice(&suite);
        let (before, start) = (counters(&site), Instant::now());
        assert_eq!(answer_to(site.address(), &hello).first(), Some(&answer));
        assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
        let after = counters(&site);
        assert_eq!((after.hits - before.hits, after.forged + after.misses), (1, 0), "one arrival");
        assert!(owner.connect(), "its owner lost it");
    }
}

/// Returns the identity that the server gave the client.
fn identity_of(client: &Client) -> Option<[u8; 32]> {
    /// The head of field 10 in OpenSSL's encoding of a session, an octet string of 32 bytes.
    const FIELD: [u8; 4] = [0xaa, 34, 4, 32];
    let session = client.session.lock().expect("no panic");
    let der = session.as_ref()?.to_der().ok()?;
    let at = der.windows(FIELD.len()).position(|bytes| bytes == FIELD)?;
    der.get(at + FIELD.len()..)?.first_chunk().copied()
}

/// The types of records.
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;
/// Where the first cipher suite is in [`client_hello`] without a legacy id.
const SUITE: usize = 4 + 2 + 32 + 1 + 2;

/// Starts nginx with the system's configuration of OpenSSL.
fn without_rejoin(name: &str) -> Site {
    let site = nginx(name, "").expect("installed");
    std::fs::write(site.file("openssl.cnf"), ".include /etc/ssl/openssl.cnf\n").expect("a file");
    let mut site = site;
    site.stop();
    super::start_nginx(&mut site).expect("installed");
    site
}

/// Clients of TLS 1.3 send a random id, to look like those of TLS 1.2 (RFC 8446, appendix D.4).
#[test]
fn random_ids_for_a_server_of_tls_1_2_cost_no_lookup() {
    let Some(mut site) = nginx("legacy-ids", "") else { return };
    let configuration = std::fs::read_to_string(site.file("nginx.conf")).expect("there");
    site.write("nginx.conf", &configuration.replace("TLSv1.2 TLSv1.3", "TLSv1.2"));
    site.stop();
    super::start_nginx(&mut site).expect("installed");
    for number in 0..50 {
        let answer = answer_to(
            site.address(),
            &client_hello(&[TLS_1_3, TLS_1_2].concat(), &[number; 32], &[]),
        );
        assert_eq!(answer.get(5), Some(&2), "no ServerHello");
    }
    let counters = counters(&site);
    assert_eq!((counters.forged, counters.hits + counters.misses), (50, 0));
}

#[test]
fn two_hundred_client_hellos_of_garbage() {
    let Some(site) = nginx("garbage", "") else { return };
    let mut state = 7_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let sound = client_hello(&[TLS_1_3, TLS_1_2].concat(), &[3; 32], &made_up(5));
    for round in 0..200 {
        let mut bytes = match round % 4 {
            // Random from the first byte on, after the record's header, or after the message's.
            0 => (0..random() % 2_000).map(|_| random() as u8).collect(),
            1 => record(&(0..random() % 2_000).map(|_| random() as u8).collect::<Vec<_>>()),
            _ => record(&sound),
        };
        if round % 4 > 1 {
            (0..=random() % 8).for_each(|_| {
                let at = 5 + random() % (bytes.len() - 5);
                bytes[at] = random() as u8;
            });
            bytes.truncate(if round % 8 < 4 { bytes.len() } else { random() % bytes.len() });
        }
        exchange(site.address(), &bytes);
    }
    clients(&site).iter_mut().for_each(|client| assert!(!client.connect() && client.connect()));
    let counters = counters(&site);
    assert!(counters.forged > 0 && counters.misses == 0, "{counters:?}");
    assert_eq!(lines_of_ours(&site), [""; 0]);
    assert!(super::store(&site).check().iter().all(Result::is_ok));
}
