//! Java programs on sockets of their own: with the provider they say what they say without it.

use std::process::{Command, Stdio};

use rejoin_manager::client::Manager;
use rejoin_testkit::jvm::Jvm;
use rejoin_testkit::manager::Managed;
use rejoin_testkit::port::reserve;
use rejoin_testkit::process::Process;
use rejoin_testkit::stacks::{Counted, Stack, Tls, started};

use super::start;
use crate::clients::pins::{certify, haproxy};

const VISITS: usize = 8;
const UPLOADS: usize = 100;
/// Says how each connection ended. An end without `close_notify` is an error.
const HEARER: &str = "\
import os, socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
def hear(client):
    heard = 0
    try:
        server = context.wrap_socket(client, server_side=True, suppress_ragged_eofs=False)
        for piece in iter(lambda: server.recv(65536), b''):
            heard += len(piece)
        os.write(1, f'{heard} clean\\n'.encode())
        server.close()
    except OSError as error:
        os.write(1, f'{heard} {error}\\n'.encode())
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=hear, args=(listener.accept()[0],), daemon=True).start()
";

#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_contexts_offer_what_their_names_say() {
    let managed = start("sockets-names");
    let Some(jvm) = Jvm::new(&managed, "sockets-names") else { return };
    let without = jvm.protocols(false);
    assert!(without.1 && without.0.contains("TLSv1.2: [TLSv1.2]"), "{}", without.0);
    assert_eq!(jvm.protocols(true), without);
}

/// A resumption shows the old chain, which a pin refuses. Nothing has been said by then: the JDK sees the new one.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_sockets_with_a_pin_see_a_key_that_changed() {
    for tls in Tls::ALL {
        let name = format!("sockets-pin-{}", tls.number());
        let managed = start(&name);
        let Some(jvm) = Jvm::new(&managed, &name) else { return };
        let (old, old_key, _) = certify(&managed, "old", &["localhost"]);
        let (new, new_key, new_pin) = certify(&managed, "new", &["localhost"]);
        let port = reserve();
        let Some(mut server) = haproxy(&managed, tls, port, (&old, &old_key)) else {
            return eprintln!("skipped: a key that changes (needs haproxy)");
        };
        assert_eq!(jvm.visit(true, &[], port, &[]), well(1));
        server.kill();
        let _server = haproxy(&managed, tls, port, (&new, &new_key));
        let times = format!("times={VISITS}");
        let pin = format!("pin={new_pin}");
        for with in [false, true] {
            assert_eq!(
                jvm.visit(with, &[], port, &[&pin, &times]),
                well(VISITS),
                "{tls:?}, {with}"
            );
        }
        assert!(handshakes(&managed).resumed > 0, "{tls:?}: the ticket keys did not stay");
    }
}

/// The manager would bypass it.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_sockets_go_through_the_proxy_of_the_jvm() {
    let managed = start("sockets-proxy");
    let Some(jvm) = Jvm::new(&managed, "sockets-proxy") else { return };
    let server = Stack::Nginx.start(&managed, Tls::V13).expect("make test installs nginx");
    // Nobody listens there.
    let port = format!("-DsocksProxyPort={}", reserve());
    let proxy = ["-DsocksProxyHost=127.0.0.1", &port, "-DsocksNonProxyHosts="];
    let without = jvm.visit(false, &proxy, server.port, &[]);
    assert!(without.0.contains("SOCKS"), "{}", without.0);
    assert_eq!(jvm.visit(true, &proxy, server.port, &[]), without);
    assert_eq!(jvm.visit(true, &[], server.port, &[]), well(1));
}

