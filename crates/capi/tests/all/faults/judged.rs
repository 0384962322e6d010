//! A server that judges client certificates by a callback of its own, which nobody else can see.

use super::{certified, lines_of_ours, make_client};
use crate::ways::compile;
use rejoin_testkit::site::{Client, Site, Versions};

const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

/// A site with the server's program, which is not started.
fn site(name: &str) -> (Site, String) {
    let site = Site::new(&format!("fault-judged-{name}"));
    make_client(&site);
    let program = compile(&site, "asker.c", "asker", &["-lssl", "-lcrypto"]);
    (site, program)
}

/// Starts it as a new process, with this session-id context, these verify modes in turn, and this verdict.
fn start(site: &mut Site, program: &str, context: &str, modes: &str, verdict: &str) {
    site.stop();
    let (port, pair) = (site.port.to_string(), site.shown("both.pem"));
    let authority = site.shown("client.pem");
    site.start(program, &[&port, &pair, &authority, context, modes, verdict]).expect("compiled");
}

/// Asks three times, after other clients, who teach the process what the host asks for. None may resume.
fn is_never_resumed(client: &mut Client, site: &Site, what: &str) {
    for _ in 0..3 {
        for versions in VERSIONS {
            assert!(site.client(versions).try_connect().is_ok(), "{what}: another client");
        }
        assert!(!matches!(client.try_connect(), Ok(true)), "{what}: resumed");
    }
}

/// A session-id context may look like a hash or not: what the server checks cannot be seen, and may have changed.
#[test]
fn a_client_that_is_denied_since_does_not_resume_in_another_process() {
    for context in ["Acme Mail Server", "0123456789abcdef0123456789abcdef", "mail"] {
        let (mut site, program) = site("denied");
        for versions in VERSIONS {
            start(&mut site, &program, context, "1", "1");
            let mut client = certified(&site, versions);
            assert!(!client.connect() && client.connect(), "{context}");
            start(&mut site, &program, context, "1", "0");
            is_never_resumed(&mut client, &site, &format!("{context}, {versions:?}"));
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// The verify mode of this very connection decides, and not that of the one before.
#[test]
fn a_client_without_a_certificate_does_not_resume_where_one_is_demanded() {
    let (mut site, program) = site("demanded");
    for versions in VERSIONS {
        start(&mut site, &program, "mail", "0", "1");
        let mut client = site.client(versions);
        assert!(!client.connect() && client.connect(), "{versions:?}");
        // Every third connection of the new process demands a certificate.
        start(&mut site, &program, "mail", "003", "1");
        is_never_resumed(&mut client, &site, &format!("{versions:?}"));
    }
    assert_eq!(lines_of_ours(&site), [""; 0]);
}

/// An operator may say that all programs of a context check alike. What is visible still decides.
#[test]
fn a_client_that_is_vouched_for_resumes_in_another_process_that_asks_for_the_same() {
    let (mut site, program) = site("vouched");
    site.configure("context = brokers\nclient_certificates = context");
    for versions in VERSIONS {
        start(&mut site, &program, "mail", "1", "1");
        let mut client = certified(&site, versions);
        assert!(!client.connect() && client.connect(), "{versions:?}");
        start(&mut site, &program, "mail", "1", "1");
        assert!(client.connect(), "{versions:?}: a restart");
        start(&mut site, &program, "post", "1", "1");
        assert!(client.connect(), "{versions:?}: another program");
        start(&mut site, &program, "mail", "3", "1");
        assert!(!client.connect(), "{versions:?}: another mode");
        std::fs::copy(site.file("cert.pem"), site.file("client.pem")).expect("files");
        start(&mut site, &program, "mail", "3", "1");
        assert!(!client.connect(), "{versions:?}: another authority");
        make_client(&site);
    }
    assert_eq!(lines_of_ours(&site), [""; 0]);
}
