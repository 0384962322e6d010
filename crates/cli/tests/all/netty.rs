//! Netty servers with netty-tcnative in JVMs of their own, whose ticket keys come from `rejoin share`.

use std::env::consts::ARCH;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rejoin_testkit::certificates::{Authority, Pair};
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::serve::scratch;
use rejoin_testkit::site::{Client, Versions};

use crate::REJOIN;
use crate::published::done;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const NAME: &str = "netty";
/// The share makes a key a second while its clock runs faster.
const LOAD: Duration = Duration::from_secs(20);
const CLIENTS: usize = 4;
/// A user who has no name.
const OTHER: u32 = 4_242;

/// Offers a list of keys to whoever connects.
const IMPOSTOR: &str = r#"
import base64, json, os, socket, struct, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
listener.listen()
print('ready', flush=True)
key = {"key": base64.b64encode(bytes(48)).decode(), "state": "encrypting"}
answer = json.dumps({"rejoin": 1, "keys": [key], "ticket_lifetime_s": 3600}).encode()
kept = []
while True:
    server = listener.accept()[0]
    kept.append(server)
    try:
        server.sendall(struct.pack('>I', len(answer)) + answer)
        print(len(server.recv(4096)), flush=True)
    except OSError:
        print(0, flush=True)
"#;

/// The share, and the servers that ask it.
struct Place {
    folder: PathBuf,
    classpath: String,
}

struct Server {
    _process: Process,
    address: SocketAddr,
    /// The file of its standard error.
    stderr: PathBuf,
}

impl Server {
    fn told(&self) -> String {
        fs::read_to_string(&self.stderr).expect("its standard error")
    }
}

#[test]
#[ignore = "slow: needs a JDK and Maven; make test-all"]
fn netty_servers_resume_each_other_s_sessions_through_rotations() {
    assert!(faketime().exists(), "make test installs faketime");
    let place = Place::new("rotations");
    let [one, other] = [(); 2].map(|()| place.server("share.sock", "server", None));
    let addresses = [one.address, other.address];
    for versions in [Versions::Tls12, Versions::Tls13] {
        // There is no share yet.
        let mut client = Client::new(one.address, versions);
        assert_eq!([client.connect(), client.connect()], [false, true], "{versions:?}");
        client.address = other.address;
        assert!(!client.connect(), "{versions:?}");
    }

    let mut share = place.fast_share("+0");
    wait_until("they share", || resumes_at_the_other(addresses));
    let keys = place.ring();
    // On a machine that is too busy a server learns of a key after another one encrypts with it: three attempts.
    let is_enough = |(resumed, all): (usize, usize)| all > 1_000 && resumed * 100 >= all * 99;
    assert!((0..3).any(|_| is_enough(under_load(addresses))), "too few resumed");
    assert!(keys.iter().all(|key| !place.ring().contains(key)), "no key lasts that long");

    let number = share.id();
    share.kill();
    for file in [format!("faketime_shm_{number}"), format!("sem.faketime_sem_{number}")] {
        let _ = fs::remove_file(Path::new("/dev/shm").join(file));
    }
    assert!(resumes_at_the_other(addresses), "the share is gone");
    // The ring is twenty minutes ahead of this machine's clock.
    let mut share = place.fast_share("+25m");
    let mut old = Client::new(one.address, Versions::Tls12);
    old.connect();
    let ticket = old.session.lock().expect("no panic").clone();
    wait_until("an expired key opens nothing", || {
        old.session.lock().expect("no panic").clone_from(&ticket);
        !old.connect()
    });
    wait_until("they share again", || resumes_at_the_other(addresses));
    let third = place.server("share.sock", "server", None);
    wait_until("a server that starts shares", || {
        resumes_at_the_other([one.address, third.address])
    });
    share.terminate();
    for server in [one, other, third] {
        let told = server.told();
        assert!(!told.contains("DecoderException"), "a handshake failed: {told}");
    }
}

