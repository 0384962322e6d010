//! The servers, none of which loads Rejoin, and the way of keys to each.

use std::path::{Path, PathBuf};

use rejoin_testkit::clock::Clock;
use rejoin_testkit::shipped::target;

use super::ground::{CONTEXT, Machine};

/// A kind of server.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) holds: Holds,
    /// Starts one on a machine. `None` if it is not installed.
    pub(super) start: fn(&mut Machine, &Clock) -> Option<()>,
}

/// The keys that a server can hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    All,
    /// The one that encrypts, the next, and the one before.
    Three,
    One,
}

pub(super) const KINDS: [Kind; 8] = [
    Kind { name: "envoy-file", holds: Holds::All, start: envoy_file },
    Kind { name: "envoy-sds", holds: Holds::All, start: envoy_sds },
    Kind { name: "nginx", holds: Holds::All, start: nginx },
    Kind { name: "haproxy", holds: Holds::Three, start: haproxy },
    Kind { name: "apache", holds: Holds::One, start: apache },
    Kind { name: "go", holds: Holds::All, start: go },
    Kind { name: "caddy", holds: Holds::All, start: caddy },
    Kind { name: "node", holds: Holds::All, start: node },
];

const ENVOY: &str = r#"{"node": {"id": "x", "cluster": "x"}, "static_resources": {"listeners": [{
    "address": {"socket_address": {"address": "@ADDRESS@", "port_value": @PORT@}},
    "filter_chains": [{
        "transport_socket": {"name": "tls", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {"tls_certificates": [{
                "certificate_chain": {"filename": "FOLDER/cert.pem"}, "private_key": {"filename": "FOLDER/key.pem"}}]},
            "session_ticket_keys_sds_secret_config": {"name": "shop", "sds_config": {
                "resource_api_version": "V3", @SOURCE@}}}},
        "filters": [{"name": "http", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "x", "delayed_close_timeout": "0s", "http_protocol_options": {"accept_http_10": true},
            "http_filters": [{"name": "router", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
            "route_config": {"virtual_hosts": [{"name": "x", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]}}}]}]}],
    "clusters": [{"name": "rejoin", "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}}}},
        "load_assignment": {"cluster_name": "rejoin", "endpoints": [{"lb_endpoints": [{"endpoint": {
            "address": {"pipe": {"path": "FOLDER/sds"}}}}]}]}}]}}"#;

fn envoy_file(machine: &mut Machine, clock: &Clock) -> Option<()> {
    let source = r#""path_config_source": {"path": "FOLDER/envoy/keys.yaml",
        "watched_directory": {"path": "FOLDER/envoy"}}"#;
    std::fs::create_dir(machine.folder.join("envoy")).expect("a folder");
    machine.export(clock, "envoy", "envoy/keys.yaml", &[]);
    envoy(machine, "envoy-file.json", source)
}

fn envoy_sds(machine: &mut Machine, _: &Clock) -> Option<()> {
    let source = r#""api_config_source": {"api_type": "GRPC", "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": "rejoin"}}]}"#;
    envoy(machine, "envoy-sds.json", source)
}

fn envoy(machine: &mut Machine, file: &str, source: &str) -> Option<()> {
    machine.configure(file, &ENVOY.replace("@SOURCE@", source));
    let file = format!("FOLDER/{file}");
    let arguments = ["--concurrency", "1", "--disable-hot-restart", "--use-dynamic-base-id", "-l"];
    machine.serve(&wheel("envoy/_bin/envoy"), &[&arguments[..], &["warn", "-c", &file]].concat())
}

/// A program of `make target/wheels`.
fn wheel(path: &str) -> PathBuf {
    target().join("wheels/root").join(path)
}

fn nginx(machine: &mut Machine, clock: &Clock) -> Option<()> {
    let text = "\
daemon off; worker_processes 1; pid FOLDER/nginx.pid; error_log FOLDER/nginx-error.log;
events { worker_connections 1024; }
http {
  access_log off; keepalive_timeout 0;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  ssl_certificate FOLDER/cert.pem; ssl_certificate_key FOLDER/key.pem;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_timeout 1d;
  include FOLDER/nginx/keys.conf;
  server { listen @ADDRESS@:@PORT@ ssl; return 200; }
}
";
    let reload = "test ! -s FOLDER/nginx.pid || kill -HUP $(cat FOLDER/nginx.pid)";
    machine.export(clock, "nginx", "nginx", &["--then", reload]);
    machine.configure("nginx.conf", text);
    machine.serve(Path::new("nginx"), &["-c", "FOLDER/nginx.conf"])
}

