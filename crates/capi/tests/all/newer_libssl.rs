//! The same `librejoin.so`, which is linked against this machine's libssl, inside nginx and `openssl s_server` of newer
//! releases. `make target/openssl-3.5 target/openssl-3.6` downloads them from newer Debians, with the C library they
//! were built for. From 3.6 on a connection has no context yet when it is made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rejoin_store::Store;
use rejoin_testkit::site::{Client, Site, Versions};

/// A release in a folder of its own.
struct Release {
    loader: PathBuf,
    libraries: PathBuf,
    root: PathBuf,
}

impl Release {
    /// Finds a release. `None`: it is not downloaded.
    fn of(name: &str) -> Option<Self> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder");
        let root = target.join(format!("openssl-{name}/root/usr"));
        let libraries = found(&root.join("lib"), |path| path.join("libssl.so.3").exists())?;
        let loader = found(&libraries, |path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
        })?;
        Some(Self { loader, libraries, root })
    }

    /// Returns the command that starts one of its programs.
    fn words(&self, program: &str) -> Vec<String> {
        let option = Path::new("--library-path");
        let program = self.root.join(program);
        let words = [&self.loader, option, &self.libraries, &program];
        words.map(|word| word.display().to_string()).to_vec()
    }

    fn version(&self) -> String {
        let words = self.words("bin/openssl");
        let said = Command::new(&words[0]).args(&words[1..]).arg("version").output();
        String::from_utf8(said.expect("it runs").stdout).expect("text").trim().to_owned()
    }
}

fn found(folder: &Path, is_it: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut paths = fs::read_dir(folder).ok()?.map(|entry| entry.expect("read").path());
    paths.find(|path| is_it(path))
}

const NGINX: &str = "\
daemon off; worker_processes 2; pid FOLDER/nginx.pid; events { worker_connections 64; }
http {
  include FOLDER/nginx-http.conf;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off;
  server { listen 127.0.0.1:@PORT@ ssl reuseport; return 200 \"$pid\\n\"; }
}
";

#[test]
#[ignore = "slow: needs target/openssl-3.5 and target/openssl-3.6; make test-all"]
fn newer_releases_keep_sessions_through_a_restart() {
    for name in ["3.5", "3.6"] {
        let release = Release::of(name).unwrap_or_else(|| panic!("run make target/openssl-{name}"));
        let version = release.version();
        assert!(version.contains(&format!("OpenSSL {name}.")), "{version}");
        for (setting, server, through_restart) in [
            ("", "-no_ticket", true),
            ("stateful = yes", "-quiet", true),
            ("", "-quiet", false),
            ("", "nginx", true),
        ] {
            let what = format!("{version}, {setting} {server}");
            let hits = serve(&release, setting, server, through_restart, &what);
            assert!(!through_restart || hits >= 20, "{what}: {hits} hits");
        }
    }
}

/// Serves both versions, before and after a restart. Returns the number of sessions that were found.
fn serve(release: &Release, setting: &str, server: &str, all: bool, what: &str) -> u64 {
    let mut site = Site::new("newer");
    site.configure(setting);
    site.write("nginx.conf", NGINX);
    let words = words_of(&site, release, server);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut clients = [Versions::Tls12, Versions::Tls13].map(|versions| site.client(versions));
    site.start(words[0], &words[1..]).expect("it is there");
    clients.iter_mut().for_each(|client| come_back(client, what));
    site.stop();
    site.start(words[0], &words[1..]).expect("it is there");
    for client in &mut clients {
        assert!(client.connect() || !all, "{what}: after a restart");
        come_back(client, what);
    }
    let told = fs::read_to_string(site.file("stderr")).expect("text");
    assert!(!told.contains("rejoin: "), "{what}: {told}");
    let store = Store::open(Path::new(Store::FOLDER), &site.cache(), None).expect("it is there");
    store.cache().counters().hits
}

/// Returns the command that starts nginx, or `openssl s_server` with an option.
fn words_of(site: &Site, release: &Release, server: &str) -> Vec<String> {
    if server == "nginx" {
        let [configuration, log] = ["nginx.conf", "stderr"].map(|file| site.shown(file));
        let options = ["-c", &configuration, "-e", &log].map(str::to_owned);
        return [release.words("sbin/nginx"), options.to_vec()].concat();
    }
    let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
    let options = ["s_server", "-accept", &port, "-www", server, "-cert", &pair, "-key", &pair];
    [release.words("bin/openssl"), options.map(str::to_owned).to_vec()].concat()
}

fn come_back(client: &mut Client, what: &str) {
    client.connect();
    (0..5).for_each(|_| assert!(client.connect(), "{what}"));
}
