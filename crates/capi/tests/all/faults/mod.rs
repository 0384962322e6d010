//! Bad input and faults, on servers of Debian's packages. Whatever happens to the cache, to its file or on the wire,
//! every client that would be served without Rejoin is served. The log has one line of Rejoin for each process that
//! noticed a fault, and not one for each connection.
//!
//! The store has tests of its own. A server or a tool that is not installed is skipped with a message.

mod again;
mod apache_keys;
mod clients;
mod clocks;
mod contexts;
mod demands;
mod early_data;
mod files;
pub(crate) mod foreign;
mod forks;
mod hello;
mod keys;
mod memory;
mod off;
mod post_handshake;
mod responders;
mod settings;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use openssl::ssl::{SslContextBuilder, SslFiletype};
use rejoin_cache::Counters;
use rejoin_serve::{Identity, KeyType};
use rejoin_store::Store;
use rejoin_testkit::site::{Client, Site, Versions};

/// A configuration with two workers. A test replaces `@MORE@`.
pub(crate) const NGINX: &str = "\
daemon off; master_process on; worker_processes 2; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 256; }
http {
  include FOLDER/nginx-http.conf;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off;
  server { listen 127.0.0.1:@PORT@ ssl reuseport; return 200 \"$pid\\n\"; @MORE@ }
}
";

/// Makes a site, and starts nginx with [`NGINX`]. `None`: it is not installed.
fn nginx(name: &str, more: &str) -> Option<Site> {
    let mut site = Site::new(&format!("fault-{name}"));
    site.write("nginx.conf", &NGINX.replace("@MORE@", more));
    start_nginx(&mut site).map(|()| site)
}

pub(crate) fn start_nginx(site: &mut Site) -> Option<()> {
    let configuration = site.shown("nginx.conf");
    site.start("nginx", &["-c", &configuration])
}

/// Starts `openssl s_server` without stateless tickets, after the words of `before`.
pub(crate) fn start_s_server(site: &mut Site, before: &[&str]) -> Option<()> {
    let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
    let files = ["-cert", &pair, "-key", &pair];
    let server = ["openssl", "s_server", "-accept", &port, "-www", "-no_ticket"];
    let words = [before, &server, &files].concat();
    site.start(words[0], &words[1..])
}

/// Makes a client's certificate, which the site's servers may trust.
fn make_client(site: &Site) {
    let identity = Identity::made(KeyType::P256).expect("a pair");
    identity.write(&site.file("client.pem"), &site.file("client-key.pem")).expect("files");
}

/// Returns a client with that certificate.
fn certified(site: &Site, versions: Versions) -> Client {
    Client::with(site.address(), versions, |connector| certify(connector, site))
}

fn certify(connector: &mut SslContextBuilder, site: &Site) {
    connector.set_certificate_chain_file(site.file("client.pem")).expect("a certificate");
    connector.set_private_key_file(site.file("client-key.pem"), SslFiletype::PEM).expect("a key");
}

fn clients(site: &Site) -> [Client; 2] {
    [Versions::Tls12, Versions::Tls13].map(|versions| site.client(versions))
}

/// Returns Rejoin's messages, from all logs.
pub(crate) fn lines_of_ours(site: &Site) -> Vec<String> {
    let logs = ["stderr", "error.log"].map(|log| fs::read(site.file(log)).unwrap_or_default());
    let text = String::from_utf8_lossy(&logs.concat()).into_owned();
    text.lines().filter(|line| line.contains("rejoin: ")).map(str::to_owned).collect()
}

pub(crate) fn file_of_cache(site: &Site) -> PathBuf {
    Path::new(Store::FOLDER).join(site.cache().file_name())
}

pub(crate) fn store(site: &Site) -> Store {
    Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("it is there")
}

fn counters(site: &Site) -> Counters {
    store(site).cache().counters()
}

pub(crate) fn write_at(path: &Path, bytes: &[u8], offset: u64) {
    let file = fs::File::options().write(true).open(path).expect("there");
    file.write_all_at(bytes, offset).expect("written");
}
