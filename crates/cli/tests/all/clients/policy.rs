//! Programs that accept less than they would by default, against servers that accept little: with Rejoin they end as
//! without it, and servers are offered nothing that the program would not offer.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256};
use rejoin_testkit::clients::with_rejoin;
use rejoin_testkit::clients::world::{compiled, compiled_with};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::process::Process;
use rejoin_testkit::proxy;
use rejoin_testkit::shipped::library;
use rejoin_testkit::stacks::started;

/// A program, and how it is told what it accepts.
#[derive(Debug, Clone, Copy)]
enum Told {
    /// Options of curl.
    Curl(&'static [&'static str]),
    /// A line of curl's `openssl.cnf`.
    Configuration(&'static str),
    /// A statement about Python's `context`.
    Python(&'static str),
    /// Priorities of GnuTLS, for wget.
    Gnutls(&'static str),
}

use Told::{Configuration, Curl, Gnutls, Python};

const PROGRAMS: &[Told] = &[
    Curl(&[]),
    Curl(&["--curves", "X25519"]),
    Curl(&["--curves", "P-256"]),
    Curl(&["--curves", "P-384"]),
    Curl(&["--curves", "P-521"]),
    Curl(&["--curves", "X448:P-384"]),
    Curl(&["--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"]),
    Curl(&["--ciphers", "ECDHE-RSA-AES256-GCM-SHA384"]),
    Curl(&["--ciphers", "DHE-RSA-AES256-GCM-SHA384:AES256-SHA256"]),
    Curl(&["--tls13-ciphers", "TLS_AES_128_GCM_SHA256"]),
    Curl(&["--tls13-ciphers", "TLS_AES_256_GCM_SHA384"]),
    Curl(&["--tls13-ciphers", "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"]),
    Curl(&["--tlsv1.3"]),
    Curl(&["--tls-max", "1.2"]),
    Configuration("SignatureAlgorithms = RSA+SHA256:ECDSA+SHA256"),
    Configuration("SignatureAlgorithms = RSA-PSS+SHA256"),
    Configuration("SignatureAlgorithms = ECDSA+SHA384:ed25519"),
    Configuration("MinProtocol = TLSv1.3"),
    Configuration("CipherString = DEFAULT@SECLEVEL=3"),
    Configuration("CipherString = ECDHE+CHACHA20:@SECLEVEL=1"),
    Configuration("Options = -ExtendedMasterSecret"),
    Python("context.set_ecdh_curve('secp384r1')"),
    Python("context.set_ecdh_curve('prime256v1')"),
    Python("context.set_ciphers('ECDHE-ECDSA-AES256-GCM-SHA384')"),
    Python("context.set_ciphers('DEFAULT@SECLEVEL=4')"),
    Python("context.minimum_version = ssl.TLSVersion.TLSv1_3"),
    Gnutls("NORMAL"),
    Gnutls("NORMAL:-GROUP-ALL:+GROUP-SECP384R1"),
    Gnutls("NORMAL:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP521R1"),
    Gnutls("NORMAL:-SIGN-ALL:+SIGN-RSA-PSS-RSAE-SHA256:+SIGN-RSA-SHA256"),
    Gnutls("NORMAL:-SIGN-ALL:+SIGN-ECDSA-SHA384:+SIGN-ECDSA-SECP384R1-SHA384"),
    Gnutls("NORMAL:-AES-256-GCM:-CHACHA20-POLY1305"),
    Gnutls("NORMAL:-VERS-ALL:+VERS-TLS1.3"),
    Gnutls("NORMAL:%NO_SESSION_HASH"),
    Gnutls("SECURE192"),
];

/// A kind of key, and options of `openssl s_server`.
type Means = (&'static str, &'static [&'static str]);

const SERVERS: &[Means] = &[
    ("ecdsa", &[]),
    ("rsa", &[]),
    ("p384", &["-tls1_2"]),
    ("ecdsa", &["-groups", "X25519"]),
    ("ecdsa", &["-groups", "P-256"]),
    ("rsa", &["-groups", "P-384"]),
    ("rsa", &["-groups", "X448:P-521"]),
    ("rsa", &["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"]),
    ("ecdsa", &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"]),
    ("ecdsa", &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"]),
    ("ecdsa", &["-tls1_2", "-groups", "X25519"]),
    ("rsa", &["-tls1_2"]),
    ("rsa", &["-tls1_2", "-sigalgs", "RSA+SHA256"]),
    ("rsa", &["-tls1_3", "-sigalgs", "RSA-PSS+SHA384"]),
    ("ecdsa", &["-tls1_2", "-sigalgs", "ECDSA+SHA384"]),
];

/// A server that shows what it was offered.
struct Server {
    means: &'static Means,
    port: u16,
    _process: Process,
}

impl Server {
    fn start(managed: &Managed, number: usize, means: &'static Means) -> Self {
        let (kind, options) = means;
        let pair = match *kind {
            "rsa" => KeyPair::generate_for(&PKCS_RSA_SHA256),
            "p384" => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
            _ => KeyPair::generate(),
        };
        let file = format!("server-{number}");
        let pair = pair.expect("a key");
        let (certificate, key) = managed.issue(&pair, (&["localhost"], &file), |_| {});
        let mut command = Command::new("openssl");
        command.args(["s_server", "-www", "-accept", "127.0.0.1:0", "-cert", &certificate]);
        command.args(["-key", &key]).args(*options);
        let port = |line: &str| line.strip_prefix("ACCEPT 127.0.0.1:")?.parse().ok();
        let (_process, port) = started(&mut command, port).expect("openssl is installed");
        Self { means, port, _process }
    }
}

/// The outcome of one run.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stderr: String,
    offers: [BTreeSet<String>; 3],
    /// The suite that the server chose.
    suite: String,
    goes_through: bool,
}

const PYTHON: &str = "\
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[2])
exec(sys.argv[3])
try:
    print(urllib.request.urlopen(sys.argv[1], context=context).read().decode())
except OSError as error:
    print(error, file=sys.stderr)
    sys.exit(35)
";

fn command_of(managed: &Managed, server: &Server, told: Told) -> Command {
    let (url, ca) = (format!("https://localhost:{}/", server.port), managed.file("ca.pem"));
    let mut command = Command::new("timeout");
    command.args(["--foreground", "60"]).stdin(Stdio::null());
    match told {
        Curl(options) => command.args(["curl", "-sS", "--cacert", &ca]).args(options).arg(url),
        Configuration(line) => {
            let file = managed.file(&format!("openssl-{}.cnf", server.port));
            let text = format!(
                "openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\n{line}\n"
            );
            std::fs::write(&file, text).expect("a file");
            command.env("OPENSSL_CONF", file).args(["curl", "-sS", "--cacert", &ca, &url])
        }
        Python(statement) => command.args(["/usr/bin/python3", "-c", PYTHON, &url, &ca, statement]),
        Gnutls(priorities) => command.args(["wget", "-q", "-O-", "--tries=1"]).args([
            format!("--ciphers={priorities}"),
            format!("--ca-certificate={ca}"),
            url,
        ]),
    };
    command
}

fn run(managed: &Managed, server: &Server, told: Told, with: bool) -> Ended {
    let mut command = command_of(managed, server, told);
    if with {
        command.env("LD_PRELOAD", library("librejoin_preload.so"));
        command.env("REJOIN_MANAGER", managed.socket()).env("REJOIN_DEBUG", "1");
        command.env("REJOIN_PATIENCE_MS", "20000");
    }
    let output = command.output().expect("it runs");
    let page = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let goes_through = stderr.contains("through the manager");
    let others = stderr.lines().filter(|line| !line.starts_with("rejoin: "));
    let common = page.split_once("SSL end points:\n").map_or("", |(_, rest)| rest);
    let common = common.lines().take_while(|line| !line.contains(':') && !line.starts_with('-'));
    let list = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split(':').map(str::to_owned).filter(|word| !word.is_empty()).collect()
    };
    Ended {
        code: output.status.code(),
        stderr: others.map(|line| format!("{line}\n")).collect(),
        offers: [
            common.flat_map(str::split_whitespace).map(str::to_owned).collect(),
            list("Signature Algorithms: "),
            list("Supported groups: "),
        ],
        suite: page
            .split_once("Cipher is ")
            .map_or("", |(_, rest)| rest)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
        goes_through,
    }
}

/// Returns what is wrong with a run with Rejoin, if anything is.
fn wrong(plain: &Ended, with: &Ended) -> Option<&'static str> {
    // Once GnuTLS may use keys, it lists suites of TLS 1.2 beside TLS 1.3 alone. No server can choose one of them.
    let is_of_tls13 = |suite: &String| suite.starts_with("TLS_");
    let only_tls13 = plain.offers[0].iter().all(is_of_tls13);
    let matters = |suite: &&String| !only_tls13 || is_of_tls13(suite);
    let suites = with.offers[0].iter().filter(matters).all(|suite| plain.offers[0].contains(suite));
    let others = plain.offers.iter().zip(&with.offers).skip(1);
    let more = !suites || others.into_iter().any(|(plain, with)| !with.is_subset(plain));
    match () {
        () if plain.code != with.code => Some("another exit code"),
        () if plain.stderr != with.stderr => Some("another message"),
        () if more => Some("the server is offered more"),
        () if plain.code == Some(0) && !plain.offers[0].contains(&with.suite) => {
            Some("another suite")
        }
        () => None,
    }
}

#[test]
fn a_server_is_offered_what_the_program_accepts_and_nothing_else() {
    offered(3);
}

#[test]
#[ignore = "slow: all 525 cells; make test-all"]
fn every_server_is_offered_what_every_program_accepts_and_nothing_else() {
    offered(1);
}

/// Tries one of so many cells, others for each server.
fn offered(one_of: usize) {
    let managed = Managed::start(&format!("policy-{one_of}"));
    let servers: Vec<_> = SERVERS
        .iter()
        .enumerate()
        .map(|(number, means)| Server::start(&managed, number, means))
        .collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new((Vec::new(), 0, 0)));
    let take = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        servers.get(number).map(|server| (number, server))
    };
    let work = || {
        while let Some((number, server)) = take() {
            // Sessions of a program that accepts much.
            let first: Vec<_> = (0..3).map(|_| run(&managed, server, Curl(&[]), true)).collect();
            for told in PROGRAMS.iter().skip(number % one_of).step_by(one_of) {
                let (plain, with) =
                    (run(&managed, server, *told, false), run(&managed, server, *told, true));
                let mut found = found.lock().expect("nobody panics with it");
                found.1 += 1;
                found.2 += usize::from(with.goes_through);
                if let Some(what) = wrong(&plain, &with) {
                    found
                        .0
                        .push(format!("{:?} {told:?}: {what}: {plain:?} {with:?}", server.means));
                }
            }
            // No program's narrow settings are held against the server.
            let last = run(&managed, server, Curl(&[]), true);
            assert_eq!(last.goes_through, first[0].goes_through, "{:?}", server.means);
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let (wrong, cells, through) = found.into_inner().expect("nobody panics with it");
    eprintln!("{cells} cells, {through} through the manager, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{} of {cells}: {wrong:#?}", wrong.len());
    assert!(cells * one_of + SERVERS.len() * one_of > PROGRAMS.len() * SERVERS.len());
    assert!(through * 3 > cells, "{through} of {cells} went through the manager");
}

/// A server that takes keys refuses a key that it does not know.
#[test]
fn no_key_is_offered_where_no_manager_is() {
    let managed = Managed::start("no-manager");
    let Some(server) = compiled_with(&managed, "psk_server", &["-lgnutls"]) else {
        return eprintln!("skipped: a server with keys (needs cc and libgnutls28-dev)");
    };
    let (certificate, key) = managed.certify(&["localhost"]);
    let users = managed.file("users");
    std::fs::write(&users, "user:000102030405060708090a0b0c0d0e0f\n").expect("a file");
    let mut command = Command::new(&server);
    command.args([&certificate, &key, &users]);
    let (_process, port) = started(&mut command, |line| line.parse().ok()).expect("it runs");
    let server = Server { means: &SERVERS[0], port, _process };
    for told in [Curl(&[]), Python("pass"), Gnutls("NORMAL")] {
        let mut command = command_of(&managed, &server, told);
        let plain = command.output().expect("it runs");
        assert!(plain.status.success(), "{told:?} {plain:?}");
        for manager in [managed.file("nobody.sock"), "no".to_owned()] {
            command.env("LD_PRELOAD", library("librejoin_preload.so"));
            let with = command.env("REJOIN_MANAGER", &manager).output().expect("it runs");
            assert_eq!(with, plain, "{told:?} {manager}");
        }
        // With a manager, that is whom the program speaks to.
        command.env("REJOIN_MANAGER", managed.socket()).env("REJOIN_PATIENCE_MS", "20000");
        assert!(command.output().expect("it runs").status.success(), "{told:?}");
    }
}

/// Starts a server of TLS 1.2 with more priorities of GnuTLS, from a file that [`prioritize`] writes. `None` if it cannot be
/// built here.
fn tls12_server(managed: &Managed, more: &str) -> Option<Server> {
    let Some(program) = compiled_with(managed, "tls12_server", &["-lgnutls"]) else {
        eprintln!("skipped: needs cc and libgnutls28-dev");
        return None;
    };
    prioritize(managed, more);
    let (certificate, key) = managed.certify(&["localhost"]);
    let mut command = Command::new(&program);
    command.args([certificate, key, managed.file("priorities")]);
    let (_process, port) = started(&mut command, |line| line.parse().ok()).expect("it runs");
    Some(Server { means: &SERVERS[0], port, _process })
}

fn prioritize(managed: &Managed, more: &str) {
    std::fs::write(managed.file("priorities"), more).expect("a file");
}

/// A server that does not support secure renegotiation (RFC 5746) is refused by the programs that refuse it without
/// Rejoin. OpenSSL 3 does.
#[test]
fn a_server_without_secure_renegotiation_is_left_to_programs() {
    let managed = Managed::start("renegotiation");
    let Some(server) = tls12_server(&managed, "%DISABLE_SAFE_RENEGOTIATION") else { return };
    let lenient = Configuration("Options = UnsafeLegacyServerConnect");
    for (told, code) in [
        (Curl(&[]), 35),
        (lenient, 0),
        (Python("pass"), 35),
        (Gnutls("NORMAL"), 0),
        (Gnutls("NORMAL:%SAFE_RENEGOTIATION"), 4),
    ] {
        for _ in 0..2 {
            let (plain, with) =
                (run(&managed, &server, told, false), run(&managed, &server, told, true));
            assert_eq!(plain.code, Some(code), "{told:?} {plain:?}");
            assert_eq!((plain.code, &plain.stderr), (with.code, &with.stderr), "{told:?}");
            assert!(!with.goes_through, "{told:?} {with:?}");
        }
    }
}

/// A program whose connection cannot be made again, as through a proxy, is given up once at most for a server that lost
/// secure renegotiation and still resumes its sessions.
#[test]
fn a_server_that_loses_secure_renegotiation_fails_one_connection_at_most() {
    let managed = Managed::start("loses-5746");
    let Some(server) = tls12_server(&managed, "%SAFE_RENEGOTIATION") else { return };
    let proxy = format!("http://127.0.0.1:{}", proxy::connect::start());
    // OpenSSL alone would take the server.
    let lenient = Configuration("Options = UnsafeLegacyServerConnect");
    let fetch = |is_proxied: bool| {
        let mut command = command_of(&managed, &server, lenient);
        if is_proxied {
            command.args(["--proxytunnel", "--proxy", &proxy]);
        }
        with_rejoin(&mut command, &managed.socket(), 20_000);
        let output = command.output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), told.contains("through the manager: "), told)
    };
    for is_proxied in [false, true] {
        let (works, goes_through, told) = fetch(is_proxied);
        assert!(works && goes_through, "{told}");
    }
    prioritize(&managed, "%DISABLE_SAFE_RENEGOTIATION");
    fetch(true);
    for _ in 0..2 {
        let (works, goes_through, told) = fetch(true);
        assert!(works && !goes_through, "{told}");
    }
}

/// A program that asks hears what the server supports, and not what the hop does.
#[test]
fn extended_master_secrets_are_the_servers() {
    let managed = Managed::start("master-secret");
    let Some(verify) = compiled(&managed, "verify") else {
        return eprintln!("skipped: needs cc and libssl-dev");
    };
    let Some(server) = tls12_server(&managed, "%SAFE_RENEGOTIATION") else { return };
    for (priority, expected) in
        [("%NO_SESSION_HASH", "secret 0"), ("%SAFE_RENEGOTIATION", "secret 1")]
    {
        prioritize(&managed, priority);
        let mut command = Command::new(&verify);
        command.args(["localhost", &server.port.to_string(), &managed.file("ca.pem")]);
        let plain = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&plain.stdout).into_owned();
        assert!(said.contains("secure renegotiation 1, "), "{said}");
        assert!(said.contains(expected), "{priority} {said}");
        with_rejoin(&mut command, &managed.socket(), 20_000);
        // GnuTLS resumes no session without such a secret.
        for _ in 0..2 {
            let with = command.output().expect("it runs");
            let told = String::from_utf8_lossy(&with.stderr);
            assert!(told.contains("through the manager: "), "{priority} {told}");
            assert_eq!(String::from_utf8_lossy(&with.stdout), said, "{priority}");
        }
    }
}
