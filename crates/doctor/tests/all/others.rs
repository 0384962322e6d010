//! Other servers than nginx.

use std::path::PathBuf;

use rejoin_doctor::{Cause, Severity, Way};
use rejoin_testkit::shipped::target;

use crate::site::{Site, examined};

#[test]
fn haproxy_without_tickets_and_cache_keeps_nothing() {
    let serve = |site: &mut Site, global: &str| {
        let text = format!(
            "global\n {global}\ndefaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout \
             connect 9s\nfrontend f\n bind 127.0.0.1:PORT ssl crt FOLDER/both.pem\n http-request \
             return status 200\n"
        );
        site.folder.write("haproxy.cfg", site.filled(&text));
        site.start("haproxy", &["-f", "FOLDER/haproxy.cfg"], "127.0.0.1");
    };
    let mut site = Site::new();
    serve(&mut site, "tune.ssl.cachesize 0\n ssl-default-bind-options no-tls-tickets");
    let found = site.examine();
    found.assert_in_the_way(&[Cause::NothingIssued, Cause::TicketsNeverOpen]);
    let mut site = Site::new();
    serve(&mut site, "");
    site.examine().assert_in_the_way(&[]);
}

const S_SERVER: [&str; 8] = [
    "s_server",
    "-www",
    "-accept",
    "127.0.0.1:PORT",
    "-cert",
    "FOLDER/cert.pem",
    "-key",
    "FOLDER/key.pem",
];

#[test]
fn a_server_that_gives_no_tickets_over_tls_1_3_is_told_so() {
    let mut site = Site::new();
    let arguments = [&S_SERVER[..], &["-num_tickets", "0"]].concat();
    site.start("openssl", &arguments, "127.0.0.1");
    let found = site.examine();
    found.assert_in_the_way(&[Cause::NoTickets]);
    assert_eq!(found.way(Way::Tls13).tickets_per_connection, Some(0));
}

const PYTHON: &str = "\
import http.server, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('both.pem')
context.num_tickets = int(sys.argv[2])
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
";

#[test]
fn python_is_well_unless_it_gives_no_tickets() {
    for (tickets, causes) in [("2", &[][..]), ("0", &[Cause::NoTickets])] {
        let mut site = Site::new();
        site.start("python3", &["-c", PYTHON, "PORT", tickets], "127.0.0.1");
        site.examine().assert_in_the_way(causes);
    }
}

const APACHE: &str = "\
ServerRoot /usr/lib/apache2
PidFile FOLDER/apache.pid
DefaultRuntimeDir FOLDER
ErrorLog FOLDER/apache.log
ServerName localhost
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule socache_shmcb_module modules/mod_socache_shmcb.so
LoadModule ssl_module modules/mod_ssl.so
Listen 127.0.0.1:PORT
DocumentRoot FOLDER
SETTINGS
<VirtualHost 127.0.0.1:PORT>
SSLEngine on
SSLCertificateFile FOLDER/cert.pem
SSLCertificateKeyFile FOLDER/key.pem
</VirtualHost>
";

#[test]
#[ignore = "slow: needs Apache; make test-all"]
fn apache_without_tickets_and_cache_keeps_nothing() {
    let serve = |settings: &str| {
        let mut site = Site::new();
        let text = site.filled(&APACHE.replace("SETTINGS", settings));
        site.folder.write("apache.conf", text);
        site.start("apache2", &["-X", "-f", "FOLDER/apache.conf"], "127.0.0.1");
        site.examine()
    };
    let found = serve("SSLSessionCache none\nSSLSessionTickets off");
    found.assert_in_the_way(&[Cause::NothingIssued, Cause::TicketsNeverOpen]);
    serve("SSLSessionCache shmcb:FOLDER/cache(512000)").assert_in_the_way(&[]);
}

/// A program of `make target/wheels`.
fn wheel(path: &str) -> String {
    let program: PathBuf = target().join("wheels/root").join(path);
    assert!(program.exists(), "{}: make target/wheels", program.display());
    program.display().to_string()
}

const ENVOY: &str = r#"{"static_resources": {"listeners": [{
    "address": {"socket_address": {"address": "ADDRESS", "port_value": PORT}},
    "filter_chains": [{
        "transport_socket": {"name": "tls", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            SETTINGS
            "common_tls_context": {"tls_certificates": [{
                "certificate_chain": {"filename": "FOLDER/cert.pem"},
                "private_key": {"filename": "FOLDER/key.pem"}}]}}},
        "filters": [{"name": "http", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "x", "http_filters": [{"name": "router", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
            "route_config": {"virtual_hosts": [{"name": "x", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]}}}]}]}]}}"#;

#[test]
#[ignore = "slow: needs target/wheels; make test-all"]
fn envoy_is_well_alone_and_not_beside_another_with_keys_of_its_own() {
    let machines = ["127.0.0.1", "127.0.0.2"];
    let envoy = wheel("envoy/_bin/envoy");
    let serve = |site: &mut Site, settings: &str, address: &str| {
        let text = ENVOY.replace("ADDRESS", address).replace("SETTINGS", settings);
        let file = format!("{address}.json");
        site.folder.write(&file, site.filled(&text));
        let file = format!("FOLDER/{file}");
        let arguments =
            ["--concurrency", "2", "--disable-hot-restart", "--use-dynamic-base-id", "-c", &file];
        site.start(&envoy, &arguments[..], address);
    };
    let mut site = Site::new();
    serve(&mut site, "", machines[0]);
    site.examine().assert_in_the_way(&[]);
    serve(&mut site, "", machines[1]);
    let found = examined(&site.settings(&machines)).expect("handshakes");
    found.assert_in_the_way(&[Cause::MachinesApart]);
    // Envoy's default is TLS 1.2 and 1.3; without tickets, its workers have caches of their own.
    let mut site = Site::new();
    let none = r#""disable_stateless_session_resumption": true, "disable_stateful_session_resumption": true,"#;
    serve(&mut site, none, machines[0]);
    let found = site.examine();
    assert!(found.causes(Severity::Loss).contains(&Cause::NoTickets), "{}", found.0.text());
    assert!(
        found.0.resumes == Some(false) && found.way(Way::Ids).at_once.resumed == 0,
        "{}",
        found.0.text()
    );
}

const CADDY: &str = r#"{"admin": {"disabled": true}, "apps": {"tls": {
    "session_tickets": {"disabled": DISABLED},
    "certificates": {"load_files": [{"certificate": "FOLDER/cert.pem", "key": "FOLDER/key.pem"}]}},
    "http": {"servers": {"x": {"listen": ["127.0.0.1:PORT"], "automatic_https": {"disable": true},
    "tls_connection_policies": [{}], "routes": [{"handle": [{"handler": "static_response"}]}]}}}}}"#;

#[test]
#[ignore = "slow: needs target/wheels; make test-all"]
fn caddy_is_well_unless_its_tickets_are_disabled() {
    let caddy = wheel("bin/caddy");
    let serve = |disabled: &str| {
        let mut site = Site::new();
        site.folder.write("caddy.json", site.filled(&CADDY.replace("DISABLED", disabled)));
        site.start(&caddy, &["run", "--config", "FOLDER/caddy.json"], "127.0.0.1");
        site.examine()
    };
    let found = serve("false");
    found.assert_in_the_way(&[]);
    // Go's tickets begin with random bytes: what is not known is not guessed.
    assert_eq!(found.way(Way::Tls13).key_names, None, "{}", found.0.text());
    let found = serve("true");
    found.assert_in_the_way(&[Cause::NothingIssued, Cause::NoTickets]);
}
