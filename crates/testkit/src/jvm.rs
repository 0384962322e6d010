//! Unchanged Java programs, and the provider of `bindings/java`, which `-javaagent` puts into them.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::manager::Managed;
use crate::shipped::target;

const SOURCES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/java/src/main/java/rejoin");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/java");
/// Programs on `HttpsURLConnection`, on `java.net.http`, on an `SSLEngine`, on `SSLSocket`s, and a class that some of them
/// need.
const SOURCE_FILES: [&str; 12] = [
    "Fetch",
    "Ask",
    "Drive",
    "Close",
    "Choose",
    "Protocols",
    "Visit",
    "Upload",
    "Options",
    "Named",
    "Probe",
    "Doubter",
];

/// A machine with Java: the manager's authority and another one are in stores.
pub struct Jvm<'a> {
    managed: &'a Managed,
    provider: String,
}

/// The authority that a program trusts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Believes {
    TheAuthority,
    AnotherOne,
    /// Knows the authority, and decides otherwise.
    Nobody,
}

impl<'a> Jvm<'a> {
    /// `None` where there is no JDK.
    pub fn new(managed: &'a Managed, name: &str) -> Option<Self> {
        static COMPILED: OnceLock<bool> = OnceLock::new();
        if !COMPILED.get_or_init(compile) {
            eprintln!("javac is not installed: nothing is tested with Java");
            return None;
        }
        let file = |name| managed.file(name);
        let other = Managed::start(&format!("{name}-other"));
        for (store, authority) in
            [("TheAuthority", file("ca.pem")), ("AnotherOne", other.file("ca.pem"))]
        {
            let mut import = Command::new("keytool");
            import.args(["-importcert", "-noprompt", "-alias", "authority", "-file", &authority]);
            import.args(["-storetype", "PKCS12", "-storepass", "changeit"]);
            done(import.args(["-keystore", &file(store)]).stderr(std::process::Stdio::null()));
        }
        Some(Self { managed, provider: compiled("rejoin.jar") })
    }

    /// With the provider of another jar.
    pub fn provided_by(self, jar: &Path) -> Self {
        Self { provider: jar.display().to_string(), ..self }
    }

    /// Runs a program on `HttpsURLConnection`. Returns its output, and true if it succeeded. `with` the provider or
    /// without.
    pub fn fetch(&self, with: bool, believes: Believes, url: &str) -> (String, bool) {
        self.run(with, believes, &["Fetch", url])
    }

    /// Runs a program on `java.net.http`, which takes further words.
    pub fn ask(&self, with: bool, believes: Believes, words: &[&str]) -> (String, bool) {
        self.run(with, believes, &[&["Ask"], words].concat())
    }

    /// Runs the same in a JVM with these options.
    pub fn ask_with(&self, with: bool, options: &[&str], words: &[&str]) -> (String, bool) {
        self.run_with(with, options, Believes::TheAuthority, &[&["Ask"], words].concat())
    }

    /// Runs a program that drives an `SSLEngine` itself.
    pub fn drive(&self, with: bool, port: u16) -> (String, bool) {
        self.run(with, Believes::TheAuthority, &["Drive", &port.to_string()])
    }

    /// Runs a program that closes an `SSLSocket` in the handshake.
    pub fn close(&self, with: bool) -> (String, bool) {
        self.run(with, Believes::TheAuthority, &["Close"])
    }

    /// Runs a program whose sockets have parameters of its own.
    pub fn choose(&self, with: bool, port: u16) -> (String, bool) {
        self.run(with, Believes::TheAuthority, &["Choose", &port.to_string()])
    }

    /// Runs a program that says what contexts of each name offer.
    pub fn protocols(&self, with: bool) -> (String, bool) {
        self.run(with, Believes::TheAuthority, &["Protocols"])
    }

    /// Runs a program that visits a port by `SSLSocket`s, in a JVM with these options. It takes further words.
    pub fn visit(&self, with: bool, options: &[&str], port: u16, words: &[&str]) -> (String, bool) {
        let port = port.to_string();
        let words = [&["Visit", &port], words].concat();
        self.run_with(with, options, Believes::TheAuthority, &words)
    }

    /// Runs a program that writes so many bytes to a port, so many times, and closes each socket at once.
    pub fn upload(&self, with: bool, port: u16, times: usize, bytes: usize) -> (String, bool) {
        let words = [port as usize, times, bytes].map(|number| number.to_string());
        self.run(with, Believes::TheAuthority, &["Upload", &words[0], &words[1], &words[2]])
    }