#[test]
#[ignore = "slow: needs a JDK and Maven; make test-all"]
fn netty_servers_that_check_certificates_alike_share() {
    let place = Place::new("certificates");
    let _share = place.share();
    let [one, other] = [(); 2].map(|()| place.server("share.sock", "server", Some("authority")));
    let strict = place.server("share.sock", "server", Some("stranger"));
    for versions in [Versions::Tls12, Versions::Tls13] {
        let visit = |address| {
            let client = place.folder.join("client.pem");
            let mut client = Client::presenting(one.address, versions, Some(&client));
            client.connect();
            client.address = address;
            // Over TLS 1.3 the server refuses after the client's handshake.
            let resumed = client.try_connect().ok()?;
            client.answers.last().filter(|answer| *answer == "ok").map(|_| resumed)
        };
        wait_until("they share", || visit(other.address).expect("its certificate is good"));
        let refused = visit(strict.address);
        assert_eq!(refused, None, "{versions:?}: the server trusts another authority");
    }
}

#[test]
#[ignore = "slow: needs a JDK and Maven; make test-all"]
fn a_share_of_another_user_gives_netty_no_keys() {
    let place = Place::new("impostor");
    let socket = place.folder.join("theirs");
    fs::create_dir_all(&socket).expect("a folder");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o755)).expect("ours");
    if chown(&socket, Some(OTHER), Some(OTHER)).is_err() {
        eprintln!("not root: nothing is tested with another user");
        return;
    }
    let socket = socket.join("share.sock");
    let _ = fs::remove_file(&socket);
    let mut command = Command::new("setpriv");
    let other = OTHER.to_string();
    command.args(["--reuid", &other, "--regid", &other, "--clear-groups"]);
    command.args(["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"]);
    command.args(["python3", "-c", IMPOSTOR]).arg(&socket).stdout(Stdio::piped());
    let mut impostor = Process::start(&mut command);
    let lines = impostor.lines();
    assert_eq!(lines.next_line().as_deref(), Some("ready"));

    let [one, other] = [(); 2].map(|()| place.server("theirs/share.sock", "server", None));
    // Each comes back after a second, and says nothing again.
    let heard = [(); 4].map(|()| lines.next_line());
    assert_eq!(heard.map(|bytes| bytes.expect("they come")), ["0"; 4].map(str::to_owned));
    assert!(!resumes_at_the_other([one.address, other.address]));
    impostor.kill();
    assert!(one.told().contains("is not believed: user 4242 listens there"));
}

/// Visits two servers from many clients for a while. Returns how many visits resumed, and all.
fn under_load(addresses: [SocketAddr; 2]) -> (usize, usize) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let versions = [Versions::Tls12, Versions::Tls13][number % 2];
                let done = &done;
                scope.spawn(move || visits(versions, addresses, done))
            })
            .collect();
        thread::sleep(LOAD);
        done.store(true, Ordering::Relaxed);
        let counts = clients.into_iter().map(|client| client.join().expect("no failed handshake"));
        let (resumed, all) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        eprintln!("{resumed} of {all} resumed in {LOAD:?}");
        (resumed, all)
    })
}

/// Visits two servers in turns, each time with the session of the last. Returns how many resumed, and how many did not
/// come for the first time.
fn visits(versions: Versions, addresses: [SocketAddr; 2], done: &AtomicBool) -> (usize, usize) {
    let mut client = Client::new(addresses[0], versions);
    client.connect();
    let (mut resumed, mut all) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        client.address = addresses[(all + 1) % 2];
        resumed += usize::from(client.connect());
        all += 1;
    }
    (resumed, all)
}

fn faketime() -> PathBuf {
    format!("/usr/lib/{ARCH}-linux-gnu/faketime/libfaketime.so.1").into()
}

fn resumes_at_the_other(addresses: [SocketAddr; 2]) -> bool {
    [Versions::Tls12, Versions::Tls13].into_iter().all(|versions| {
        let mut client = Client::new(addresses[0], versions);
        client.connect();
        client.address = addresses[1];
        client.connect()
    })
}

