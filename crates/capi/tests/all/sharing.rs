//! Virtual servers, and a fault of ours, in servers from Debian's packages that have nothing but
//! `OPENSSL_CONF` in their environment. What each of them does is in `compat`.
//!
//! One that is not installed is passed over with a word; `make test` installs them.

use std::fs;

use rejoin_testkit::site::{Site, Versions};

const NGINX: &str = "\
daemon off; master_process on; worker_processes 3; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 256; }
http {
  include FOLDER/nginx-http.conf;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off;
  server { listen 127.0.0.1:@PORT@ ssl reuseport; server_name localhost; return 200 \"$pid\\n\"; }
  server { listen 127.0.0.1:@PORT@ ssl; server_name other.example; return 200 \"$pid\\n\"; }
}
";

#[test]
fn virtual_servers_of_nginx_keep_sessions_each_its_own() {
    each_its_own("nginx", &["-c", "FOLDER/configuration"], NGINX);
}

/// Apache changes to another context before it makes a session, and keeps none in a context of its own.
const APACHE: &str = "\
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule socache_shmcb_module /usr/lib/apache2/modules/mod_socache_shmcb.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
ServerRoot FOLDER
ServerName localhost
PidFile FOLDER/apache.pid
ErrorLog FOLDER/error.log
DocumentRoot FOLDER
Listen 127.0.0.1:@PORT@
Mutex file:FOLDER default
SSLCertificateFile FOLDER/cert.pem
SSLCertificateKeyFile FOLDER/key.pem
SSLSessionCache none
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
    each_its_own("apache2", &["-D", "FOREGROUND", "-f", "FOLDER/configuration"], APACHE);
}

fn each_its_own(program: &str, arguments: &[&str], configuration: &str) {
    let mut site = Site::new(&format!("{program}-names"));
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
