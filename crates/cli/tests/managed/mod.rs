//! A manager that tests start, and servers' certificates by an authority that it believes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A `rejoin manager`, its folder and its authority; killed when dropped.
pub(crate) struct Managed {
    program: PathBuf,
    /// Short: a socket's path has 107 characters at most.
    folder: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
    pub(crate) child: Option<Child>,
}

impl Managed {
    pub(crate) fn start(program: &Path, name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("rejoin-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
        // OpenSSL takes a certificate whose issuer has its own name for a self-signed one.
        parameters.distinguished_name.push(DnType::CommonName, "an authority");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(parameters, key).expect("an authority");
        let mut managed = Self { program: program.to_owned(), folder, authority, child: None };
        std::fs::write(managed.file("ca.pem"), managed.authority.pem()).expect("a file");
        managed.set("");
        managed
    }

    /// Starts the manager, and waits until it serves.
    pub(crate) fn run(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["manager", "--socket", &self.socket()]);
        command.args(["--settings", &self.file("manager.toml")]).stdout(Stdio::piped());
        self.child = Some(serving(&mut command));
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn socket(&self) -> String {
        self.file("m.sock")
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A certificate for these names and its key, as files.
    pub(crate) fn certify(&self, names: &[&str]) -> (String, String) {
        let pair = KeyPair::generate().expect("a key");
        self.issue(&pair, (names, names[0]), |_| {})
    }

    /// For this key, in files of this name, and changed.
    pub(crate) fn issue(
        &self,
        pair: &KeyPair,
        (names, file): (&[&str], &str),
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (certificate, key) =
            (self.file(&format!("{file}.pem")), self.file(&format!("{file}.key")));
        let mut parameters = CertificateParams::new(names.clone()).expect("names");
        parameters.distinguished_name.push(DnType::CommonName, names[0].as_str());
        change(&mut parameters);
        let signed = parameters.signed_by(pair, &self.authority).expect("a certificate");
        std::fs::write(&certificate, signed.pem()).expect("a file");
        std::fs::write(&key, pair.serialize_pem()).expect("a file");
        (certificate, key)
    }

    /// Changes what its settings say, and starts it anew.
    pub(crate) fn set(&mut self, settings: &str) {
        let own = format!("system_bundle = {:?}\n{settings}\n", self.file("ca.pem"));
        std::fs::write(self.file("manager.toml"), own).expect("a file");
        self.kill();
        self.run();
    }
}

/// Starts a manager whose standard output is piped, and waits until it serves.
pub(crate) fn serving(command: &mut Command) -> Child {
    let mut child = command.spawn().expect("the program runs");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert!(line.starts_with("serving"), "{line}");
    child
}

impl Drop for Managed {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
