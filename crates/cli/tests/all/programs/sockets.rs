//! Java programs on sockets of their own: with the provider they say what they say without it.

use std::path::Path;
use std::process::{Command, Stdio};

use rejoin_manager::client::Manager;
use rejoin_testkit::jvm::{Believes, Jvm};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::port::reserve;
use rejoin_testkit::process::Process;
use rejoin_testkit::stacks::{Counted, Stack, Tls, nginx_listening, started};
use rejoin_testkit::staples::GOOD;

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

/// Has one certificate for clients that tell a name, and another for those that tell none.
const HOSTS: &str = "\
import socket, ssl, sys, threading, time
unnamed, named = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
unnamed.load_cert_chain(sys.argv[1], sys.argv[2])
named.load_cert_chain(sys.argv[3], sys.argv[4])
def told(connection, name, context):
    if name:
        connection.context = named
unnamed.sni_callback = told
def serve(client):
    requests = 0
    try:
        server = unnamed.wrap_socket(client, server_side=True)
        while (asked := server.recv(65536)):
            requests += 1
            time.sleep(3 if b'/silent' in asked else 0)
            server.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 1\\r\\n\\r\\n%d' % requests)
        server.close()
    except OSError:
        pass
listener = socket.create_server(('127.0.0.1', 0))
port = listener.getsockname()[1]
def accept(listener):
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
try:
    other = socket.create_server(('::1', port), family=socket.AF_INET6)
    threading.Thread(target=accept, args=(other,), daemon=True).start()
except OSError:
    pass
print(port, flush=True)
accept(listener)
";

/// They reach the same virtual hosts, where they give a name, give none, or leave that to the JDK.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_programs_tell_servers_the_names_that_they_tell() {
    let mut alone = start("sockets-names-alone");
    alone.kill();
    let mut there = start("sockets-hosts");
    // A session of another name shows the certificate of that one.
    there.set("across_names = \"never\"");
    for (managed, is_there) in [(there, true), (alone, false)] {
        let Some(jvm) = Jvm::new(&managed, "sockets-hosts") else { return };
        let names = ["a.test", "x_y.b.test", "localhost", "127.0.0.1", "::1"];
        let [unnamed, named] = ["unnamed", "named"].map(|file| {
            let (certificate, key, _) = certify(&managed, file, &[&[file], &names[..]].concat());
            [certificate, key]
        });
        let mut python = Command::new("python3");
        python.args(["-c", HOSTS]).args([unnamed, named].concat()).stdout(Stdio::piped());
        let mut server = Process::start(&mut python);
        let ports = [server.lines().find(|line| line.parse().ok()), reserve()];
        let hosts = "127.0.0.1 localhost a.test a.test. x_y.b.test\n";
        for option in ["-Dx=y", "-Djsse.enableSNIExtension=false"] {
            let names = |with| jvm.names(with, &[option], hosts, ports);
            let without = names(false);
            assert!(without.1, "{}", without.0);
            // Full handshakes first, then resumptions.
            for _ in 0..2 {
                assert_eq!(names(true), without, "{option}");
            }
        }
        assert!(!is_there || handshakes(&managed).resumed > 0);
    }
}

/// Sockets take and refuse the same as the JDK's, at the same call.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_sockets_refuse_what_the_jdks_refuse() {
    let managed = start("sockets-probe");
    let Some(jvm) = Jvm::new(&managed, "sockets-probe") else { return };
    let server = Stack::Nginx.start(&managed, Tls::V13).expect("make test installs nginx");
    let without = jvm.probe(false, server.port);
    assert!(without.1 && without.0.contains("creates sessions: false"), "{}", without.0);
    assert_eq!(jvm.probe(true, server.port), without);
    assert_eq!(handshakes(&managed).full, 1);
}

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

/// The manager does not pass the server's OCSP response on.
#[test]
#[ignore = "slow: needs a JDK; make test-all"]
fn java_programs_see_stapled_responses() {
    let managed = start("sockets-staple");
    let Some(jvm) = Jvm::new(&managed, "sockets-staple") else { return };
    let (_server, port) = stapling(&managed);
    let words = ["revocation", "times=4"];
    for (with, counted) in [
        (false, Counted::default()),
        // The first connection of a context is the manager's, and the program refuses it.
        (true, Counted { full: 1, resumed: 0 }),
        (true, Counted { full: 1, resumed: 1 }),
    ] {
        assert_eq!(jvm.visit(with, &[], port, &words), well(4), "{with}");
        assert_eq!(handshakes(&managed), counted, "{with}");
    }
    // An engine cannot begin again: the program's first connection by one fails, unless the JVM says what will be asked.
    let url = format!("https://localhost:{port}/");
    let ask = |with, how| jvm.ask(with, Believes::TheAuthority, &[&url, "1.1", "revocation", how]);
    assert_eq!(ask(false, "in-turn=3"), ("3 of 3".to_owned(), true));
    assert_eq!(ask(true, "in-turn=3"), ("2 of 3".to_owned(), true));
    let asks = ["-Dcom.sun.net.ssl.checkRevocation=true"];
    assert_eq!(jvm.ask_with(true, &asks, &[&url, "1.1", "in-turn=3"]), ("3 of 3".to_owned(), true));
}

const STAPLING: &str = "\
daemon off; master_process off; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 512; }
http {
  access_log off; ssl_protocols TLSv1.3; ssl_stapling on; ssl_stapling_file RESPONSE;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  server { listen 127.0.0.1:PORT ssl; ssl_certificate CERTIFICATE; ssl_certificate_key KEY; return 200 \"a page\"; }
}
";

/// nginx, which staples the OCSP response of its certificate.
fn stapling(managed: &Managed) -> (Process, u16) {
    let (certificate, key, _) = certify(managed, "stapled", &["localhost"]);
    let (folder, port) = (managed.file("stapling"), reserve());
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut text = STAPLING.replace("FOLDER", &folder).replace("PORT", &port.to_string());
    text = text.replace("RESPONSE", &managed.staple(&certificate, (GOOD, &["-ndays", "2"])));
    text = text.replace("CERTIFICATE", &certificate).replace("KEY", &key);
    let configuration = Path::new(&folder).join("nginx.conf");
    std::fs::write(&configuration, text).expect("a file");
    (nginx_listening(&configuration, port).expect("make test installs nginx"), port)
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
