//! The servers that accept early data, and what their applications saw of it.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rejoin_testkit::port::{reserve, wait_until_open};
use rejoin_testkit::site::{Client, Flight, Origin, Requests, Site, Versions};

use super::copies::renew;
use super::programs::newer;
use super::replays::{Scene, ask};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nginx,
    Haproxy,
    /// That of `make target/haproxy`, which passes early data on before the handshake is done.
    NewerHaproxy,
    SServer,
}

/// The settings of Rejoin, or none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejoin {
    Once,
    Absent,
}

/// A server on two ports.
pub(super) struct Server {
    pub(super) kind: Kind,
    pub(super) site: Site,
    /// The second port.
    pub(super) other: u16,
    origin: Origin,
    rejoin: Rejoin,
    /// The level of nginx's log.
    level: &'static str,
}

const NGINX: &str = "\
daemon off; master_process on; worker_processes 4; worker_rlimit_nofile 16384;
pid FOLDER/nginx.pid; error_log FOLDER/error.log @LEVEL@;
events { worker_connections 8192; }
http {
  include FOLDER/nginx-http.conf;
  server {
    listen 127.0.0.1:@PORT@ ssl reuseport backlog=4096; listen 127.0.0.1:@OTHER@ ssl reuseport backlog=4096;
    ssl_protocols TLSv1.2 TLSv1.3; ssl_early_data on; client_max_body_size 1m;
    proxy_set_header Early-Data $ssl_early_data; proxy_ignore_client_abort on;
    location / { proxy_pass http://@ORIGIN@; }
    location /browser/ { keepalive_timeout 0; proxy_pass http://@ORIGIN@; }
    location = /page { keepalive_timeout 0; default_type text/html; return 200 '@PAGE@'; }
  }
}
";

/// A browser's page, which asks for ten paths, each over a connection of its own.
const PAGE: &str = "<title>waits</title><link rel=icon href=data:,><script>(async () => { \
    for (let n = 0; n < 10; n++) { await fetch(\"/browser/\" + n, {cache: \"no-store\"}); \
    await new Promise(then => setTimeout(then, 200)); } document.title = \"done\"; })()</script>";

/// `proto h1` lets newer releases pass early data on before the handshake is done.
const HAPROXY: &str = "\
global
  nbthread 4
  ssl-default-bind-options ssl-min-ver TLSv1.2
@DEFAULTS@
frontend front
  bind 127.0.0.1:@PORT@,127.0.0.1:@OTHER@ backlog 4096 ssl crt FOLDER/both.pem allow-0rtt proto h1
  http-request set-header Early-Data 1 if { ssl_fc_has_early }
  default_backend back
backend back
  server one @ORIGIN@
";

/// The copies that are sent at once: more than a server has processes or threads.
const AT_ONCE: usize = 16;

/// The words of `openssl s_server` before and after what came as early data.
const RECEIVED: &str = "Early data received:";
const ENDED: &str = "End of early data";

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::NewerHaproxy => "newer-haproxy",
            Self::SServer => "s_server",
        }
    }

    /// True if it answers requests.
    fn answers(self) -> bool {
        self != Self::SServer
    }
}

impl Server {
    /// Starts one. `None` if it is not installed.
    pub(super) fn start(kind: Kind, rejoin: Rejoin, what: &str) -> Option<Self> {
        Self::start_with(kind, rejoin, what, "crit")
    }

    /// Starts an nginx that logs what it reads. `None` if it is not installed.
    pub(super) fn logging(rejoin: Rejoin, what: &str) -> Option<Self> {
        Self::start_with(Kind::Nginx, rejoin, what, "debug")
    }

    fn start_with(kind: Kind, rejoin: Rejoin, what: &str, level: &'static str) -> Option<Self> {
        let site = Site::new(&format!("early-{}-{what}", kind.name()));
        let (other, origin) = (reserve(), Origin::start());
        let mut server = Self { kind, site, other, origin, rejoin, level };
        server.configure("1MiB");
        server.start_again()?;
        Some(server)
    }

    /// Sets the capacity that the server asks for when it starts again.
    pub(super) fn configure(&mut self, capacity: &str) {
        match self.rejoin {
            Rejoin::Once => {
                self.site.configure(&format!("early_data = once\ncapacity = {capacity}"));
            }
            Rejoin::Absent => self.site.environment.clear(),
        }
    }