impl Place {
    /// Builds the modules, which runs their own tests.
    fn new(name: &str) -> Self {
        let folder = scratch(&format!("netty-{name}"));
        fs::remove_dir_all(&folder).expect("our own folder");
        fs::create_dir_all(folder.join("caches")).expect("a folder");
        let (authority, stranger) = (Authority::new(), Authority::new());
        Pair::of_localhost().write(&folder.join("server"));
        fs::write(folder.join("authority.pem"), authority.pem()).expect("a file");
        fs::write(folder.join("stranger.pem"), stranger.pem()).expect("a file");
        let client = authority.issue(&["client"]);
        let client = format!("{}{}", client.certificate, client.key);
        fs::write(folder.join("client.pem"), client).expect("a file");
        Self { folder, classpath: classpath().to_owned() }
    }

    fn share(&self) -> Process {
        Process::start(self.sharing(&mut Command::new(REJOIN)))
    }

    /// A share that makes a key a second, because its clock, which begins so much later, runs sixty times as fast.
    fn fast_share(&self, later: &str) -> Process {
        let mut fast = Command::new(REJOIN);
        self.sharing(&mut fast).args(["--rotate-every", "61s", "--ticket-lifetime", "5m"]);
        // The program `faketime` would stay between this process and its child.
        fast.env("LD_PRELOAD", faketime()).env("FAKETIME", format!("{later} x60"));
        Process::start(&mut fast)
    }

    fn sharing<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.args(["share", NAME, "--capacity", "1MiB", "--folder"]);
        command.arg(self.folder.join("caches")).arg("--socket").arg(self.folder.join("share.sock"));
        command.stdout(Stdio::null())
    }

    /// Returns the names of the keys, from the oldest to the newest.
    fn ring(&self) -> Vec<String> {
        let mut list = Command::new(REJOIN);
        list.args(["keys", "list", NAME, "--json", "--folder"]).arg(self.folder.join("caches"));
        let list = done(&mut list);
        let keys: Vec<serde_json::Value> = serde_json::from_str(&list).expect("JSON");
        keys.iter().map(|key| key["key"].as_str().expect("its name").to_owned()).collect()
    }

    /// Starts a server in a JVM of its own.
    fn server(&self, socket: &str, certificate: &str, authority: Option<&str>) -> Server {
        let file = |name: &str, ending: &str| self.folder.join(format!("{name}.{ending}"));
        let mut java = Command::new("java");
        java.args(["-XX:TieredStopAtLevel=1", "-cp", &self.classpath, "rejoin.netty.Server"]);
        java.args([file(certificate, "pem"), file(certificate, "key"), self.folder.join(socket)]);
        java.args(authority.map(|name| file(name, "pem")));
        static SERVERS: AtomicUsize = AtomicUsize::new(0);
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let stderr = self.folder.join(format!("stderr-{number}"));
        java.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(java.stderr(fs::File::create(&stderr).expect("a file")));
        let port: u16 = process.lines().find(|line| line.parse().ok());
        Server { _process: process, address: (Ipv4Addr::LOCALHOST, port).into(), stderr }
    }
}

/// The classes of the modules, of their tests, and of what they need: made once, which runs the modules' own tests.
fn classpath() -> &'static str {
    static MADE: OnceLock<String> = OnceLock::new();
    MADE.get_or_init(|| {
        let root = scratch("netty-maven");
        fs::remove_dir_all(&root).expect("our own folder");
        let folder = root.join("bindings/java");
        fs::create_dir_all(folder.join("netty")).expect("a folder");
        // Without what was compiled there before.
        let copy = |names: &[&str], to: &str| {
            let from = names.iter().map(|name| Path::new(ROOT).join("bindings/java").join(name));
            done(Command::new("cp").arg("--recursive").args(from).arg(folder.join(to)));
        };
        copy(&["pom.xml", "src", "all.xml"], ".");
        copy(&["netty/pom.xml", "netty/src"], "netty");
        let mut maven = Command::new("mvn");
        maven.args(["--batch-mode", "--no-transfer-progress", "--file", "all.xml", "verify"]);
        maven.args([
            "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath",
            "-Dmdep.outputFile=target/classpath",
        ]);
        done(maven.current_dir(&folder));
        let netty = folder.join("netty/target");
        let libraries = fs::read_to_string(netty.join("classpath")).expect("Maven wrote it");
        let classes =
            ["classes", "test-classes"].map(|name| netty.join(name).display().to_string());
        [&classes[..], &[libraries]].concat().join(":")
    })
}
