//! Virtual servers, and wrong settings, in servers of Debian's packages that have only `OPENSSL_CONF` in their
//! environment. `compat` measures each of the servers.
//!
//! A server that is not installed is skipped with a message; `make test` installs them.

use std::fs;
use std::thread;

use openssl::ssl::{SslContextBuilder, SslSession};
use rejoin_testkit::site::{Client, Site, Versions};

use crate::faults::NGINX;
use crate::ways::apache;

#[test]
fn virtual_servers_of_nginx_keep_sessions_each_its_own() {
    let second = "server_name localhost; } server { listen 127.0.0.1:@PORT@ ssl; \
        server_name other.example; return 200 \"$pid\\n\";";
    let workers = NGINX.replace("worker_processes 2", "worker_processes 3");
    let configuration = workers.replace("@MORE@", second);
    each_its_own("nginx", &["-c", "FOLDER/configuration"], &configuration);
}

/// The hosts of Apache, which changes to another context before it makes a session, and keeps no session itself.
const HOSTS: &str = "\
SSLSessionTickets off
<VirtualHost *:@PORT@>
  ServerName localhost
  SSLEngine on
</VirtualHost>
<VirtualHost *:@PORT@>
  ServerName other.example
  SSLEngine on
</VirtualHost>
";

#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn virtual_servers_of_apache_keep_sessions_each_its_own() {
    let configuration = apache("prefork", HOSTS);
    each_its_own("apache2", &["-D", "FOREGROUND", "-f", "FOLDER/configuration"], &configuration);
}

fn each_its_own(program: &str, arguments: &[&str], configuration: &str) {
    let mut site = Site::new(&format!("{program}-names"));
    // Apache, without a cache and without tickets, means that nothing resumes.
    site.configure("stateful = yes");
    site.write("configuration", configuration);
    let arguments: Vec<_> = arguments.iter().map(|argument| site.filled(argument)).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    if site.start(program, &arguments).is_none() {
        return;
    }
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = site.client(versions);
        assert!(!client.connect() && client.connect());
        client.name = "other.example";
        assert!(!client.connect(), "{program}, {versions:?}: another's session was resumed");
        assert!(client.connect(), "{program}, {versions:?}: nothing was kept");
    }
}

/// OpenSSL resumes a session of TLS 1.2 with the session's cipher, whatever the server's list has.
#[test]
fn a_session_is_adopted_only_with_a_cipher_of_the_servers_own_list() {
    const OLD: &str = "ECDHE-ECDSA-AES128-SHA";
    const NEW: &str = "ECDHE-ECDSA-AES256-GCM-SHA384";
    for stateful in ["no", "yes"] {
        let mut site = Site::new(&format!("cipher-{stateful}"));
        site.configure(&format!("context = shared\nstateful = {stateful}"));
        let offer = |connector: &mut SslContextBuilder| {
            connector.set_cipher_list(&format!("{OLD}:{NEW}")).expect("ciphers");
        };
        let mut client = Client::with(site.address(), Versions::Tls12, offer);
        let mut serve = |ciphers: &str| {
            site.stop();
            let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
            let server = ["s_server", "-accept", &port, "-www", "-cert", &pair, "-key", &pair];
            let server = [&server[..], &["-cipher", ciphers]].concat();
            site.start("openssl", &server).expect("it is installed");
        };
        serve(&format!("{OLD}:{NEW}"));
        assert!(!client.connect() && client.connect(), "{stateful}");
        serve(&format!("{NEW}:{OLD}"));
        assert!(client.connect(), "{stateful}: another server's session is not adopted");
        serve(NEW);
        assert!(
            !client.connect() && client.connect(),
            "{stateful}: a cipher that it does not have"
        );
    }
}

/// Eight clients present one session at once to two workers, twice.
#[test]
fn a_session_of_tls_1_3_is_used_once_where_that_is_set() {
    for (setting, most) in [("single_use = yes", 1), ("stateful = yes", 16)] {
        let mut site = Site::new(&format!("once-{most}"));
        site.configure(setting);
        let own_cache = "ssl_session_cache shared:own:1m;";
        site.write("configuration", &NGINX.replace("@MORE@", own_cache));
        let configuration = site.shown("configuration");
        let Some(()) = site.start("nginx", &["-c", &configuration]) else { return };
        let mut first = site.client(Versions::Tls13);
        assert!(!first.connect());
        let session = first.session.lock().expect("no panic").clone().expect("it got one");
        let session = session.to_der().expect("bytes");
        let again = || {
            let mut client = site.client(Versions::Tls13);
            let copy = SslSession::from_der(&session).expect("a session");
            *client.session.lock().expect("no panic") = Some(copy);
            client.connect()
        };
        let at_once = || {
            thread::scope(|scope| {
                let all: Vec<_> = (0..8).map(|_| scope.spawn(again)).collect();
                all.into_iter().map(|one| one.join().expect("served")).collect::<Vec<_>>()
            })
        };
        let resumed = [at_once(), at_once()].concat();
        assert_eq!(resumed.iter().filter(|resumed| **resumed).count(), most, "{setting}");
        // Each connection brings another session, over TLS 1.2 as well.
        for mut client in [first, site.client(Versions::Tls12)] {
            client.connect();
            assert!(client.connect() && client.connect(), "{setting}");
        }
    }
}

#[test]
fn a_fault_of_ours_costs_one_line_and_no_handshake() {
    let mut site = Site::new("fault");
    for (setting, complaint) in [
        ("capacity = lots", "capacity = lots"),
        ("folder = /nonexistent", "/nonexistent"),
        ("capacity = 10", "give at least"),
        ("policy = newest", "predictive or lru"),
    ] {
        site.configure(setting);
        fs::write(site.file("stderr"), "").expect("a file");
        let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
        site.start(
            "openssl",
            &["s_server", "-accept", &port, "-cert", &pair, "-key", &pair, "-www"],
        );
        let mut client = site.client(Versions::Tls12);
        client.connect();
        site.stop();
        let told = fs::read_to_string(site.file("stderr")).expect("text");
        let ours: Vec<_> = told.lines().filter(|line| line.starts_with("rejoin: ")).collect();
        assert!(ours.len() == 1 && ours[0].contains(complaint), "{setting}: {told}");
    }
}
