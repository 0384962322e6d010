//! The example servers, as processes that share a store.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rejoin_cache::Counters;
use rejoin_store::Store;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::Process;
use rejoin_testkit::shipped;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use crate::pair::{Site, VERSIONS};

struct Example {
    process: Process,
    address: String,
}

impl Example {
    fn start(name: &str, folder: &Folder) -> Self {
        Self::run(Command::new(shipped::example(name)), folder)
    }

    /// Starts it with so many descriptors at most.
    fn with_descriptors(most: u32, name: &str, folder: &Folder) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\"")]);
        command.arg(shipped::example(name));
        Self::run(command, folder)
    }

    fn run(mut command: Command, folder: &Folder) -> Self {
        command.arg(folder.path()).args([folder.file("server.pem"), folder.file("server.key")]);
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let address = process.lines().next_line().expect("an address");
        Self { process, address }
    }

    /// Ends it, and returns what it wrote to its standard error.
    fn errors(mut self) -> Vec<String> {
        self.process.kill();
        let errors = self.process.stderr.take().expect("piped, and not taken yet");
        BufReader::new(errors).lines().collect::<Result<_, _>>().expect("text")
    }

    fn get(&self, client: &Arc<ClientConfig>) -> (HandshakeKind, String) {
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(Arc::clone(client), name).expect("a client");
        let tcp = TcpStream::connect(&self.address).expect("a server");
        let mut stream = StreamOwned::new(tls, tcp);
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("a server");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        (stream.conn.handshake_kind().expect("a handshake"), page)
    }
}

/// Gets a page from two processes, and from one that is started later. Returns the store's counts.
fn resumes_everywhere(name: &str) -> Vec<(Counters, Store)> {
    VERSIONS
        .iter()
        .map(|version| {
            let (folder, site) = (Folder::new(), Site::new(version));
            site.write_server(&folder.path().join("server"));
            let client = site.client(None);
            let [mut one, mut two] = [(); 2].map(|()| Example::start(name, &folder));
            let (kind, page) = one.get(&client);
            assert!(page.ends_with("hello\n"), "{page}");
            assert!(!page.contains("next-connect"), "{page}");
            assert_eq!(kind, HandshakeKind::Full, "{version:?}");
            assert_eq!(two.get(&client).0, HandshakeKind::Resumed, "{version:?}");
            one.process.kill();
            two.process.kill();
            let three = Example::start(name, &folder);
            assert_eq!(three.get(&client).0, HandshakeKind::Resumed, "{version:?}");
            let store = Store::open(&folder, &name.parse().expect("a name"), None);
            let store = store.expect("a store");
            (store.cache().counters(), store)
        })
        .collect()
}

#[test]
fn the_axum_server_resumes_everywhere() {
    for (counters, _) in resumes_everywhere("axum") {
        assert_eq!((counters.full_handshakes, counters.resumed_handshakes), (1, 2));
        assert_eq!(counters.hits, 2);
        // The hint of each response, a minute, was far from when the client came.
        assert_eq!(counters.predictions, 2);
        assert!(counters.prediction_error_ms > 60_000, "{counters:?}");
    }
}

#[test]
fn the_hyper_server_resumes_everywhere() {
    for (counters, store) in resumes_everywhere("hyper") {
        assert_eq!((counters.full_handshakes, counters.resumed_handshakes), (1, 2));
        let tickets = store.ticket_counters();
        assert!(tickets.contains(&("tickets_known", 2)), "{tickets:?}");
        assert!(tickets.contains(&("tickets_unknown", 0)), "{tickets:?}");
    }
}

#[test]
fn a_store_that_is_cut_short_is_told_in_one_line_and_fails_nobody() {
    for name in ["axum", "hyper"] {
        let (folder, site) = (Folder::new(), Site::new(VERSIONS[0]));
        site.write_server(&folder.path().join("server"));
        let server = Example::start(name, &folder);
        let client = site.client(None);
        assert_eq!(server.get(&client).0, HandshakeKind::Full);
        let file = folder.path().join(format!("rejoin-{name}"));
        let file = File::options().write(true).open(file).expect("the store's file");
        file.set_len(4096).expect("a file of ours");
        for _ in 0..3 {
            assert!(server.get(&client).1.ends_with("hello\n"), "{name}");
        }
        let errors = server.errors();
        let [error] = &errors[..] else { panic!("{name}: {errors:?}") };
        let told = format!("rejoin: cache {name}: its file was cut short");
        assert!(error.starts_with(&told), "{error}");
    }
}

/// Clients that only connect take them all. The others wait.
#[test]
fn a_server_without_descriptors_goes_on_when_it_has_some() {
    const DESCRIPTORS: u32 = 40;
    for name in ["axum", "hyper"] {
        let (folder, site) = (Folder::new(), Site::new(VERSIONS[1]));
        site.write_server(&folder.path().join("server"));
        let server = Example::with_descriptors(DESCRIPTORS, name, &folder);
        let connect = |_| TcpStream::connect(&server.address).expect("a server");
        let idle: Vec<_> = (0..2 * DESCRIPTORS).map(connect).collect();
        let client = site.client(None);
        let kind = std::thread::scope(|scope| {
            let waits = scope.spawn(|| server.get(&client).0);
            std::thread::sleep(std::time::Duration::from_millis(500));
            drop(idle);
            waits.join().expect("a page")
        });
        assert_eq!(kind, HandshakeKind::Full);
        let told = server.errors();
        assert!(told.iter().all(|line| line.contains("nobody is accepted for now")), "{told:?}");
        assert!(!told.is_empty(), "{name}");
    }
}
