//! Programs that refuse a server in unusual ways, or are interrupted. With Rejoin none accepts a server that it refuses
//! without.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rejoin_testkit::certificates::Authority;
use rejoin_testkit::certificates::rcgen::{KeyPair, PKCS_RSA_SHA256};
use rejoin_testkit::clients::with_rejoin;
use rejoin_testkit::clients::world::{Service, compiled, compiled_with};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::process::Process;
use rejoin_testkit::stacks::{Tls, started};

use crate::program::text;

/// One of the C programs, a manager and servers.
struct Ground {
    managed: Managed,
    program: PathBuf,
}

/// A program's output, and its exit code.
type Ended = (String, Option<i32>);

/// The ends of a program without Rejoin and with it, and Rejoin's lines.
struct Both {
    without: Ended,
    with: Ended,
    told: String,
}

impl Ground {
    /// `None` where the program cannot be compiled.
    fn new(name: &str) -> Option<Self> {
        Self::of(name, |managed| compiled(managed, "refusals"))
    }

    fn with_gnutls(name: &str) -> Option<Self> {
        Self::of(name, |managed| compiled_with(managed, "gnutls_refusals", &["-lgnutls"]))
    }

    fn of(name: &str, compiled: impl FnOnce(&Managed) -> Option<PathBuf>) -> Option<Self> {
        let managed = Managed::start(name);
        std::fs::write(managed.file("other.pem"), Authority::new().pem()).expect("a file");
        let program = compiled(&managed);
        if program.is_none() {
            eprintln!("skipped: there is no compiler, or no library for it");
        }
        Some(Self { program: program?, managed })
    }

    fn service(&self, tls: Tls) -> Service {
        Service::openssl(&self.managed, tls).expect("openssl is installed")
    }

    /// Runs the program with these words, which trusts the authority in this file.
    fn both(&self, how: &str, port: u16, authority: &str) -> Both {
        let run = |with: bool| {
            // A program that hangs counts as different.
            let mut command = Command::new("timeout");
            command.args(["--foreground", "30"]).arg(&self.program).args([how, &port.to_string()]);
            command.arg(self.managed.file(authority)).stdin(Stdio::null());
            if with {
                with_rejoin(&mut command, &self.managed.socket(), 20_000);
            }
            let output = command.output().expect("it runs");
            ((text(&output.stdout), output.status.code()), text(&output.stderr))
        };
        let ((without, _), (with, told)) = (run(false), run(true));
        Both { without, with, told }
    }
}

impl Both {
    /// Asserts that it ended the same way, and with this exit code.
    fn is_same(&self, code: i32, what: &str) {
        let Self { without, with, told } = self;
        assert_eq!(with, without, "{what}: {told}");
        assert_eq!(with.1, Some(code), "{what}: {with:?}");
    }

    /// Asserts that it ended with a refusal either way.
    fn refuses(&self, what: &str) {
        let Self { without, with, told } = self;
        for ended in [without, with] {
            assert_eq!(ended.1, Some(1), "{what}: {ended:?}, {told}");
            assert!(ended.0.contains("written: 0"), "{what}: {ended:?}, {told}");
        }
    }

    fn went_through(&self) -> bool {
        self.told.contains(": through the manager: ")
    }
}

/// A callback may ask to be called again (`SSL_set_retry_verify`), and refuse then.
#[test]
fn what_is_undecided_is_not_accepted() {
    let Some(ground) = Ground::new("refusals-later") else { return };
    for tls in Tls::ALL {
        let service = ground.service(tls);
        let port = service.port;
        for (how, code) in [("later, refuse", 1), ("later", 0), ("later, refuse", 1)] {
            let both = ground.both(how, port, "ca.pem");
            both.is_same(code, how);
            assert!(both.went_through(), "{}", both.told);
            assert_eq!(both.with.0.matches(": 12, ").count(), 1, "{}", both.with.0);
        }
    }
}

