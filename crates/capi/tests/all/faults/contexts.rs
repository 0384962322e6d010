//! Sessions with client certificates, and servers that share a cache and nothing else.

use rejoin_testkit::certificates::{Authority, Pair};
use rejoin_testkit::port::reserve;
use std::collections::HashSet;
use std::fs;
use std::process::Command;

use openssl::ssl::SslSession;

use super::{NGINX, certified, lines_of_ours, make_client, start_nginx};
use crate::compat::matrix::children;
use crate::compat::means::Means;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::site::{Client, Site, Versions};

const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

/// The answer: the client as the server knows it, and `r` if the session was resumed, or else `.`.
const WHO: &str =
    r#"return 200 "$ssl_client_verify $ssl_client_fingerprint $ssl_session_reused\n";"#;

/// Returns [`NGINX`] for a server that asks for certificates.
fn asking(when: &str) -> String {
    let asks = format!("ssl_verify_client {when}; ssl_client_certificate FOLDER/client.pem;");
    NGINX.replace("return 200 \"$pid\\n\";", WHO).replace("@MORE@", &asks)
}

/// Starts a server with that configuration, and makes a client's certificate that it may trust.
fn start(name: &str, configuration: &str, cache_of: Option<&Site>) -> Option<Site> {
    let mut site = Site::new(&format!("fault-{name}"));
    if let Some(other) = cache_of {
        site.cache.clone_from(&other.cache);
        site.configure("");
    }
    make_client(&site);
    configure(&site, configuration);
    start_nginx(&mut site).map(|()| site)
}

/// Writes the configuration with one worker.
fn configure(site: &Site, configuration: &str) {
    site.write("nginx.conf", &configuration.replace("worker_processes 2", "worker_processes 1"));
}

/// Connects to `site`, which must not resume the client's session. Returns the server's answer.
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

/// A host's demand is learned once, by whichever worker.
#[test]
fn a_worker_resumes_at_once_what_another_has_learned_of() {
    let configuration = asking("optional").replace("$ssl_session_reused", "$pid");
    let mut site = Site::new("fault-workers");
    make_client(&site);
    site.write("nginx.conf", &configuration);
    if start_nginx(&mut site).is_none() {
        return;
    }
    for versions in VERSIONS {
        let mut client = certified(&site, versions);
        let resumed: Vec<_> = (0..24).map(|_| client.connect()).collect();
        let workers: HashSet<_> = client.answers.iter().collect();
        assert_eq!(workers.len(), 2, "{:?}", client.answers);
        let full = resumed.iter().filter(|resumed| !**resumed).count();
        assert_eq!(full, 1, "{versions:?}: {resumed:?}");
    }
    assert_eq!(lines_of_ours(&site), [""; 0]);
}

/// Apache with a process for each connection. By the preload library alone each of them comes to Rejoin by itself.
#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn a_process_for_each_connection_resumes_as_often_as_without_rejoin() {
    let more = "StartServers 2\nMaxConnectionsPerChild 1\nSSLEngine on\n\
        SSLVerifyClient optional\nSSLCACertificateFile FOLDER/client.pem\n";
    for means in [Means::Nothing, Means::Module, Means::Preload] {
        let configuration = crate::ways::apache("prefork", more);
        let Some(site) = start_inherited(means, "prefork", &configuration) else { return };
        for versions in VERSIONS {
            let mut client = certified(&site, versions);
            client.connect();
            let resumed = (0..6).filter(|_| client.connect()).count();
            assert_eq!(resumed, 6, "{versions:?}, {means:?}");
        }
    }
}

