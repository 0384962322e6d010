//! The C API of clients: a C program, a real manager and real servers.

use rejoin_testkit::shipped::{library_with_symbols, rejoin};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::api::compile;
use rejoin_testkit::manager::Managed;
use rejoin_testkit::site::Site;

/// The example, and a manager.
struct Client {
    managed: Managed,
    program: PathBuf,
}

impl Client {
    fn new(name: &str) -> Self {
        let managed = Managed::start(name);
        let program = PathBuf::from(managed.file("client"));
        compile("examples/client.c", &program);
        Self { managed, program }
    }

    fn fetch(&self, port: u16, manager: &str) -> Output {
        let mut client = Command::new(&self.program);
        client.args(["localhost", &port.to_string(), manager]);
        client.output().expect("it runs")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts `rejoin serve` with a certificate of the manager's authority for these names.
fn serve(site: &mut Site, managed: &Managed, names: &[&str]) -> u16 {
    let (certificate, key) = managed.certify(names);
    let address: SocketAddr = site.address();
    let program = rejoin().display().to_string();
    let address = address.to_string();
    let words = ["serve", "--listen", &address, "--certificate", &certificate, "--key", &key];
    site.start(&program, &words).expect("it is built");
    site.port
}

#[test]
fn the_example_shares_sessions() {
    let client = Client::new("c-example");
    let mut site = Site::new("client-example");
    site.environment.clear();
    let port = serve(&mut site, &client.managed, &["localhost"]);
    for begin in ["full handshake, TLSv1.3", "resumed, TLSv1.3", "resumed, TLSv1.3"] {
        let output = client.fetch(port, &client.managed.socket());
        let told = text(&output.stderr);
        assert!(output.status.success() && told.starts_with(begin), "{told}");
        assert!(text(&output.stdout).starts_with("HTTP/1.1 200"), "{}", text(&output.stdout));
    }
}

#[test]
fn what_fails_has_a_status() {
    let client = Client::new("c-statuses");
    let mut site = Site::new("client-statuses");
    site.environment.clear();
    let other = serve(&mut site, &client.managed, &["other.test"]);
    let socket = client.managed.socket();
    for (port, manager, status, word) in [
        (other, socket.as_str(), 18, "certificate not valid"),
        (rejoin_testkit::port::reserve(), socket.as_str(), 15, "unreachable"),
        (other, "/nowhere/m.sock", 14, "`rejoin manager` is not running"),
        (0, socket.as_str(), 1, "port = 0"),
    ] {
        let output = client.fetch(port, manager);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{told}");
        assert!(told.contains(word) && told.lines().count() == 1, "{told}");
    }
}

/// A server that sends half of its answer, and closes without a close_notify: PORT CERTIFICATE KEY
const BREAKS_OFF: &str = "\
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
while True:
    try:
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.sendall(b'half of it')
    except OSError:
        pass
";

#[test]
fn a_connection_that_breaks_off_has_a_status() {
    let client = Client::new("c-truncated");
    let mut site = Site::new("client-truncated");
    site.environment.clear();
    let (certificate, key) = client.managed.certify(&["localhost"]);
    let port = site.port.to_string();
    if site.start("python3", &["-c", BREAKS_OFF, &port, &certificate, &key]).is_none() {
        return;
    }
    for _ in 0..20 {
        let output = client.fetch(site.port, &client.managed.socket());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(19), "{told}");
        assert!(told.contains(", TLSv1.3, "), "{told}");
    }
}

/// Servers load this library, so it must bring no TLS library and no runtime of its own. Ticket keys are derived and
/// encrypted with AWS-LC's primitives.
#[test]
fn the_library_brings_no_other_tls_library() {
    let listed =
        Command::new("nm").arg("--defined-only").arg(library_with_symbols("librejoin.so")).output();
    let listed = text(&listed.expect("nm is installed").stdout);
    assert!(listed.contains("rejoin_client"), "the symbols are stripped: nothing can be said");
    for other in ["rustls", "webpki", "tokio"] {
        let found: Vec<&str> = listed
            .lines()
            .filter(|line| line.contains(other) && !line.contains("rustls_pki_types"))
            .collect();
        assert!(found.is_empty(), "{other}: {found:?}");
    }
}