/// A chain with an RSA key in it, which Suite B does not allow (RFC 6460).
#[test]
fn suite_b_is_applied() {
    let Some(ground) = Ground::new("refusals-suite-b") else { return };
    let authority = Authority::with_key(KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key"));
    std::fs::write(ground.managed.file("rsa.pem"), authority.pem()).expect("a file");
    authority.issue(&["localhost"]).write(Path::new(&ground.managed.file("under-rsa")));
    let (_server, port) = page_server(&ground.managed, "under-rsa");
    let good = ground.service(Tls::V12);
    for how in ["SUITEB128", "SUITEB128ONLY"] {
        ground.both(how, port, "rsa.pem").is_same(1, how);
        ground.both(how, good.port, "ca.pem").is_same(0, how);
    }
}

/// A server of the manager's folder with this certificate.
fn page_server(managed: &Managed, file: &str) -> (Process, u16) {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-WWW", "-accept", "127.0.0.1:0"]).current_dir(managed.file(""));
    command.args(["-cert", &format!("{file}.pem"), "-key", &format!("{file}.key")]);
    let port = |line: &str| line.strip_prefix("ACCEPT 127.0.0.1:")?.parse().ok();
    started(&mut command, port).expect("openssl is installed")
}

/// A program may move its socket to another number while the manager decides.
#[test]
fn a_socket_that_moves_is_not_accepted_unseen() {
    let Some(ground) = Ground::new("refusals-moved") else { return };
    let service = ground.service(Tls::V13);
    ground.both("moved", service.port, "other.pem").refuses("libssl");
    let Some(ground) = Ground::with_gnutls("refusals-moved-gnutls") else { return };
    let service = ground.service(Tls::V13);
    ground.both("moved", service.port, "other.pem").is_same(1, "GnuTLS");
}

/// A program of GnuTLS may shake hands again after a refusal.
#[test]
fn a_refusal_stays_one() {
    let Some(ground) = Ground::with_gnutls("refusals-again") else { return };
    for tls in Tls::ALL {
        let service = ground.service(tls);
        for (how, authority, code) in
            [("again", "other.pem", 1), ("once", "ca.pem", 0), ("once", "other.pem", 1)]
        {
            let both = ground.both(how, service.port, authority);
            both.is_same(code, how);
            assert!(both.went_through(), "{}", both.told);
        }
    }
}

/// A program may leave a handshake by `longjmp`, and begin another with an SSL at the same address.
#[test]
fn a_handshake_that_was_left_judges_no_other() {
    let Some(ground) = Ground::new("refusals-left") else { return };
    let service = ground.service(Tls::V13);
    for (authority, code) in [("other.pem", 1), ("ca.pem", 0)] {
        let both = ground.both("left", service.port, authority);
        both.is_same(code, authority);
        assert!(both.went_through(), "{}", both.told);
    }
}

/// A callback sees the server, not the hop.
#[test]
fn a_callback_sees_the_server() {
    let Some(ground) = Ground::new("refusals-view") else { return };
    for tls in Tls::ALL {
        let service = ground.service(tls);
        for (how, code) in [("view", 0), ("view", 0), ("view, refuse", 1)] {
            let both = ground.both(how, service.port, "ca.pem");
            both.is_same(code, how);
            assert!(both.went_through(), "{}", both.told);
        }
    }
}

/// The library context and its properties decide which algorithms verify certificates, and nobody can ask for them.
#[test]
fn a_context_with_algorithms_of_its_own_is_left_alone() {
    let Some(ground) = Ground::new("refusals-algorithms") else { return };
    let service = ground.service(Tls::V13);
    for (how, goes_through) in [("new", true), ("new, properties", false), ("new, library", false)]
    {
        let both = ground.both(how, service.port, "ca.pem");
        both.is_same(0, how);
        assert_eq!(both.went_through(), goes_through, "{how}: {}", both.told);
    }
}
