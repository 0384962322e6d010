//! Java programs that are not changed, and the provider of `bindings/java`, which `-javaagent` puts
//! into them.

use std::path::Path;
use std::process::Command;

use crate::managed::Managed;
use crate::servers::REJOIN;

const SOURCES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/java/src/main/java/rejoin");
const FETCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/Fetch.java");

/// A machine with Java: the provider and the program are compiled, and the manager's authority and
/// another one are in stores.
pub(crate) struct Jvm<'a> {
    managed: &'a Managed,
}

/// Whom a program believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Believes {
    TheAuthority,
    AnotherOne,
    /// Knows the authority, and decides otherwise.
    Nobody,
}

impl<'a> Jvm<'a> {
    /// `None` where there is no JDK.
    pub(crate) fn new(managed: &'a Managed, name: &str) -> Option<Self> {
        let file = |name| managed.file(name);
        let classes = file("classes");
        let sources = std::fs::read_dir(SOURCES).expect("the provider's sources");
        let sources = sources.map(|entry| entry.expect("a source").path());
        let mut compile = Command::new("javac");
        compile.args(["--release", "17", "-Xlint:all", "-Werror", "-d", &classes]).args(sources);
        let Ok(compiled) = compile.status() else {
            eprintln!("javac is not installed: nothing is tested with Java");
            return None;
        };
        assert!(compiled.success(), "the provider is compiled without a warning");
        std::fs::write(file("manifest"), "Premain-Class: rejoin.Rejoin\n").expect("a file");
        let (jar, manifest) = (file("rejoin.jar"), file("manifest"));
        done(
            Command::new("jar")
                .args(["--create", "--file", &jar, "--manifest", &manifest])
                .args(["-C", &classes, "."]),
        );
        done(Command::new("javac").args(["-d", &file("fetch")]).arg(FETCH));
        let other = Managed::start(Path::new(REJOIN), &format!("{name}-other"));
        for (store, authority) in
            [("TheAuthority", file("ca.pem")), ("AnotherOne", other.file("ca.pem"))]
        {
            let mut import = Command::new("keytool");
            import.args(["-importcert", "-noprompt", "-alias", "authority", "-file", &authority]);
            import.args(["-storetype", "PKCS12", "-storepass", "changeit"]);
            done(import.args(["-keystore", &file(store)]).stderr(std::process::Stdio::null()));
        }
        Some(Self { managed })
    }

    /// What a program says of a URL, and whether it went well. `with` the provider or without.
    pub(crate) fn fetch(&self, with: bool, believes: Believes, url: &str) -> (String, bool) {
        let mut command = Command::new("java");
        if with {
            command.arg(format!("-javaagent:{}", self.managed.file("rejoin.jar")));
            command.arg(format!("-Drejoin.socket={}", self.managed.socket()));
        }
        let known = match believes {
            Believes::AnotherOne => "AnotherOne",
            Believes::TheAuthority | Believes::Nobody => "TheAuthority",
        };
        let store = self.managed.file(known);
        command.arg(format!("-Djavax.net.ssl.trustStore={store}"));
        command.args(["-Djavax.net.ssl.trustStorePassword=changeit", "-Xshare:auto"]);
        command.args(["-cp", &self.managed.file("fetch"), "Fetch", url]);
        if believes == Believes::Nobody {
            command.arg("no");
        }
        let ran = command.output();
        let ran = ran.expect("a JDK has java");
        (String::from_utf8_lossy(&ran.stdout).trim().to_owned(), ran.status.success())
    }
}

fn done(command: &mut Command) {
    let status = command.status().expect("a part of the JDK");
    assert!(status.success(), "{command:?}");
}
