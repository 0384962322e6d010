//! The same `librejoin.so`, which is linked against this machine's libssl, inside nginx and `openssl s_server` of newer
//! releases. `make target/openssl-3.5 target/openssl-3.6` downloads them from newer Debians, with the C library they
//! were built for. From 3.6 on a connection has no context yet when it is made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rejoin_store::Store;
use rejoin_testkit::process::Process;
use rejoin_testkit::shipped::library;
use rejoin_testkit::site::{Client, Site, Versions};

use crate::ways::compile;

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

/// The ways into a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    None,
    Module,
    Preload,
    Both,
}

impl Way {
    const ALL: [Self; 4] = [Self::None, Self::Module, Self::Preload, Self::Both];

    fn is_module(self) -> bool {
        matches!(self, Self::Module | Self::Both)
    }

    fn is_preload(self) -> bool {
        matches!(self, Self::Preload | Self::Both)
    }
}

/// The program of QUIC, and a release that it is linked with.
struct Quic<'a> {
    site: &'a Site,
    release: &'a Release,
    program: String,
}

impl<'a> Quic<'a> {
    fn new(site: &'a Site, release: &'a Release) -> Self {
        let [tls, crypto] =
            ["libssl.so.3", "libcrypto.so.3"].map(|name| release.libraries.join(name));
        let [tls, crypto] = [&tls, &crypto].map(|path| path.to_str().expect("text"));
        // They need a newer C library than this machine's.
        let more = ["-D_GNU_SOURCE", tls, crypto, "-Wl,--allow-shlib-undefined"];
        Self { site, release, program: compile(site, "quic.c", "quic", &more) }
    }

    /// Starts the program with these words.
    fn start(&self, way: Way, words: &[&str]) -> Process {
        let start = self.release.words(&self.program);
        let mut command = self.site.command(&start[0]);
        command.args(&start[1..]).args(words).stdout(Stdio::piped()).env("REJOIN_DEBUG", "1");
        if !way.is_module() {
            command.env("OPENSSL_CONF", "/dev/null");
        }
        if way.is_preload() {
            command.env("LD_PRELOAD", library("librejoin_preload.so"));
            command.envs([("REJOIN_CACHE", &*self.site.cache), ("REJOIN_CAPACITY", "1MiB")]);
            command.env("REJOIN_MANAGER", self.site.file("no-manager"));
        }
        Process::start(&mut command)
    }

    /// Runs the program to its end. Returns what it has said.
    fn run(&self, way: Way, words: &[&str]) -> String {
        let mut process = self.start(way, words);
        let lines = process.lines();
        let lines: Vec<String> = std::iter::from_fn(|| lines.next_line()).collect();
        let status = process.wait();
        assert!(status.success(), "{way:?} {words:?}: {status} {lines:?} {}", self.told());
        lines.join("\n")
    }

    fn told(&self) -> String {
        fs::read_to_string(self.site.file("stderr")).unwrap_or_default()
    }

    /// Returns what was said on standard error since the last call.
    fn take_told(&self) -> String {
        let told = self.told();
        let _ = fs::remove_file(self.site.file("stderr"));
        told
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

/// OpenSSL reports objects of QUIC, too, and a call on one that is being made would write beyond its end.
#[test]
#[ignore = "slow: needs target/openssl-3.5 and target/openssl-3.6; make test-all"]
fn quic_of_openssl_is_left_alone() {
    for name in ["3.5", "3.6"] {
        let release = Release::of(name).unwrap_or_else(|| panic!("run make target/openssl-{name}"));
        let site = Site::new("newer-quic");
        site.configure("log = all");
        let quic = Quic::new(&site, &release);
        let (port, certificate, pair) =
            (site.port.to_string(), site.shown("cert.pem"), site.shown("both.pem"));
        for (serving, connecting) in Way::ALL.into_iter().zip(Way::ALL) {
            let what = format!("{name} {serving:?}");
            let mut server = quic.start(serving, &["serve", &port, &pair]);
            let lines = server.lines();
            assert_eq!(lines.next_line().as_deref(), Some("serving"), "{what}: {}", quic.told());
            let told = quic.take_told();
            let is_told = told
                == "rejoin: OpenSSL's own QUIC is left alone: its clients resume as without Rejoin\n";
            assert!(if serving.is_module() { is_told } else { told.is_empty() }, "{what}: {told}");
            let client = quic.run(connecting, &["connect", &port, &certificate]);
            assert_eq!(client, "handshake 1, read 6, QUICv1", "{what}");
            let told = quic.take_told();
            // OpenSSL shakes hands by an SSL of its own inside, too.
            let mut lines_told = told.lines();
            let is_told = !told.is_empty()
                && lines_told.all(|line| line == "rejoin: directly: it is DTLS or QUIC");
            assert!(
                if connecting.is_preload() { is_told } else { told.is_empty() },
                "{what}: {told}"
            );
            let said = lines.next_line();
            assert_eq!(said.as_deref(), Some("handshake 1, read 2, resumed 0"), "{what}");
            assert!(server.wait().success(), "{what}");
        }
    }
}

#[test]
#[ignore = "slow: needs target/openssl-3.5 and target/openssl-3.6; make test-all"]
fn tls_beside_quic_of_openssl_resumes_as_without() {
    for name in ["3.5", "3.6"] {
        let release = Release::of(name).unwrap_or_else(|| panic!("run make target/openssl-{name}"));
        for (first, way) in
            ["first", "second"].into_iter().flat_map(|first| Way::ALL.map(|way| (first, way)))
        {
            let site = Site::new("newer-beside");
            site.configure("log = all");
            let quic = Quic::new(&site, &release);
            let said = quic.run(way, &["beside", first, &site.shown("both.pem")]);
            let (told, what) = (quic.take_told(), format!("{name} {way:?} {first}"));
            assert_eq!(said, "resumed 0\nresumed 1\nresumed 1", "{what}: {told}");
            // A context from before that of QUIC, whose connections would have got the callback while they were made.
            let is_lost = first == "second" && way.is_module();
            assert_eq!(
                told.contains(": attached, "),
                way != Way::None && !is_lost,
                "{what}: {told}"
            );
            let is_told = told.contains("its other connections may go on without Rejoin");
            assert_eq!(is_told, way.is_module(), "{what}: {told}");
        }
    }
}