fn haproxy(machine: &mut Machine, clock: &Clock) -> Option<()> {
    let text = "\
global
  stats socket FOLDER/haproxy.sock level admin
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout client 20s
  timeout connect 10s
  timeout server 10s
frontend tls
  bind @ADDRESS@:@PORT@ ssl crt FOLDER/both.pem tls-ticket-keys FOLDER/haproxy
  http-request return status 200
";
    machine.export(clock, "haproxy", "haproxy", &["--push", "FOLDER/haproxy.sock"]);
    machine.configure("haproxy.cfg", text);
    machine.serve(Path::new("haproxy"), &["-db", "-f", "FOLDER/haproxy.cfg"])
}

fn apache(machine: &mut Machine, clock: &Clock) -> Option<()> {
    let text = "\
ServerRoot /usr/lib/apache2
PidFile FOLDER/apache.pid
DefaultRuntimeDir FOLDER
ErrorLog FOLDER/apache-error.log
LogLevel crit
ServerName localhost
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule ssl_module modules/mod_ssl.so
Listen @ADDRESS@:@PORT@
DocumentRoot FOLDER
SSLSessionCache none
<VirtualHost @ADDRESS@:@PORT@>
ServerName localhost
SSLEngine on
SSLCertificateFile FOLDER/cert.pem
SSLCertificateKeyFile FOLDER/key.pem
SSLSessionTicketKeyFile FOLDER/apache
</VirtualHost>
";
    let graceful = "test ! -s FOLDER/apache.pid || kill -USR1 $(cat FOLDER/apache.pid)";
    machine.export(clock, "apache", "apache", &["--then", graceful]);
    machine.configure("apache.conf", text);
    machine.serve(Path::new("apache2"), &["-DFOREGROUND", "-f", "FOLDER/apache.conf"])
}

/// The example of `bindings/go`, which `make check-reach` builds.
fn go(machine: &mut Machine, _: &Clock) -> Option<()> {
    let arguments = ["--listen", "@ADDRESS@:@PORT@", "--cert", "FOLDER/cert.pem", "--key"];
    let more = ["FOLDER/key.pem", "--share", "FOLDER/share", "--context", CONTEXT];
    machine.serve(&built("server"), &[&arguments[..], &more].concat())
}

/// Caddy with the module of `bindings/caddy`.
fn caddy(machine: &mut Machine, _: &Clock) -> Option<()> {
    let text = r#"{"admin": {"disabled": true}, "storage": {"module": "file_system", "root": "FOLDER/caddy"},
    "apps": {"tls": {
        "session_tickets": {"key_source": {"provider": "rejoin", "context": "shop", "socket": "FOLDER/share"}},
        "certificates": {"load_files": [{"certificate": "FOLDER/cert.pem", "key": "FOLDER/key.pem"}]}},
    "http": {"servers": {"x": {"listen": ["@ADDRESS@:@PORT@"], "automatic_https": {"disable": true},
        "tls_connection_policies": [{}], "routes": [{"handle": [{"handler": "static_response"}]}]}}}}}"#;
    machine.configure("caddy.json", text);
    machine.serve(&built("caddy"), &["run", "--config", "FOLDER/caddy.json"])
}

fn built(name: &str) -> PathBuf {
    target().join("reach").join(name)
}

fn node(machine: &mut Machine, _: &Clock) -> Option<()> {
    let text = "\
const https = require('node:https'), fs = require('node:fs');
const { ticketKeys } = require('BINDING');
const read = (name) => fs.readFileSync('FOLDER/' + name);
const server = https.createServer({
  key: read('key.pem'), cert: read('cert.pem'), sessionTimeout: 24 * 3600, sessionIdContext: 'shop',
}, (request, response) => response.end());
ticketKeys(server, { context: 'shop', socket: 'FOLDER/share' });
server.listen(@PORT@, '@ADDRESS@');
";
    let binding = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/node");
    machine.configure("server.js", &text.replace("BINDING", binding));
    machine.serve(Path::new("node"), &["FOLDER/server.js"])
}
