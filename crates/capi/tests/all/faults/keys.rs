//! Servers that authenticate clients by pre-shared keys. OpenSSL does not look at the key again when it resumes a session,
//! and such a server asks for no certificate.

use super::lines_of_ours;
use crate::ways::compile;
use rejoin_testkit::site::{Client, Site, Versions};

const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];
const SETTINGS: [&str; 4] =
    ["", "stateful = yes", "context = one", "context = one\nstateful = yes"];

/// A file of no certificate, or an identity of nobody.
const NONE: &str = "-";
const ALICE: &str = "alice:0123456789abcdef0123456789abcdef";
const BOB: &str = "bob:fedcba9876543210fedcba9876543210";

/// A site whose server has not started, which may share the cache of another.
fn site(name: &str, settings: &str, cache_of: Option<&Site>) -> (Site, String) {
    let mut site = Site::new(&format!("fault-keys-{name}"));
    if let Some(other) = cache_of {
        site.cache.clone_from(&other.cache);
    }
    site.configure(settings);
    let program = compile(&site, "keyed.c", "keyed", &["-lssl", "-lcrypto"]);
    (site, program)
}

fn start(site: &mut Site, program: &str, certificate: &str, key: &str, more: &[&str]) {
    site.stop();
    let port = site.port.to_string();
    site.start(program, &[&[&port, certificate, key], more].concat()).expect("compiled");
}

/// A client with one key, or none. Over TLS 1.3, OpenSSL uses such keys with SHA-256 alone.
fn client(site: &Site, versions: Versions, key: &str) -> Client {
    let (identity, key) = key.split_once(':').unwrap_or_default();
    let (identity, key) = (identity.to_owned(), key.to_owned());
    Client::with(site.address(), versions, move |context| {
        context.set_ciphersuites("TLS_AES_128_GCM_SHA256").expect("a cipher");
        context.set_cipher_list("ALL:PSK").expect("ciphers");
        if !key.is_empty() {
            context.set_psk_client_callback(move |_, _, name, into| {
                name[..identity.len()].copy_from_slice(identity.as_bytes());
                name[identity.len()] = 0;
                into[..key.len()].copy_from_slice(key.as_bytes());
                Ok(key.len())
            });
        }
    })
}

/// Returns true if the server let the client in.
fn gets_in(client: &mut Client) -> bool {
    client.answers.clear();
    let _ = client.try_connect();
    client.answers == ["in"]
}

#[test]
fn a_session_of_a_key_opens_no_server_that_knows_it_no_more() {
    for settings in SETTINGS {
        let (mut site, program) = site("revoked", settings, None);
        for versions in VERSIONS {
            start(&mut site, &program, NONE, ALICE, &[]);
            let mut alice = client(&site, versions, ALICE);
            for _ in 0..4 {
                assert!(gets_in(&mut alice), "{settings:?} {versions:?}");
            }
            start(&mut site, &program, NONE, BOB, &[]);
            assert!(gets_in(&mut client(&site, versions, BOB)), "{settings:?} {versions:?}");
            assert!(!gets_in(&mut alice), "{settings:?} {versions:?}: she got in");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

#[test]
fn a_session_of_a_server_that_knows_a_key_opens_no_other() {
    for settings in SETTINGS {
        let (mut one, program) = site("one", settings, None);
        let (mut other, _) = site("other", settings, Some(&one));
        start(&mut one, &program, NONE, ALICE, &[]);
        start(&mut other, &program, NONE, BOB, &[]);
        for versions in VERSIONS {
            let mut alice = client(&one, versions, ALICE);
            assert!(gets_in(&mut alice) && gets_in(&mut alice), "{settings:?} {versions:?}");
            alice.address = other.address();
            assert!(!gets_in(&mut alice), "{settings:?} {versions:?}: she got in");
        }
        assert_eq!(lines_of_ours(&one), [""; 0]);
    }
}

#[test]
fn a_session_of_a_public_server_opens_none_that_wants_a_key() {
    for settings in SETTINGS {
        let (mut public, program) = site("public", settings, None);
        let (mut keyed, _) = site("keyed", settings, Some(&public));
        let pair = public.shown("both.pem");
        start(&mut public, &program, &pair, NONE, &[]);
        start(&mut keyed, &program, NONE, ALICE, &[]);
        for versions in VERSIONS {
            let mut stranger = client(&public, versions, NONE);
            assert!(gets_in(&mut stranger) && stranger.connect(), "{settings:?} {versions:?}");
            stranger.address = keyed.address();
            assert!(!gets_in(&mut stranger), "{settings:?} {versions:?}: it got in");
            let mut alice = client(&keyed, versions, ALICE);
            assert!(gets_in(&mut alice) && gets_in(&mut alice), "{settings:?} {versions:?}");
            stranger.address = keyed.address();
            assert!(!gets_in(&mut stranger), "{settings:?} {versions:?}: it got in after alice");
        }
        assert_eq!(lines_of_ours(&public), [""; 0]);
    }
}

/// Nothing shows that such a server has a certificate before a client has seen it.
#[test]
fn a_server_that_finds_its_certificate_late_resumes_after_one_full_handshake() {
    for settings in SETTINGS {
        let (mut site, program) = site("late", settings, None);
        let pair = site.shown("both.pem");
        for versions in VERSIONS {
            start(&mut site, &program, &pair, NONE, &["late"]);
            let mut client = client(&site, versions, NONE);
            let resumed = [(); 4].map(|()| client.connect());
            assert_eq!(resumed, [false, true, true, true], "{settings:?} {versions:?}");
            start(&mut site, &program, &pair, NONE, &["late"]);
            let resumed = [(); 4].map(|()| client.connect());
            assert_eq!(resumed, [false, true, true, true], "{settings:?} {versions:?} restarted");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// A key beside a certificate takes nothing from the clients that have none.
#[test]
fn a_server_with_a_certificate_and_a_key_resumes_who_came_without_one() {
    for settings in SETTINGS {
        let (mut site, program) = site("both", settings, None);
        let pair = site.shown("both.pem");
        for versions in VERSIONS {
            start(&mut site, &program, &pair, ALICE, &[]);
            let mut stranger = client(&site, versions, NONE);
            assert!(!stranger.connect() && stranger.connect(), "{settings:?} {versions:?}");
            assert!(gets_in(&mut client(&site, versions, ALICE)), "{settings:?} {versions:?}");
            start(&mut site, &program, &pair, ALICE, &[]);
            assert!(stranger.connect() && stranger.connect(), "{settings:?} {versions:?}");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}
