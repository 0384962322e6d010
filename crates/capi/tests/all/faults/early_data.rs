//! Early data (RFC 8446, section 8). OpenSSL accepts it once, by a cache of its own.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::sync::MutexGuard;

use openssl::ssl::{SslSession, SslStream};

use super::store;
use rejoin_testkit::site::{Client, Site, Versions};

#[test]
fn early_data_is_accepted_once() {
    for stateful in ["no", "yes"] {
        let mut site = Site::new(&format!("fault-early-{stateful}"));
        site.configure(&format!("stateful = {stateful}"));
        let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
        let server = ["openssl", "s_server", "-early_data", "-accept", &port, "-cert", &pair];
        let words =
            [&["-c", "exec \"$@\" >received", "sh"], &server[..], &["-key", &pair]].concat();
        site.start("sh", &words).expect("installed");
        for versions in [Versions::Tls12, Versions::Tls13] {
            let client = site.client(versions);
            assert!(!come(&client, "nothing"), "{stateful} {versions:?}");
            // OpenSSL's client would use the session only once.
            let first = session(&client).as_ref().and_then(|first| first.to_der().ok());
            assert!(come(&client, "once"), "{stateful} {versions:?}");
            let first = SslSession::from_der(&first.expect("a session")).ok();
            let second = std::mem::replace(&mut *session(&client), first);
            assert_eq!(come(&client, "once"), versions == Versions::Tls12, "{stateful}");
            *session(&client) = second;
            assert!(come(&client, "later"), "{stateful} {versions:?}");
        }
        assert_eq!(store(&site).cache().counters().stored, 0, "OpenSSL keeps them");
        site.stop();
        let received = fs::read_to_string(site.file("received")).expect("text");
        let times = ["once", "later"].map(|data| received.matches(data).count());
        assert_eq!(times, [1, 1], "{stateful}: {received}");
    }
}

fn session(client: &Client) -> MutexGuard<'_, Option<SslSession>> {
    client.session.lock().expect("no panic")
}

/// Connects, with early data if the session allows it. Returns true if the session was resumed.
fn come(client: &Client, early_data: &str) -> bool {
    let stream = TcpStream::connect(client.address).expect("it listens");
    let ssl = client.ssl();
    let mut ssl = ssl.expect("a connection");
    ssl.set_connect_state();
    let mut tls = SslStream::new(ssl, stream).expect("a stream");
    if tls.ssl().session().is_some_and(|session| session.max_early_data() > 0) {
        tls.write_early_data(early_data.as_bytes()).expect("sent");
    }
    tls.do_handshake().expect("a handshake");
    // Sessions come before the server's own.
    let _ = tls.shutdown();
    let _ = tls.read_to_end(&mut Vec::new());
    tls.ssl().session_reused()
}
