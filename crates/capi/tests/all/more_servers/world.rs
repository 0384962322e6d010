//! The world that a server runs in: its site, its packages, and the certificates of its clients.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rejoin_testkit::certificates::{Authority, Pair};
use rejoin_testkit::port::{is_open, reserve};
use rejoin_testkit::process::wait_until;
use rejoin_testkit::shipped::{library, target};
use rejoin_testkit::site::{Client, Site, Versions};

use super::servers::{Packages, Server};
use super::visits::Talk;

/// The certificate that a client shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certificate {
    None,
    /// One of the authority that the server trusts at first.
    Good,
    /// One of an authority that the server does not trust at first.
    Stranger,
}

pub(crate) struct World {
    server: &'static Server,
    asks: bool,
    site: Site,
    other_authority: Authority,
}

/// The script that makes the file system and becomes the server.
const SCRIPT: &str = "world.sh";

impl World {
    /// Makes the site of a server, with these settings of Rejoin, or without it.
    pub(crate) fn new(server: &'static Server, asks: bool, settings: Option<&str>) -> Self {
        // It is part of the cache's name, which has few letters.
        static WORLDS: AtomicUsize = AtomicUsize::new(0);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let letters = server.name.chars().filter(char::is_ascii_alphanumeric);
        let short: String = letters.take(16).collect();
        let mut site = Site::new(&format!("more-{number}-{short}"));
        site.environment = match settings {
            Some(_) => vec![("OPENSSL_CONF", "/run/site/openssl.cnf".to_owned())],
            None => Vec::new(),
        };
        let configuration = format!(
            ".include /etc/ssl/openssl.cnf\n[openssl_init]\nrejoin = rejoin\n[rejoin]\n\
             path = /usr/local/lib/librejoin.so\ncache = {}\ncapacity = 1MiB\nlog = errors\n{}\n",
            site.cache,
            settings.unwrap_or_default().replace("; ", "\n")
        );
        let (authority, other_authority) = (Authority::new(), Authority::new());
        let shown = |pair: Pair| format!("{}{}", pair.certificate, pair.key);
        for (file, text) in [
            ("openssl.cnf", configuration.as_str()),
            (SCRIPT, include_str!("world.sh")),
            ("accounts.sh", include_str!("accounts.sh")),
            ("server.sh", server.script),
            ("authority.pem", &authority.pem()),
            ("good.pem", &shown(authority.issue(&["client"]))),
            ("stranger.pem", &shown(other_authority.issue(&["client"]))),
        ] {
            fs::write(site.file(file), text).expect("a file");
        }
        Self { server, asks, site, other_authority }
    }

    /// Starts a server at the site's port.
    pub(crate) fn listen(&mut self) {
        let packages = packages(self.server.packages).display().to_string();
        let (script, library) = (self.site.shown(SCRIPT), library("librejoin.so"));
        let (folder, library) = (self.site.shown(""), library.display().to_string());
        let port = self.site.port.to_string();
        let asks = if self.asks { "yes" } else { "no" };
        let world = ["--mount", "sh", "-eu", &script, &packages, &folder, &library];
        let arguments = [&world[..], &[&port, asks]].concat();
        self.site.start("unshare", &arguments).expect("util-linux");
        wait_until("the server is ready", || self.server.talk.is_ready(self.site.address()));
    }

    /// Starts another server of the same site at a port of its own.
    pub(crate) fn beside(&mut self) -> SocketAddr {
        let port = std::mem::replace(&mut self.site.port, reserve());
        self.listen();
        let address = self.site.address();
        self.site.port = port;
        address
    }

    pub(crate) fn restart(&mut self) {
        self.site.stop();
        // A child that outlives its parent for a moment has the socket, too.
        wait_until("the port is free", || !is_open(self.site.port));
        self.listen();
    }

    /// Restarts the server under the authority that it did not trust.
    pub(crate) fn trust_the_other_authority(&mut self) {
        fs::write(self.site.file("authority.pem"), self.other_authority.pem()).expect("a file");
        self.restart();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.site.address()
    }

