//! A server that switched resumption off: it keeps no sessions, and issues no tickets.

use std::fs;

use super::{NGINX, clients, counters, lines_of_ours, start_nginx};
use rejoin_testkit::site::{Client, Site, Versions};

const HAPROXY: &str = "\
global
  tune.ssl.cachesize 0
@DEFAULTS@
frontend tls
  bind 127.0.0.1:@PORT@ ssl crt FOLDER/both.pem no-tls-tickets
  http-request return status 200 content-type text/plain string haproxy
";

const APACHE: &str = "SSLSessionTickets off\nSSLEngine on\n";

/// Starts a server of these words and of this file, and returns how many of four connections after the first resume.
fn resumed(site: &mut Site, words: &[&str]) -> Option<usize> {
    let configuration = site.shown("configuration");
    site.start(words[0], &[&words[1..], &[&configuration]].concat())?;
    let mut both = clients(site);
    let resumed = |client: &mut Client| (0..3).filter(|_| client.connect()).count();
    Some(both.iter_mut().map(resumed).sum())
}

/// Starts a server with Rejoin, and again with `stateful = yes`.
fn stays_off(name: &str, words: &[&str], configuration: &str) {
    let mut site = Site::new(&format!("fault-off-{name}"));
    site.write("configuration", configuration);
    site.configure("log = all");
    let Some(off) = resumed(&mut site, words) else { return };
    let told = lines_of_ours(&site);
    assert_eq!((off, counters(&site).stored), (0, 0), "{name}: {told:?}");
    assert_eq!(told.len(), 2, "one that it is attached, and one that it is off: {told:?}");
    assert!(told[1].ends_with("set stateful = yes to keep them in the cache"), "{told:?}");
    site.stop();
    site.configure("stateful = yes");
    assert_eq!(resumed(&mut site, words), Some(4), "{name}");
}

#[test]
fn nginx_stays_off() {
    stays_off("nginx", &["nginx", "-c"], &NGINX.replace("@MORE@", "ssl_session_cache off;"));
}

#[test]
fn haproxy_stays_off() {
    stays_off("haproxy", &["haproxy", "-db", "-f"], HAPROXY);
}

#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn apache_stays_off() {
    let words = ["apache2", "-D", "FOREGROUND", "-f"];
    stays_off("apache", &words, &crate::ways::apache("event", APACHE));
}

/// Two virtual servers share an address. One is off; the first one, where connections begin, is not.
#[test]
fn a_virtual_server_stays_off() {
    let second = "server_name localhost; } server { listen 127.0.0.1:@PORT@ ssl; server_name off.example; \
        ssl_session_cache off; return 200 \"off\n\";";
    let mut site = Site::new("fault-off-virtual");
    site.write("nginx.conf", &NGINX.replace("@MORE@", second));
    if start_nginx(&mut site).is_none() {
        return;
    }
    for versions in [Versions::Tls12, Versions::Tls13] {
        for (name, resumes) in [("localhost", 2), ("off.example", 0)] {
            let mut client = site.client(versions);
            client.name = name;
            let resumed = (0..3).filter(|_| client.connect()).count();
            assert_eq!(resumed, resumes, "{name} {versions:?}");
        }
    }
    let log = fs::read_to_string(site.file("stderr")).unwrap_or_default();
    assert!(!log.contains("rejoin: "), "{log}");
}
