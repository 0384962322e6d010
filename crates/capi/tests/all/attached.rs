//! The line with which a server says that it is attached: one for each start, from whichever process serves first.

use std::fs;
use std::path::Path;
use std::process::Command;

use rejoin_store::Store;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::site::{Site, Versions};
use rejoin_trace::grouped;

use crate::compat::matrix::children;
use crate::compat::means::Means;
use crate::faults::{NGINX, lines_of_ours, start_nginx, start_s_server};
use crate::ways::{NOT_ROOT, apache, python_server};

/// Returns the line that a server with such settings writes.
fn line(site: &Site, ticket_keys: &str) -> String {
    let store = Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("it is there");
    let sessions = grouped(store.cache().capacity_sessions());
    format!("rejoin: {}: attached, 1 MiB, {sessions} sessions, {ticket_keys}", site.cache)
}

/// Returns Rejoin's lines, from the word on that each begins with: nginx writes a time before it.
fn told(site: &Site) -> Vec<String> {
    let ours = |line: &String| line[line.find("rejoin: ").expect("ours")..].to_owned();
    lines_of_ours(site).iter().map(ours).collect()
}

fn connect(site: &Site, times: usize) {
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = site.client(versions);
        let _resumed = (0..times).filter(|_| client.connect()).count();
    }
}

#[test]
fn a_server_says_once_what_it_is_attached_to() {
    let mut site = Site::new("attached");
    for (settings, ticket_keys) in [
        ("log = all", "ticket keys shared"),
        ("log = all\nticket_keys = server", "ticket keys the server's own"),
        ("log = all\nstateful = yes", "no stateless tickets"),
    ] {
        site.configure(settings);
        let _ = fs::remove_file(site.file("stderr"));
        start_s_server(&mut site, &["env"]).expect("installed");
        connect(&site, 2);
        site.stop();
        assert_eq!(told(&site), [line(&site, ticket_keys)]);
    }
}

#[test]
fn the_line_is_usual_and_a_setting_switches_it_off() {
    let mut site = Site::new("attached-off");
    let file = site.file("openssl.cnf");
    let text = fs::read_to_string(&file).expect("there");
    for (settings, before, lines) in [
        ("", &["env"][..], 1),
        ("log = errors\n", &["env"], 0),
        ("log = all\n", &["env", "REJOIN_LOG=errors"], 0),
        ("log = errors\n", &["env", "REJOIN_LOG=all"], 1),
    ] {
        fs::write(&file, text.replace("log = errors\n", settings)).expect("a file");
        let _ = fs::remove_file(site.file("stderr"));
        start_s_server(&mut site, before).expect("installed");
        connect(&site, 1);
        site.stop();
        assert_eq!(told(&site).len(), lines, "{settings:?} {before:?}: {:?}", told(&site));
    }
}

#[test]
fn a_server_of_another_user_says_it_with_its_first_client() {
    let mut site = Site::new("attached-not-root");
    site.configure("log = all");
    site.write("server.py", &python_server(""));
    let script = site.shown("server.py");
    let run = match rustix::process::geteuid().is_root() {
        true => [&["setpriv"], &NOT_ROOT[..], &["python3", &script]].concat(),
        false => vec!["python3", &script],
    };
    site.start(run[0], &run[1..]).expect("installed");
    assert_eq!(told(&site), [""; 0], "before it serves");
    connect(&site, 2);
    site.stop();
    assert!(told(&site).len() == 1 && told(&site)[0].contains(": attached, "), "{:?}", told(&site));
}

/// Starts a server for each connection, as inetd does: its standard error is the client. The server has another name, so
/// that each is a start of its own.
const INETD: &str = "\
import os, socket, subprocess, sys
os.symlink(os.path.realpath(sys.executable), 'FOLDER/served')
listener = socket.create_server(('127.0.0.1', @PORT@))
while True:
    client = listener.accept()[0]
    subprocess.run(['FOLDER/served', 'FOLDER/serve.py'], stdin=client, stdout=client, stderr=client)
    client.close()
";

const SERVE: &str = "\
import socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('FOLDER/cert.pem', 'FOLDER/key.pem')
with context.wrap_socket(socket.socket(fileno=0), server_side=True) as tls:
    tls.recv(4096)
    tls.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\npython\\n')
";

#[test]
fn a_client_is_not_told() {
    let mut site = Site::new("attached-inetd");
    site.configure("log = all\nstateful = yes");
    site.write("server.py", INETD);
    site.write("serve.py", SERVE);
    let script = site.shown("server.py");
    site.start("python3", &[&script]).expect("installed");
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = site.client(versions);
        assert_eq!([client.connect(), client.connect()], [false, true]);
    }
}

/// Workers of one master, also those that a reload makes, are one server. A restart is another.
#[test]
fn the_workers_of_one_server_say_it_once() {
    for means in [Means::Module, Means::Preload] {
        let mut site = Site::new(&format!("attached-{means:?}"));
        means.bring(&mut site, true);
        site.configure("stateful = yes\nlog = all");
        site.environment.retain(|(name, _)| *name != "REJOIN_LOG");
        let variables = "env REJOIN_CACHE; env REJOIN_CAPACITY; env REJOIN_STATEFUL;";
        site.write(
            "nginx.conf",
            &format!("user root; {variables} {}", NGINX.replace("@MORE@", "")),
        );
        for starts in 1..=2 {
            let Some(()) = start_nginx(&mut site) else { return };
            connect(&site, 12);
            let master = site.running[0].id().to_string();
            let before = children(&master);
            assert!(Command::new("kill").args(["-HUP", &master]).status().expect("run").success());
            wait_until("other workers", || {
                let now = children(&master);
                now.len() == 2 && before.iter().all(|worker| !now.contains(worker))
            });
            connect(&site, 12);
            site.stop();
            let expected = line(&site, "no stateless tickets");
            assert_eq!(told(&site), vec![expected; starts], "{means:?}");
        }
    }
}

#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn a_process_for_each_connection_says_nothing_more() {
    for means in [Means::Module, Means::Preload] {
        let mut site = Site::new(&format!("attached-prefork-{means:?}"));
        means.bring(&mut site, true);
        site.configure("stateful = yes\nlog = all");
        site.environment.retain(|(name, _)| *name != "REJOIN_LOG");
        let more = "User www-data\nGroup www-data\nMaxConnectionsPerChild 1\nSSLEngine on\n";
        site.write("apache.conf", &apache("prefork", more));
        let configuration = site.shown("apache.conf");
        if site.start("apache2", &["-D", "FOREGROUND", "-f", &configuration]).is_none() {
            return;
        }
        connect(&site, 6);
        site.stop();
        let told = told(&site);
        assert!(told.len() == 1 && told[0].contains(": attached, 1 MiB, "), "{means:?}: {told:?}");
    }
}