    pub(crate) fn talk(&self) -> &'static Talk {
        &self.server.talk
    }

    pub(crate) fn client(&self, versions: Versions, certificate: Certificate) -> Client {
        let file = match certificate {
            Certificate::None => None,
            Certificate::Good => Some(self.site.file("good.pem")),
            Certificate::Stranger => Some(self.site.file("stranger.pem")),
        };
        Client::presenting(self.site.address(), versions, file.as_deref())
    }

    /// Returns the text that its servers wrote to their standard error.
    pub(crate) fn told(&self) -> String {
        fs::read(self.site.file("stderr"))
            .map(|told| String::from_utf8_lossy(&told).into_owned())
            .unwrap_or_default()
    }

    /// Returns Rejoin's lines.
    pub(crate) fn lines_of_ours(&self) -> Vec<String> {
        self.told().lines().filter(|line| line.contains("rejoin: ")).map(str::to_owned).collect()
    }
}

/// Returns why servers can not be started here.
pub(crate) fn impossible() -> Option<String> {
    let is_there = |program: &&str| {
        Command::new("which").arg(program).output().is_ok_and(|done| done.status.success())
    };
    let installed = ["redis-server", "freeradius", "eapol_test"];
    if let Some(missing) = installed.iter().find(|program| !is_there(program)) {
        return Some(format!("{missing} is not installed"));
    }
    for of in [Packages::Debian12, Packages::Debian13] {
        let folder = packages(of);
        let made = folder.parent().expect("a folder");
        if !made.exists() {
            return Some("without make target/servers target/openssl-3.5".to_owned());
        }
        let has_all = of == Packages::Debian12 || folder.join("usr/sbin/haproxy").exists();
        assert!(has_all, "an old target/openssl-3.5: remove it, and make it again");
        if !folder.exists() {
            return Some("not on Debian 12".to_owned());
        }
    }
    let probe = ["--mount", "mount", "-t", "tmpfs", "none", "/run"];
    let is_permitted =
        Command::new("unshare").args(probe).output().is_ok_and(|done| done.status.success());
    (!is_permitted).then(|| "namespaces are not permitted".to_owned())
}

fn packages(of: Packages) -> PathBuf {
    let folder = match of {
        Packages::Debian12 => "servers",
        Packages::Debian13 => "openssl-3.5",
    };
    target().join(folder).join("root")
}

/// Returns the servers' versions, by the names of their packages.
pub(crate) fn versions() -> Vec<String> {
    const SERVERS: [(&str, Packages); 18] = [
        ("apache2-bin", Packages::Debian13),
        ("coturn", Packages::Debian12),
        ("dovecot-core", Packages::Debian12),
        ("freeradius", Packages::Debian12),
        ("gunicorn", Packages::Debian12),
        ("haproxy", Packages::Debian13),
        ("libssl3t64", Packages::Debian13),
        ("lighttpd", Packages::Debian12),
        ("mariadb-server-core", Packages::Debian12),
        ("mosquitto", Packages::Debian12),
        ("nginx", Packages::Debian13),
        ("postfix", Packages::Debian12),
        ("postgresql-15", Packages::Debian12),
        ("puma", Packages::Debian12),
        ("redis-server", Packages::Debian12),
        ("stunnel4", Packages::Debian12),
        ("uvicorn", Packages::Debian12),
        ("vsftpd", Packages::Debian12),
    ];
    let of = |(package, packages)| {
        let version = downloaded(package, packages).or_else(|| installed(package));
        format!("{package} {}", version.unwrap_or_else(|| panic!("{package}: no version")))
    };
    SERVERS.map(of).into()
}

/// Returns the version of a package that was downloaded and extracted.
fn downloaded(package: &str, of: Packages) -> Option<String> {
    let archives = fs::read_dir(packages(of).with_file_name("cache")).expect("a folder");
    let mut names =
        archives.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.find_map(|name| {
        let mut parts = name.split('_');
        let version = parts.next().filter(|name| *name == package).and_then(|_| parts.next());
        version.map(|version| version.replace("%3a", ":"))
    })
}

/// Returns the version of a package that this machine had, so that it was not downloaded.
fn installed(package: &str) -> Option<String> {
    let mut query = Command::new("dpkg-query");
    let told = query.args(["--show", "--showformat=${Version}", package]).output().ok()?;
    told.status.success().then(|| String::from_utf8_lossy(&told.stdout).into_owned())
}
