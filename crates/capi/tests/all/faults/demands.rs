//! A server that demands client certificates, and whose processes are not forked from each other.
//!
//! In some tests it demands them in its certificate callback, which OpenSSL calls in full handshakes alone: a connection
//! that resumes does not show what the server demands.

use std::fs;

use super::lines_of_ours;
use crate::ways::compile;
use rejoin_testkit::certificates::Authority;
use rejoin_testkit::site::{Client, Site, Versions};

const NOBODY: &str = "-";
const SETTINGS: [&str; 2] = ["", "stateful = yes"];

/// A site whose server has not started, its program, and the folder's files for two authorities and a client of each.
fn site(name: &str, settings: Option<&str>) -> (Site, String) {
    site_with(name, settings, "mod_openssl.so")
}

/// The same, with a module of this name: lighttpd and Postfix are known by theirs.
fn site_with(name: &str, settings: Option<&str>, module: &str) -> (Site, String) {
    let mut site = Site::new(&format!("fault-demands-{name}"));
    match settings {
        Some(settings) => site.configure(settings),
        None => site.environment.clear(),
    }
    for of in ["one", "other"] {
        let authority = Authority::new();
        let client = authority.issue(&["client"]);
        let shown = format!("{}{}", client.certificate, client.key);
        fs::write(site.file(&format!("{of}.pem")), authority.pem()).expect("a file");
        fs::write(site.file(&format!("client-of-{of}.pem")), shown).expect("a file");
    }
    let module = compile(&site, "demander.c", module, &["-shared", "-fPIC", "-DMODULE"]);
    let linked = ["-Wl,--no-as-needed", &module, "-lssl", "-lcrypto"];
    let program = compile(&site, "demander.c", "demander", &linked);
    (site, program)
}

/// Starts the server as a new process that trusts this authority, or asks [`NOBODY`].
fn start(site: &mut Site, program: &str, authority: &str) {
    start_with(site, program, authority, &[]);
}

fn start_with(site: &mut Site, program: &str, authority: &str, more: &[&str]) {
    site.stop();
    let (port, pair) = (site.port.to_string(), site.shown("both.pem"));
    let authority = match authority {
        NOBODY => NOBODY.to_owned(),
        _ => site.shown(&format!("{authority}.pem")),
    };
    let words = [&[port.as_str(), &pair, &authority], more].concat();
    site.start(program, &words).expect("compiled");
}

fn client(site: &Site, versions: Versions, of: &str) -> Client {
    let shown = site.file(&format!("client-of-{of}.pem"));
    Client::presenting(site.address(), versions, Some(&shown))
}

#[test]
fn clients_resume_as_often_as_without_rejoin_where_a_callback_demands() {
    for settings in [None, Some(SETTINGS[0]), Some(SETTINGS[1])] {
        let (mut site, program) = site("often", settings);
        start(&mut site, &program, "one");
        for versions in [Versions::Tls12, Versions::Tls13] {
            let mut client = client(&site, versions, "one");
            assert!(!client.connect(), "{settings:?} {versions:?}");
            let resumed = [(); 5].map(|()| client.connect());
            assert_eq!(resumed, [true; 5], "{settings:?} {versions:?}");
            assert_eq!(client.answers, ["somebody"; 6], "{settings:?} {versions:?}");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// A session that was made on a connection that resumed belongs to the same processes as the one before it.
#[test]
fn clients_do_not_resume_in_a_process_that_trusts_another_authority() {
    for settings in SETTINGS {
        let (mut site, program) = site("authority", Some(settings));
        for versions in [Versions::Tls12, Versions::Tls13] {
            for visits in 1..5 {
                let what = format!("{settings:?} {versions:?} after {visits} visits");
                start(&mut site, &program, "one");
                let mut known = client(&site, versions, "one");
                for _ in 0..visits {
                    known.connect();
                }
                start(&mut site, &program, "other");
                let mut other = client(&site, versions, "other");
                for _ in 0..4 {
                    other.connect();
                }
                assert!(!known.try_connect().is_ok_and(|resumed| resumed), "{what}: resumed");
                assert_eq!(known.answers.get(visits).map_or("", String::as_str), "", "{what}");
            }
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// The first handshake to a host is full, as nothing shows that it demands more than before.
#[test]
fn clients_without_a_certificate_do_not_resume_where_one_is_demanded_since() {
    for settings in SETTINGS {
        let (mut site, program) = site("since", Some(settings));
        for versions in [Versions::Tls12, Versions::Tls13] {
            start(&mut site, &program, NOBODY);
            let mut nobody = site.client(versions);
            assert!(!nobody.connect() && nobody.connect(), "{settings:?} {versions:?}");
            start(&mut site, &program, "one");
            assert!(
                !nobody.try_connect().is_ok_and(|resumed| resumed),
                "{settings:?} {versions:?}"
            );
            assert_eq!(nobody.answers.get(2).map_or("", String::as_str), "", "{versions:?}");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// Its ClientHello callback demands them, before sessions are looked up, and its certificate callback switches contexts after
/// that, in full handshakes alone: sessions are looked up in a state in which no handshake begins or ends.
#[test]
fn clients_resume_where_demands_change_before_sessions_are_looked_up() {
    for settings in [None, Some(SETTINGS[0]), Some(SETTINGS[1])] {
        let (mut site, _) = site("looked-up", settings);
        let program = compile(&site, "chooser.c", "chooser", &["-lssl", "-lcrypto"]);
        for versions in [Versions::Tls12, Versions::Tls13] {
            for (name, of, answer) in
                [("localhost", Some("one"), "somebody"), ("elsewhere", None, "nobody")]
            {
                let what = format!("{settings:?} {versions:?} {name}");
                start(&mut site, &program, "one");
                let shown = of.map(|of| site.file(&format!("client-of-{of}.pem")));
                let mut client = Client::presenting(site.address(), versions, shown.as_deref());
                client.name = name;
                // The host is learned from the first two.
                let resumed = [(); 8].map(|()| client.connect());
                assert_eq!(resumed[2..], [true; 6], "{what}: {resumed:?}");
                assert_eq!(client.answers, [answer; 8], "{what}");
                client.name = "localhost";
                start(&mut site, &program, "other");
                let again = [(); 3].map(|()| client.try_connect().ok());
                assert!(again.iter().all(|seen| *seen != Some(true)), "{what}: {again:?}");
                assert!(client.answers[8..].iter().all(String::is_empty), "{what}");
            }
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// They share the keys of tickets, although none is forked from another.
#[test]
fn processes_of_postfix_resume_as_often_as_without_rejoin() {
    for settings in [None, Some(""), Some("context = one")] {
        let (mut site, program) = site_with("keys", settings, "libpostfix-tls.so");
        for versions in [Versions::Tls12, Versions::Tls13] {
            start_with(&mut site, &program, "one", &["sesame"]);
            let mut client = client(&site, versions, "one");
            assert!(!client.connect() && client.connect(), "{settings:?} {versions:?}");
            start_with(&mut site, &program, "one", &["sesame"]);
            assert!(client.connect(), "{settings:?} {versions:?}");
            start_with(&mut site, &program, "one", &["other"]);
            assert!(!client.connect(), "{settings:?} {versions:?}");
            assert_eq!(client.answers, ["somebody"; 4], "{settings:?} {versions:?}");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}