    /// Starts it. `None` if it is not installed.
    pub(super) fn start_again(&mut self) -> Option<()> {
        let words = match self.kind {
            Kind::Nginx => vec!["nginx".to_owned(), "-c".to_owned()],
            Kind::Haproxy => vec!["haproxy".to_owned(), "-f".to_owned()],
            Kind::NewerHaproxy => {
                let words = newer("haproxy", "sbin/haproxy")?;
                words.into_iter().chain(["-f".to_owned()]).collect()
            }
            Kind::SServer => return self.start_s_servers(&["-early_data"]),
        };
        let text = if self.kind == Kind::Nginx { NGINX } else { HAPROXY };
        let text = text.replace("@ORIGIN@", &self.origin.address.to_string());
        let text = text.replace("@PAGE@", PAGE).replace("@LEVEL@", self.level);
        self.site.write("configuration", &text.replace("@OTHER@", &self.other.to_string()));
        let file = self.site.shown("configuration");
        let words: Vec<&str> = words.iter().map(String::as_str).chain([&*file]).collect();
        self.site.start(words[0], &words[1..])?;
        wait_until_open(self.other);
        Some(())
    }

    /// Starts `openssl s_server` so that it allows early data, and reads none.
    pub(super) fn never_reading() -> Option<Self> {
        let site = Site::new("early-never-read");
        let (kind, other, origin) = (Kind::SServer, reserve(), Origin::start());
        let mut server = Self { kind, site, other, origin, rejoin: Rejoin::Once, level: "crit" };
        server.configure("1MiB");
        server.start_s_servers(&["-max_early_data", "16384"])?;
        Some(server)
    }

    /// Starts two, on one cache. The first makes it, and is certain of it at once.
    fn start_s_servers(&mut self, more: &[&str]) -> Option<()> {
        let own = self.site.port;
        for port in [own, self.other] {
            let mut command = self.site.command("stdbuf");
            command.args(["-oL", "openssl", "s_server", "-accept", &format!("127.0.0.1:{port}")]);
            command.args(["-cert", "both.pem", "-key", "both.pem"]).args(more);
            if self.rejoin == Rejoin::Absent {
                command.arg("-no_anti_replay");
            }
            let log = File::options().create(true).append(true).open(self.log(port));
            command.stdout(log.expect("a file"));
            self.site.port = port;
            let mut child = command.spawn().ok()?;
            self.site.wait_until_it_listens(&mut child);
            self.site.running.push(child);
        }
        self.site.port = own;
        Some(())
    }

    fn log(&self, port: u16) -> PathBuf {
        self.site.file(&format!("{port}.log"))
    }

    /// A client that has a session. `Err` with the reason if it got none.
    pub(super) fn client(&self) -> Result<Client, String> {
        let client = self.site.client(Versions::Tls13);
        renew(&client)?;
        Ok(client)
    }

    /// Sends a request as early data, with the session that the client has.
    pub(super) fn ask(&self, client: &Client, path: &str) -> Result<Flight, String> {
        ask(client, path, self.kind.answers())
    }

    /// The place of originals and copies.
    pub(super) fn scene(&self) -> Scene {
        let here = self.site.address();
        Scene {
            issuer: here,
            here,
            other: SocketAddr::new(here.ip(), self.other),
            at_once: if self.kind.answers() { AT_ONCE } else { AT_ONCE / 4 },
            answers: self.kind.answers(),
            pause: Duration::ZERO,
        }
    }

    /// Counts the connections whose early data an nginx that logs has read. Its `$ssl_early_data` is empty if the handshake
    /// ended before the request was passed on, so the header of [`Self::seen`] depends on the time.
    pub(super) fn read_early(&self) -> usize {
        let log = std::fs::read_to_string(self.site.file("error.log")).unwrap_or_default();
        // OpenSSL's `SSL_READ_EARLY_DATA_SUCCESS`, and the one byte that nginx asks for in the handshake.
        log.lines().filter(|line| line.ends_with(" SSL_read_early_data: 1, 1")).count()
    }

    /// Returns what the application saw of each path, which is told of by all.
    pub(super) fn seen(&self) -> Box<dyn Fn(&str) -> Requests + '_> {
        if self.kind != Kind::SServer {
            return Box::new(|path| self.origin.seen(path));
        }
        let mut seen = HashMap::<String, Requests>::new();
        for port in [self.site.port, self.other] {
            let bytes = std::fs::read(self.log(port)).unwrap_or_default();
            count_requests(&String::from_utf8_lossy(&bytes), &mut seen);
        }
        Box::new(move |path| seen.get(path).copied().unwrap_or_default())
    }
}

/// Counts the requests that `openssl s_server` has printed.
fn count_requests(told: &str, seen: &mut HashMap<String, Requests>) {
    let mut is_early = false;
    for line in told.lines() {
        match line {
            RECEIVED => is_early = true,
            ENDED => is_early = false,
            _ => {
                // The two do not end their lines where the data does.
                let mut words = line.split(' ').skip_while(|word| !is_method(word)).skip(1);
                let Some(path) = words.next().filter(|path| path.starts_with('/')) else {
                    continue;
                };
                let requests = seen.entry(path.to_owned()).or_default();
                requests.all += 1;
                requests.early += usize::from(is_early);
            }
        }
    }
}

fn is_method(word: &str) -> bool {
    ["GET", "POST"].iter().any(|method| word.ends_with(method))
}