/// The manager has no such limits.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_sockets_keep_to_the_limits_of_the_jvm() {
    let managed = start("sockets-limits");
    let Some(jvm) = Jvm::new(&managed, "sockets-limits") else { return };
    let (_server, port) = s_server(&managed, &["-groups", "X25519"]);
    let disabled = |name: &str, what: &str| {
        let file = managed.file(name);
        let usual = "SSLv3, TLSv1, TLSv1.1, RC4, DES, MD5withRSA, NULL, anon";
        std::fs::write(&file, format!("jdk.tls.disabledAlgorithms={usual}, {what}\n"))
            .expect("a file");
        format!("-Djava.security.properties={file}")
    };
    for limit in [
        "-Djdk.tls.namedGroups=secp521r1",
        "-Djdk.tls.client.SignatureSchemes=rsa_pss_rsae_sha256",
        &disabled("group", "x25519"),
        &disabled("key-exchange", "XDH"),
        &disabled("scheme", "ecdsa_secp256r1_sha256"),
        &disabled("signature", "SHA256withECDSA"),
        &disabled("size", "EC keySize < 384"),
    ] {
        let without = jvm.visit(false, &[limit], port, &[]);
        assert!(without.0.contains("Exception"), "{limit}: {}", without.0);
        assert_eq!(jvm.visit(true, &[limit], port, &[]), without, "{limit}");
    }
    assert_eq!(handshakes(&managed).full, 0);
    // This is the manager's limit, too.
    assert_eq!(jvm.visit(true, &[&disabled("other", "ffdhe2048")], port, &[]), well(1));
    assert_eq!(handshakes(&managed).full, 1);
}

/// The server is told that it has all, also if the program ends right after that.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_sockets_end_what_they_upload() {
    let managed = start("sockets-upload");
    let Some(jvm) = Jvm::new(&managed, "sockets-upload") else { return };
    let (certificate, key) = managed.certify(&["localhost"]);
    let mut python = Command::new("python3");
    python.args(["-c", HEARER, &certificate, &key]).stdout(Stdio::piped());
    let mut server = Process::start(&mut python);
    let said = server.lines();
    let port = said.find(|line| line.parse().ok());
    for (with, times, bytes) in [
        (false, 10, 1_000),
        (true, UPLOADS, 1_000),
        (true, 10, 1_000_000),
        (true, 1, 1),
        (true, 1, 1),
    ] {
        assert_eq!(jvm.upload(with, port, times, bytes), (String::new(), true));
        let heard: Vec<_> = (0..times).filter_map(|_| said.next_line()).collect();
        assert_eq!(heard, vec![format!("{bytes} clean"); times], "{with}");
    }
    assert_eq!(handshakes(&managed).full + handshakes(&managed).resumed, UPLOADS as u64 + 12);
}

/// The manager decides about its own connections; the JDK's have the options.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_sockets_have_the_options_that_were_set() {
    let mut alone = start("sockets-options-alone");
    alone.kill();
    for managed in [start("sockets-options"), alone] {
        let Some(jvm) = Jvm::new(&managed, "sockets-options") else { return };
        let server = Stack::Nginx.start(&managed, Tls::V13).expect("make test installs nginx");
        let without = jvm.options(false, server.port);
        assert!(without.1 && without.0.contains("more is here: true"), "{}", without.0);
        assert_eq!(jvm.options(true, server.port), without);
    }
}

/// OpenSSL's server with a certificate for `localhost`.
fn s_server(managed: &Managed, words: &[&str]) -> (Process, u16) {
    let (certificate, key) = managed.certify(&["localhost"]);
    let mut server = Command::new("openssl");
    server.args(["s_server", "-www", "-accept", "127.0.0.1:0", "-cert", &certificate]);
    server.args(["-key", &key]).args(words);
    let port = |line: &str| line.strip_prefix("ACCEPT 127.0.0.1:")?.parse::<u16>().ok();
    started(&mut server, port).expect("openssl is installed")
}

fn well(times: usize) -> (String, bool) {
    (vec!["well: true"; times].join("\n"), true)
}

fn handshakes(managed: &Managed) -> Counted {
    let counted = Manager::at(managed.socket()).stats().expect("it counts").handshakes;
    Counted { full: counted.full, resumed: counted.resumed }
}
