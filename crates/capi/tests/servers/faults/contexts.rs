//! Sessions with client certificates, and servers that share a cache and nothing else.

use openssl::ssl::{SslConnectorBuilder, SslFiletype};
use rejoin_bench::{Identity, KeyType};

use super::{NGINX, lines_of_ours, start_nginx};
use crate::site::{Client, Site, Versions};

const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

/// Who the server takes the client for, and whether it was resumed: `r`, or `.`.
const WHO: &str =
    r#"return 200 "$ssl_client_verify $ssl_client_fingerprint $ssl_session_reused\n";"#;

/// What [`NGINX`] says, of a server that asks for certificates.
fn asking(when: &str) -> String {
    let asks = format!("ssl_verify_client {when}; ssl_client_certificate FOLDER/client.pem;");
    NGINX.replace("return 200 \"$pid\\n\";", WHO).replace("@MORE@", &asks)
}

/// A server with that configuration, and a client's certificate that it may trust.
fn start(name: &str, configuration: &str, cache_of: Option<&Site>) -> Option<Site> {
    let mut site = Site::new(&format!("fault-{name}"));
    if let Some(other) = cache_of {
        site.cache.clone_from(&other.cache);
        site.configure("");
    }
    let identity = Identity::made(KeyType::P256).expect("a pair");
    identity.write(&site.file("client.pem"), &site.file("client-key.pem")).expect("files");
    // A worker learns what is asked under a host from its first handshake there.
    let configuration = configuration.replace("worker_processes 2", "worker_processes 1");
    site.write("nginx.conf", &configuration);
    start_nginx(&mut site).map(|()| site)
}

/// A client with the certificate that `site` trusts.
fn certified(site: &Site, versions: Versions) -> Client {
    Client::with(site.address(), versions, |connector| certify(connector, site))
}

fn certify(connector: &mut SslConnectorBuilder, site: &Site) {
    connector.set_certificate_chain_file(site.file("client.pem")).expect("a certificate");
    connector.set_private_key_file(site.file("client-key.pem"), SslFiletype::PEM).expect("a key");
}

/// Connects at `site`, where the client's session must be of no use; what the server said.
fn not_resumed_at<'a>(client: &'a mut Client, site: &Site, what: &str) -> &'a str {
    client.address = site.address();
    assert!(!client.connect(), "{what}");
    client.answers.last().expect("just added")
}

#[test]
fn a_resumed_client_is_still_who_it_was() {
    for when in ["on", "optional"] {
        let name = format!("certificates-{when}");
        let Some(site) = start(&name, &asking(when), None) else { return };
        for versions in VERSIONS {
            let mut client = certified(&site, versions);
            assert!(!client.connect());
            (0..6).for_each(|_| assert!(client.connect(), "{versions:?}"));
            let who = client.answers[0].strip_suffix(" .").expect("not resumed");
            assert!(who.starts_with("SUCCESS ") && who.len() > 40, "{who}");
            let same = format!("{who} r");
            assert!(client.answers[1..].iter().all(|of| *of == same), "{:?}", client.answers);
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

#[test]
fn a_client_without_certificate_stays_nobody() {
    let Some(site) = start("nobody", &asking("optional"), None) else { return };
    for versions in VERSIONS {
        let mut client = site.client(versions);
        assert!((0..4).filter(|_| client.connect()).count() == 3);
        assert_eq!(client.answers, ["NONE  .", "NONE  r", "NONE  r", "NONE  r"]);
    }
}

/// One cache, three servers: without certificates, with those of one authority, and of another.
#[test]
fn servers_that_ask_for_others_certificates_resume_none_of_each_others() {
    let plain = NGINX.replace("return 200 \"$pid\\n\";", WHO).replace("@MORE@", "");
    let Some(plain) = start("plain", &plain, None) else { return };
    let one = start("one", &asking("on"), Some(&plain)).expect("installed");
    let other = start("other", &asking("on"), Some(&plain)).expect("installed");
    for versions in VERSIONS {
        let mut client = certified(&one, versions);
        client.address = plain.address();
        assert!(!client.connect() && client.connect());
        let who = not_resumed_at(&mut client, &one, "from a server that never asked");
        assert!(who.starts_with("SUCCESS "), "{who}");
        assert!(client.connect());
        let refused = not_resumed_at(&mut client, &other, "from another authority's");
        assert!(!refused.starts_with("SUCCESS"), "{refused}");
        let who = not_resumed_at(&mut client, &plain, "from a server that asked");
        assert!(who.starts_with("NONE "), "{who}");
    }
    assert_eq!(lines_of_ours(&plain), [""; 0]);
}

/// Two virtual servers on one address, of which one asks (CVE-2025-23419 of nginx).
#[test]
fn a_virtual_server_that_asks_resumes_no_session_of_one_that_does_not() {
    let second = "server_name localhost; } server { listen 127.0.0.1:@PORT@ ssl; \
        server_name secure.example; ssl_verify_client on; \
        ssl_client_certificate FOLDER/client.pem;";
    let both = NGINX.replace("@MORE@", &format!("{second} {WHO}"));
    let Some(site) = start("virtual", &both, None) else { return };
    for versions in VERSIONS {
        let mut client = site.client(versions);
        assert!(!client.connect() && client.connect());
        client.name = "secure.example";
        let refused = not_resumed_at(&mut client, &site, "under another name");
        assert!(!refused.starts_with("SUCCESS"), "{refused}");
        let mut client = certified(&site, versions);
        client.name = "secure.example";
        assert!(!client.connect() && client.connect());
        assert!(client.answers.iter().all(|who| who.starts_with("SUCCESS ")));
    }
}