    /// Runs a program that sets the options of its sockets.
    pub fn options(&self, with: bool, port: u16) -> (String, bool) {
        self.run(with, Believes::TheAuthority, &["Options", &port.to_string()])
    }

    /// Runs a program that finds out what its sockets can do.
    pub fn probe(&self, with: bool, port: u16) -> (String, bool) {
        self.run(with, Believes::TheAuthority, &["Probe", &port.to_string()])
    }

    /// Runs a program that says which virtual hosts answer it at a port, and what comes of one where nobody listens, in a
    /// JVM with these options and hosts.
    pub fn names(
        &self,
        with: bool,
        options: &[&str],
        hosts: &str,
        ports: [u16; 2],
    ) -> (String, bool) {
        let file = self.managed.file("hosts");
        std::fs::write(&file, hosts).expect("a file");
        let hosts = format!("-Djdk.net.hosts.file={file}");
        let [port, nobody] = ports.map(|port| port.to_string());
        let words = ["Named", &port, &nobody];
        self.run_with(with, &[options, &[&hosts]].concat(), Believes::TheAuthority, &words)
    }

    /// Runs a program that looks into the provider's memory of certificates, or sees that there is none.
    pub fn intern(&self, interns: bool) -> (String, bool) {
        let mut command = Command::new("java");
        command.args(["-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
        if !interns {
            command.arg("-Drejoin.intern=false");
        }
        command.args(["-cp", &format!("{}:{}", compiled("rejoin.jar"), compiled("interned"))]);
        command.args(["rejoin.Interned", &self.managed.file("ca.pem")]);
        if !interns {
            command.arg("no");
        }
        said(&mut command)
    }

    fn run(&self, with: bool, believes: Believes, words: &[&str]) -> (String, bool) {
        self.run_with(with, &[], believes, words)
    }

    fn run_with(
        &self,
        with: bool,
        options: &[&str],
        believes: Believes,
        words: &[&str],
    ) -> (String, bool) {
        let mut command = Command::new("java");
        // It lives for a second.
        command.arg("-XX:TieredStopAtLevel=1").args(options);
        if with {
            command.arg(format!("-javaagent:{}", self.provider));
            command.arg(format!("-Drejoin.socket={}", self.managed.socket()));
        }
        let known = match believes {
            Believes::AnotherOne => "AnotherOne",
            Believes::TheAuthority | Believes::Nobody => "TheAuthority",
        };
        let store = self.managed.file(known);
        command.arg(format!("-Djavax.net.ssl.trustStore={store}"));
        command.args(["-Djavax.net.ssl.trustStorePassword=changeit", "-Xshare:auto"]);
        command.args(["-cp", &compiled("programs")]).args(words);
        if believes == Believes::Nobody {
            command.arg("no");
        }
        said(&mut command)
    }
}

fn said(command: &mut Command) -> (String, bool) {
    let ran = command.output().expect("a JDK has java");
    (String::from_utf8_lossy(&ran.stdout).trim().to_owned(), ran.status.success())
}

/// Compiles the provider into `rejoin.jar`, and the programs; once for all tests of a process. Returns false where there
/// is no JDK.
fn compile() -> bool {
    let (file, folder) = (compiled, target().join("tmp/java"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let sources = std::fs::read_dir(SOURCES).expect("the provider's sources");
    let sources = sources.map(|entry| entry.expect("a source").path());
    let mut provider = Command::new("javac");
    provider
        .args(["--release", "17", "-Xlint:all", "-Werror", "-d", &file("classes")])
        .args(sources);
    let Ok(compiled) = provider.status() else { return false };
    assert!(compiled.success(), "the provider is compiled without a warning");
    std::fs::write(file("manifest"), "Premain-Class: rejoin.Rejoin\n").expect("a file");
    done(
        Command::new("jar")
            .args(["--create", "--file", &file("rejoin.jar"), "--manifest", &file("manifest")])
            .args(["-C", &file("classes"), "."]),
    );
    let programs = SOURCE_FILES.map(|name| format!("{PROGRAMS}/{name}.java"));
    done(Command::new("javac").args(["-d", &file("programs")]).args(programs));
    done(
        Command::new("javac")
            .args(["-cp", &file("classes"), "-d", &file("interned")])
            .arg(format!("{PROGRAMS}/Interned.java")),
    );
    true
}

/// The path of a compiled file.
fn compiled(name: &str) -> String {
    target().join("tmp/java").join(name).display().to_string()
}

fn done(command: &mut Command) {
    let status = command.status().expect("a part of the JDK");
    assert!(status.success(), "{command:?}");
}
