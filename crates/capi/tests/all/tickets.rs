//! Stateless tickets of unmodified servers that share their keys.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::faults::lines_of_ours;
use crate::ways::compile;
use rejoin_store::Store;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::site::{Client, Site, Versions};

const BOTH: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

/// The user of nginx's workers on Debian, if the configuration names none.
const NOBODY: u32 = 65_534;

/// A configuration with nginx's default for stateless tickets.
const NGINX: &str = "\
daemon off; master_process on; worker_processes 3; pid FOLDER/nginx@PORT@.pid;
error_log FOLDER/error.log;
events { worker_connections 256; }
http {
  include FOLDER/nginx-http.conf;
  ssl_protocols TLSv1.2 TLSv1.3; MORE
  server { listen 127.0.0.1:@PORT@ ssl reuseport; server_name localhost; return 200 \"$pid\\n\"; }
  server { listen 127.0.0.1:@PORT@ ssl; server_name other.example; return 200 \"$pid\\n\"; }
}
";

fn start(site: &mut Site, more: &str) -> Option<()> {
    let name = format!("nginx{}.conf", site.port);
    site.write(&name, &NGINX.replace("MORE", more));
    let configuration = site.shown(&name);
    site.start("nginx", &["-c", &configuration])
}

fn store(site: &Site) -> Store {
    Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("it is there")
}

fn clients(site: &Site) -> [(Versions, Client); 2] {
    BOTH.map(|versions| (versions, site.client(versions)))
}

#[test]
fn tickets_resume_in_every_worker_and_after_a_restart() {
    let mut site = Site::new("tickets");
    if start(&mut site, "").is_none() {
        return;
    }
    let mut clients = clients(&site);
    for (versions, client) in &mut clients {
        assert!(!client.connect(), "{versions:?}");
        assert!((0..12).all(|_| client.connect()), "{versions:?}");
    }
    site.stop();
    start(&mut site, "").expect("installed");
    for (versions, client) in &mut clients {
        assert!(client.connect(), "{versions:?}: after a restart");
    }
    let (counters, tickets) = (store(&site).cache().counters(), store(&site).ticket_counters());
    assert_eq!((counters.stored, counters.hits), (0, 0), "they were no tickets");
    assert!(tickets.contains(&("tickets_known", 26)), "{tickets:?}");
}

#[test]
fn a_ticket_stays_with_its_virtual_server() {
    let mut site = Site::new("tickets-names");
    if start(&mut site, "").is_none() {
        return;
    }
    for (versions, mut client) in clients(&site) {
        assert!(!client.connect() && client.connect());
        client.name = "other.example";
        assert!(!client.connect(), "{versions:?}: another's ticket was opened");
        assert!(client.connect());
    }
}

#[test]
fn a_retired_key_opens_nothing_in_any_worker_and_others_go_on() {
    let mut site = Site::new("tickets-retired");
    if start(&mut site, "").is_none() {
        return;
    }
    let now_s = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    for (versions, mut client) in clients(&site) {
        assert!(!client.connect() && client.connect(), "{versions:?}");
        let key = store(&site).ring().expect("free").expect("a ring").list(now_s).next();
        assert!(store(&site).retire_key(&key.expect("a key").id).expect("free"));
        // Each worker looks once a second.
        thread::sleep(Duration::from_millis(1_100));
        assert!(!client.connect(), "{versions:?}: it was retired");
        assert!((0..6).all(|_| client.connect()), "{versions:?}: there is another key");
    }
}

#[test]
fn a_key_file_brings_tickets_back_when_the_cache_is_gone() {
    for kept in [false, true] {
        let mut site = Site::new(&format!("tickets-file-{kept}"));
        // Not the site's folder: the workers, which run as nobody, may have no access to these sources.
        let folder = std::env::temp_dir().join(format!("rejoin-keys-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        // Only the workers write there.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("ours");
        let workers = if rustix::process::geteuid().is_root() { Some(NOBODY) } else { None };
        chown(&folder, workers, None).expect("ours");
        let file = folder.join("keys");
        site.configure(&if kept {
            format!("key_file = {}", file.display())
        } else {
            String::new()
        });
        if start(&mut site, "").is_none() {
            let _ = fs::remove_dir_all(&folder);
            return;
        }
        let mut clients = clients(&site);
        for (versions, client) in &mut clients {
            assert!(!client.connect() && client.connect(), "{versions:?}");
        }
        if let (true, Some(workers)) = (kept, workers) {
            // The master has written the file first. A worker looks once a second, at the next client.
            let is_workers = || fs::metadata(&file).is_ok_and(|found| found.uid() == workers);
            let client = &mut clients[0].1;
            wait_until("a worker to write the file", || client.connect() && is_workers());
        }
        site.stop();
        assert!(Store::remove(Path::new(Store::FOLDER), &site.cache()).expect("removed"));
        start(&mut site, "").expect("installed");
        for (versions, client) in &mut clients {
            assert_eq!(client.connect(), kept, "{versions:?}");
        }
        let mode = fs::metadata(&file).ok().map(|found| found.permissions().mode() & 0o777);
        let _ = fs::remove_dir_all(&folder);
        assert_eq!(mode, kept.then_some(0o600));
    }
}

/// TLS 1.3 makes a new session with a new lifetime at every resumption. Over TLS 1.2 a server may let sessions live for longer.
#[test]
fn renewal_comes_to_an_end() {
    for (stateful, versions) in ["no", "yes"].into_iter().flat_map(|it| BOTH.map(|of| (it, of))) {
        let mut site = Site::new(&format!("tickets-renewal-{stateful}-{versions:?}"));
        site.configure(&format!("resumable_for = 2s\nstateful = {stateful}"));
        if start(&mut site, "").is_none() {
            return;
        }
        let mut client = site.client(versions);
        assert!(!client.connect());
        for half_seconds in 1..=3 {
            thread::sleep(Duration::from_millis(500));
            assert!(client.connect(), "{stateful}: after {half_seconds} half seconds");
        }
        thread::sleep(Duration::from_millis(1_700));
        assert!(!client.connect(), "{stateful}: its full handshake is too long ago");
        assert!(client.connect(), "{stateful}: that was one");
        let tickets = store(&site).ticket_counters();
        assert_eq!(tickets.contains(&("tickets_overdue", 1)), stateful == "no", "{tickets:?}");
    }
}

/// Python gives all its contexts one session-id context.
#[test]
fn what_one_context_did_not_ask_for_is_not_resumed_in_one_that_asks() {
    for stateful in ["no", "yes"] {
        let mut site = Site::new(&format!("trust-{stateful}"));
        site.configure(&format!("stateful = {stateful}"));
        site.write("server.py", PYTHON);
        let (script, asks_nobody) = (site.shown("server.py"), site.address());
        site.port = rejoin_testkit::port::reserve();
        let asks = site.address();
        site.port = rejoin_testkit::port::reserve();
        let insists = site.address();
        let ports = [asks_nobody, asks, insists].map(|address| address.port().to_string());
        let arguments = [&script[..], &ports[0], &ports[1], &ports[2]];
        site.start("python3", &arguments).expect("Python is installed");
        for versions in BOTH {
            let mut client = site.client(versions);
            client.address = asks_nobody;
            assert!(!client.connect() && client.connect(), "{versions:?}");
            client.address = asks;
            assert!(!client.connect(), "{stateful} {versions:?}: nobody asked for a certificate");
            assert!(client.connect(), "{versions:?}: now somebody has");
            client.address = insists;
            assert!(
                !client.try_connect().is_ok_and(|resumed| resumed),
                "{versions:?}: it has none"
            );
            client.address = asks_nobody;
            assert!(!client.connect(), "{versions:?}: what it shows must not depend on the way");
        }
    }
}

/// A server with contexts that request no certificate, request one, and require one, each on a port.
const PYTHON: &str = "\
import select, socket, ssl, sys
def context(asks):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain('FOLDER/cert.pem', 'FOLDER/key.pem')
    if asks:
        context.load_verify_locations('FOLDER/cert.pem')
        context.verify_mode = asks
    return context
def listener(port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('127.0.0.1', int(port)))
    listener.listen(64)
    return listener
modes = [None, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED]
contexts = {listener(port): context(mode) for port, mode in zip(sys.argv[1:], modes)}
while True:
    for ready in select.select(list(contexts), [], [])[0]:
        try:
            connection = ready.accept()[0]
            connection.settimeout(5)
            with contexts[ready].wrap_socket(connection, server_side=True) as tls:
                tls.recv(4096)
                tls.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\nhello\\n')
        except OSError:
            pass
";

#[test]
fn the_servers_own_keys_stay_if_asked() {
    let mut site = Site::new("tickets-own");
    site.configure("ticket_keys = server");
    if start(&mut site, "").is_none() {
        return;
    }
    let mut client = site.client(Versions::Tls13);
    assert!(!client.connect() && client.connect());
    assert!(store(&site).ring().expect("free").is_none());
    assert!(store(&site).ticket_counters().iter().all(|(_, count)| *count == 0));
}

/// OpenSSL has no function that returns a program's callback for tickets, and such a program may refuse who resumes without
/// the data that it has put into them.
#[test]
fn a_program_that_fills_tickets_finds_its_data_in_them() {
    let one = "context = one\nstateful = yes";
    for settings in
        [None, Some(""), Some("stateful = yes"), Some("ticket_keys = server"), Some(one)]
    {
        let mut site = Site::new("tickets-filled");
        match settings {
            Some(settings) => site.configure(settings),
            None => site.environment.clear(),
        }
        let program = compile(&site, "fills.c", "fills", &["-lssl", "-lcrypto"]);
        for more in [None, Some("no-tickets")] {
            site.stop();
            let (port, pair) = (site.port.to_string(), site.shown("both.pem"));
            let words: Vec<&str> = [port.as_str(), &pair].into_iter().chain(more).collect();
            site.start(&program, &words).expect("compiled");
            for (versions, mut client) in clients(&site) {
                let resumed = [(); 4].map(|()| client.connect());
                let what = format!("{settings:?} {more:?} {versions:?}");
                assert_eq!(resumed, [false, true, true, true], "{what}");
                assert_eq!(client.answers, ["in"; 4], "{what}");
            }
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// Nor does a session that is written down have what a program keeps with it.
#[test]
fn a_program_that_marks_sessions_finds_them_marked() {
    let one = "context = one\nstateful = yes";
    for settings in [None, Some(""), Some("stateful = yes"), Some("single_use = yes"), Some(one)] {
        let mut site = Site::new("tickets-marked");
        match settings {
            Some(settings) => site.configure(settings),
            None => site.environment.clear(),
        }
        let program = compile(&site, "marks.c", "marks", &["-lssl", "-lcrypto"]);
        let (port, pair) = (site.port.to_string(), site.shown("both.pem"));
        site.start(&program, &[&port, &pair]).expect("compiled");
        for (versions, mut client) in clients(&site) {
            let resumed = [(); 4].map(|()| client.connect());
            assert_eq!(resumed, [false, true, true, true], "{settings:?} {versions:?}");
            assert_eq!(client.answers, ["not welcome"; 4], "{settings:?} {versions:?}");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// The line that tells of it.
#[test]
fn a_program_that_fills_tickets_is_told_that_they_stay_its_own() {
    let mut site = Site::new("tickets-filled-told");
    site.configure("log = all");
    let program = compile(&site, "fills.c", "fills", &["-lssl", "-lcrypto"]);
    let (port, pair) = (site.port.to_string(), site.shown("both.pem"));
    site.start(&program, &[&port, &pair]).expect("compiled");
    for (_, mut client) in clients(&site) {
        assert!(!client.connect() && client.connect());
    }
    let lines = lines_of_ours(&site);
    let about = lines.iter().filter(|line| line.contains("data of its own"));
    assert_eq!(about.count(), 1, "{lines:?}");
}