/// A host that asks is reached through one that does not, in processes that each come to Rejoin by themselves, with contexts
/// that they have inherited. Each learns once what the host asks for.
#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn processes_that_inherited_a_host_resume_each_others_tickets() {
    let hosts = "StartServers 3\nMaxConnectionsPerChild 20\nCustomLog FOLDER/answered %P\n\
        <VirtualHost *:@PORT@>\nServerName other.example\nSSLEngine on\n</VirtualHost>\n\
        <VirtualHost *:@PORT@>\nServerName localhost\nSSLEngine on\n\
        SSLVerifyClient require\nSSLCACertificateFile FOLDER/client.pem\n</VirtualHost>\n";
    let configuration = crate::ways::apache("event", hosts);
    let Some(site) = start_inherited(Means::Preload, "hosts", &configuration) else { return };
    for versions in VERSIONS {
        let mut client = certified(&site, versions);
        let full = (0..60).filter(|_| !client.connect()).count();
        let answered = fs::read_to_string(site.file("answered")).expect("a log");
        let processes: HashSet<_> = answered.lines().rev().take(60).collect();
        assert!(processes.len() > 1, "{versions:?}: {processes:?}");
        assert!(full <= processes.len(), "{versions:?}: {full} of 60 by {processes:?}");
    }
}

/// Starts an Apache with Rejoin by these means.
fn start_inherited(means: Means, name: &str, configuration: &str) -> Option<Site> {
    let mut site = Site::new(&format!("fault-{name}-{means:?}"));
    means.bring(&mut site, false);
    make_client(&site);
    site.write("apache.conf", configuration);
    let configuration = site.shown("apache.conf");
    site.start("apache2", &["-D", "FOREGROUND", "-f", &configuration]).map(|()| site)
}

