//! Servers from Debian's packages, unmodified, with nothing but `OPENSSL_CONF` in their environment.
//!
//! One that is not installed is passed over with a word; `make test` installs them.

#[expect(dead_code, reason = "other tests use the rest")]
mod site;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rejoin_store::Store;
use site::{Client, Site, Versions};

/// Every connection but the first resumes.
fn all_resume(client: &mut Client, connections: usize, what: &str) {
    for number in 0..connections {
        assert!(client.connect() || number == 0, "{what}: connection {number} was full");
    }
    assert!(client.connect(), "{what}");
}

const NGINX: &str = "\
daemon off; master_process on; worker_processes 3; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  ssl_certificate FOLDER/cert.pem; ssl_certificate_key FOLDER/key.pem;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off;
  server { listen 127.0.0.1:@PORT@ ssl reuseport; server_name localhost; return 200 \"$pid\\n\"; }
  server { listen 127.0.0.1:@PORT@ ssl; server_name other.example; return 200 \"$pid\\n\"; }
}
";

#[test]
fn nginx_workers_share_sessions_through_reload_and_restart() {
    let mut site = Site::new("nginx");
    site.write("nginx.conf", NGINX);
    let configuration = site.shown("nginx.conf");
    let arguments = ["-c", &configuration];
    if site.start("nginx", &arguments).is_none() {
        return;
    }
    let mut clients =
        [Versions::Tls12, Versions::Tls13].map(|versions| (versions, site.client(versions)));
    for (versions, client) in &mut clients {
        all_resume(client, 12, &format!("{versions:?}"));
        let workers = client.answers.iter().collect::<std::collections::HashSet<_>>().len();
        assert!(workers > 1, "{versions:?}: all went to one worker");
    }
    let reload = Command::new("nginx").args(arguments).args(["-s", "reload"]).status();
    assert!(reload.expect("it runs").success());
    thread::sleep(Duration::from_millis(700));
    for (versions, client) in &mut clients {
        assert!(client.connect(), "{versions:?}: after a reload");
    }
    site.stop();
    site.start("nginx", &arguments).expect("installed");
    for (versions, client) in &mut clients {
        assert!(client.connect(), "{versions:?}: after a restart");
    }
    let store = Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("it is there");
    let counters = store.cache().counters();
    assert!(counters.hits >= 28 && counters.forged == 0, "{counters:?}");
    assert!(store.check().iter().all(Result::is_ok));
}

#[test]
fn nginx_shares_no_session_between_virtual_servers() {
    let mut site = Site::new("nginx-names");
    site.write("nginx.conf", NGINX);
    let configuration = site.shown("nginx.conf");
    if site.start("nginx", &["-c", &configuration]).is_none() {
        return;
    }
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = site.client(versions);
        assert!(!client.connect() && client.connect());
        client.name = "other.example";
        assert!(!client.connect(), "{versions:?}: another's session was resumed");
        assert!(client.connect());
    }
}

#[test]
fn s_server_keeps_sessions_from_one_process_to_the_next() {
    let mut site = Site::new("s_server");
    let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
    let files = ["-cert", &pair, "-key", &pair];
    let arguments = [&["s_server", "-accept", &port, "-www", "-no_ticket"][..], &files].concat();
    through_a_restart(&mut site, "openssl", &arguments);
}

#[test]
fn python_processes_share_sessions_and_stateless_tickets_may_be_forced_off() {
    let mut site = Site::new("python");
    site.configure("stateful = yes");
    site.write("server.py", PYTHON);
    let script = site.shown("server.py");
    site.start("python3", &[&script]).expect("Python is installed");
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = site.client(versions);
        all_resume(&mut client, 12, &format!("{versions:?}"));
        let processes = client.answers.iter().collect::<std::collections::HashSet<_>>().len();
        assert!(processes > 1, "{versions:?}: all went to one process");
    }
    // The processes have their ticket keys in common: only the cache tells that none was used.
    let store = Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("it is there");
    let counters = store.cache().counters();
    assert!(counters.hits >= 24, "stateless tickets were issued: {counters:?}");
}

/// Two processes on one port.
const PYTHON: &str = "\
import os, socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('FOLDER/cert.pem', 'FOLDER/key.pem')
parent = os.getpid()
os.fork()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(('127.0.0.1', @PORT@))
listener.listen(64)
listener.settimeout(1)
while os.getpid() == parent or os.getppid() == parent:
    try:
        connection = listener.accept()[0]
        connection.settimeout(5)
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(4096)
            tls.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\n%d\\n' % os.getpid())
    except OSError:
        pass
";

/// Its own cache is of one process; ours is there for the next.
const HAPROXY: &str = "\
global
  nbthread 2
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout client 10s
  timeout connect 10s
  timeout server 10s
frontend tls
  bind 127.0.0.1:@PORT@ ssl crt FOLDER/both.pem no-tls-tickets
  http-request return status 200 content-type text/plain string haproxy
";

#[test]
fn haproxy_keeps_sessions_through_a_restart() {
    let mut site = Site::new("haproxy");
    site.write("haproxy.cfg", HAPROXY);
    let configuration = site.shown("haproxy.cfg");
    through_a_restart(&mut site, "haproxy", &["-db", "-f", &configuration]);
}

const APACHE: &str = "\
ServerRoot FOLDER
ServerName localhost
PidFile FOLDER/apache.pid
ErrorLog FOLDER/error.log
DocumentRoot FOLDER
Listen 127.0.0.1:@PORT@
Mutex file:FOLDER default
LoadModule mpm_@MPM@_module /usr/lib/apache2/modules/mod_mpm_@MPM@.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule socache_shmcb_module /usr/lib/apache2/modules/mod_socache_shmcb.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
StartServers 3
SSLEngine on
SSLCertificateFile FOLDER/cert.pem
SSLCertificateKeyFile FOLDER/key.pem
SSLSessionCache none
SSLSessionTickets off
";

#[test]
fn apache_processes_share_sessions_through_a_restart() {
    for mpm in ["prefork", "event"] {
        let mut site = Site::new(&format!("apache-{mpm}"));
        site.write("apache.conf", &APACHE.replace("@MPM@", mpm));
        let configuration = site.shown("apache.conf");
        through_a_restart(&mut site, "apache2", &["-D", "FOREGROUND", "-f", &configuration]);
    }
}

fn through_a_restart(site: &mut Site, program: &str, arguments: &[&str]) {
    if site.start(program, arguments).is_none() {
        return;
    }
    let mut clients =
        [Versions::Tls12, Versions::Tls13].map(|versions| (versions, site.client(versions)));
    for (versions, client) in &mut clients {
        all_resume(client, 12, &format!("{program}, {versions:?}"));
    }
    site.stop();
    site.start(program, arguments).expect("installed");
    for (versions, client) in &mut clients {
        assert!(client.connect(), "{program}, {versions:?}: after a restart");
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