/// Apache checks the depth and OCSP in its callback, and its session-id context is the name of a virtual server.
#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn sessions_of_apache_do_not_outlive_a_restart_that_checks_more() {
    let ocsp = format!(
        "SSLOCSPEnable on\nSSLOCSPOverrideResponder on\nSSLOCSPDefaultResponder http://127.0.0.1:{}/\n",
        reserve()
    );
    for (name, more) in [("depth", "SSLVerifyDepth 1\n"), ("ocsp", &ocsp)] {
        let mut site = Site::new(&format!("fault-apache-{name}"));
        let one = Authority::new();
        let below = one.below();
        let Pair { certificate, key, .. } = below.issue(&["deep"]);
        fs::write(site.file("one.pem"), one.pem()).expect("a file");
        fs::write(site.file("deep.pem"), certificate + &below.pem() + &key).expect("a file");
        let Some(()) = start_apache(&mut site, "") else { return };
        let deep = Some(site.file("deep.pem"));
        let mut clients =
            VERSIONS.map(|versions| Client::presenting(site.address(), versions, deep.as_deref()));
        for client in &mut clients {
            client.connect();
            assert!(client.connect() && client.connect(), "{name}: nothing was kept");
        }
        site.stop();
        start_apache(&mut site, more).expect("installed");
        for (client, versions) in clients.iter_mut().zip(VERSIONS) {
            // Apache asks, and takes who has no certificate: this is learned from.
            assert!(!site.client(versions).connect(), "{name} {versions:?}");
            assert!(!client.try_connect().is_ok_and(|resumed| resumed), "{name} {versions:?}");
            let answer = client.answers.get(3).map_or("", String::as_str);
            assert_eq!(answer, "", "{name} {versions:?}: it is refused");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// Starts an Apache that asks for certificates.
fn start_apache(site: &mut Site, more: &str) -> Option<()> {
    let asks = "StartServers 1\nSSLEngine on\nSSLVerifyClient optional\n\
        SSLCACertificateFile FOLDER/one.pem\nSSLVerifyDepth 2\n";
    site.write("apache.conf", &crate::ways::apache("event", &format!("{asks}{more}")));
    let configuration = site.shown("apache.conf");
    site.start("apache2", &["-D", "FOREGROUND", "-f", &configuration])
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

/// OpenSSL resumes TLS 1.2 with the session's cipher, whatever the context supports.
#[test]
fn servers_that_offer_other_ciphers_resume_none_of_each_others() {
    for tickets in ["on", "off"] {
        let mut site = Site::new(&format!("fault-ciphers-{tickets}"));
        let ciphers = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"];
        let started = [0, 0, 1].map(|at| {
            let more = format!("ssl_session_tickets {tickets}; ssl_ciphers {};", ciphers[at]);
            site.port = reserve();
            site.write("nginx.conf", &NGINX.replace("@MORE@", &more));
            start_nginx(&mut site).map(|()| site.address())
        });
        let [Some(one), Some(same), Some(other)] = started else { return };
        for versions in VERSIONS {
            let mut client = site.client(versions);
            let resumed = [one, same, other, other, one].map(|address| {
                client.address = address;
                client.connect()
            });
            assert_eq!(resumed, [false, true, false, true, false], "{tickets} {versions:?}");
        }
    }
}

/// A security level rules ciphers out that stay in the context's list.
#[test]
fn a_server_with_a_higher_security_level_resumes_no_cipher_that_it_would_refuse() {
    for settings in ["", "context = one"] {
        let mut site = Site::new("fault-level");
        site.configure(settings);
        let make = ["req", "-x509", "-newkey", "rsa:3072", "-nodes", "-subj", "/CN=localhost"];
        let (pair, port) = (site.shown("rsa-key.pem"), site.address().to_string());
        let certificate = site.shown("rsa-cert.pem");
        let into = ["-keyout", &pair, "-out", &certificate];
        let made = Command::new("openssl").args(make).args(into).output().expect("installed");
        assert!(made.status.success(), "{made:?}");
        let mut client = Client::with(site.address(), Versions::Tls12, |context| {
            context.set_cipher_list("AES128-SHA:@SECLEVEL=0").expect("a cipher");
        });
        for (level, is_served) in [(2, true), (3, false)] {
            site.stop();
            let ciphers = format!("ALL:@SECLEVEL={level}");
            let files = ["-cert", &certificate, "-key", &pair];
            let server = ["s_server", "-accept", &port, "-www", "-no_ticket", "-cipher", &ciphers];
            site.start("openssl", &[&server[..], &files].concat()).expect("installed");
            let resumed = [(); 2].map(|()| client.try_connect().ok());
            let expected = if is_served { [Some(false), Some(true)] } else { [None, None] };
            assert_eq!(resumed, expected, "{settings:?} at level {level}");
        }
    }
}

/// A configuration of HAProxy, whose session-id context is the same for all.
const HAPROXY: &str = "\
global
  tune.ssl.cachesize 0
@DEFAULTS@
frontend tls
  bind 127.0.0.1:@PORT@ ssl crt-list FOLDER/list @TICKETS@
  http-request return status 200 content-type text/plain \
lf-string \"%[ssl_c_used] %[ssl_c_sha1,hex]\"
";

#[test]
fn a_line_of_a_crt_list_that_asks_resumes_no_session_of_one_that_does_not() {
    for tickets in ["no-tls-tickets", ""] {
        let mut site = Site::new(&format!("fault-crt-list-{}", tickets.len()));
        make_client(&site);
        // Without a cache and without tickets HAProxy means that nothing resumes.
        site.configure(if tickets.is_empty() { "" } else { "stateful = yes" });
        let asks = "[verify required ca-file FOLDER/client.pem] secure.example";
        site.write("list", &format!("FOLDER/both.pem localhost\nFOLDER/both.pem {asks}\n"));
        site.write("haproxy.cfg", &HAPROXY.replace("@TICKETS@", tickets));
        let configuration = site.shown("haproxy.cfg");
        if site.start("haproxy", &["-db", "-f", &configuration]).is_none() {
            return;
        }
        for versions in VERSIONS {
            let mut known = certified(&site, versions);
            known.name = "secure.example";
            assert!(!known.connect() && known.connect() && known.connect(), "{versions:?}");
            let who = known.answers[0].clone();
            assert!(who.starts_with("1 ") && who.len() > 40, "{who}");
            assert!(known.answers.iter().all(|of| *of == who), "{:?}", known.answers);
            let mut nobody = site.client(versions);
            assert!(!nobody.connect() && nobody.connect(), "{versions:?}");
            nobody.name = "secure.example";
            assert!(!nobody.try_connect().is_ok_and(|resumed| resumed), "{versions:?}");
            assert!(nobody.answers.iter().all(|who| !who.starts_with("1 ")));
            known.name = "localhost";
            assert_eq!(not_resumed_at(&mut known, &site, "under a name that asks nobody"), "0 ");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// nginx repeats its own checks at a resumption, such as the one for a missing certificate.
#[test]
fn sessions_outlive_a_reload_that_asks_the_same_and_no_other() {
    for tickets in ["on", "off"] {
        let name = format!("reload-{tickets}");
        let tickets = format!("ssl_session_tickets {tickets};");
        let configuration = |when| asking(when).replace("ssl_session_tickets off;", &tickets);
        let Some(site) = start(&name, &configuration("optional"), None) else { return };
        let mut clients = VERSIONS.map(|versions| site.client(versions));
        for client in &mut clients {
            assert!(!client.connect() && client.connect());
        }
        reload(&site, &configuration("optional"));
        for client in &mut clients {
            assert!(client.connect(), "{tickets} nothing is asked that was not");
        }
        reload(&site, &configuration("optional; ssl_verify_depth 3"));
        for client in &mut clients {
            assert_eq!(not_resumed_at(client, &site, &tickets), "NONE  .");
        }
        reload(&site, &configuration("on; ssl_verify_depth 3"));
        for client in &mut clients {
            client.connect();
            assert_eq!(client.answers[4], "</html>", "{tickets} it has none");
        }
        assert_eq!(lines_of_ours(&site), [""; 0]);
    }
}

/// nginx removes the session of a client that it refuses (`SSL_CTX_remove_session`).
#[test]
fn who_was_refused_without_a_certificate_is_served_with_one() {
    let Some(site) = start("refused", &asking("on"), None) else { return };
    for versions in VERSIONS {
        let mut nobody = site.client(versions);
        assert!(!nobody.connect());
        assert_eq!(nobody.answers, ["</html>"]);
        let session = nobody.session.lock().expect("no panic").take();
        let session =
            session.and_then(|session| SslSession::from_der(&session.to_der().ok()?).ok());
        let mut somebody = certified(&site, versions);
        *somebody.session.lock().expect("no panic") = session;
        somebody.connect();
        assert!(somebody.answers[0].starts_with("SUCCESS "), "{versions:?} {:?}", somebody.answers);
    }
}

/// Such a server has no certificate when sessions are looked up, and no callback for keys.
#[test]
fn a_certificate_by_a_variable_costs_no_session() {
    let more = "ssl_certificate FOLDER/$pair.pem; ssl_certificate_key FOLDER/$pair.pem;";
    let by_variable = NGINX
        .replace("return 200 \"$pid\\n\";", WHO)
        .replace("@MORE@", more)
        .replace("http {", "http { map $ssl_server_name $pair { default both; }");
    // A worker reads the file, in a folder that may be closed to others.
    let by_variable = format!("user root; {by_variable}");
    let Some(site) = start("variable", &by_variable, None) else { return };
    for versions in VERSIONS {
        let mut client = site.client(versions);
        assert!(!client.connect() && client.connect(), "{versions:?}");
        reload(&site, &by_variable);
        assert!(client.connect(), "{versions:?}: after the reload");
    }
    assert_eq!(lines_of_ours(&site), [""; 0]);
}

/// Reloads nginx with another configuration, and waits until the old workers are gone. Then a new client connects.
fn reload(site: &Site, configuration: &str) {
    configure(site, configuration);
    let nginx = site.running[0].id().to_string();
    let old = children(&nginx);
    assert!(Command::new("kill").args(["-HUP", &nginx]).status().is_ok_and(|told| told.success()));
    wait_until("a reload", || children(&nginx).is_disjoint(&old));
    site.client(Versions::Tls13).connect();
}
