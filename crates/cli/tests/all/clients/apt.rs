//! apt-get over https, with its sandbox user and without one. Its state, its settings and the root that it installs
//! into are in a folder of the test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use rejoin_testkit::manager::Managed;
use rejoin_testkit::process::Process;
use rejoin_testkit::shipped::library;

use crate::program::text;

const SERVER: &str = "\
import functools, http.server, ssl, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *said):
        pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
handler = functools.partial(Handler, directory=sys.argv[3])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
server.socket = context.wrap_socket(
    server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
server.serve_forever()
";

const CONTROL: &str = "\
Package: rejoin-probe
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@example.com>
Description: a file
";

/// Makes a repository with one package. `None` if this is no Debian.
fn repository(folder: &Path) -> Option<()> {
    let (package, site) = (folder.join("package"), folder.join("site"));
    for part in [package.join("DEBIAN"), package.join("opt/probe"), site.join("pool")] {
        fs::create_dir_all(part).expect("a folder");
    }
    fs::write(package.join("DEBIAN/control"), CONTROL).expect("a file");
    // What does not compress needs more than one record.
    let noise: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(at) >> 9) as u8).collect();
    fs::write(package.join("opt/probe/noise"), noise).expect("a file");
    let file = site.join("pool/rejoin-probe_1.0_all.deb");
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "--build"]).arg(&package).arg(&file).stdout(Stdio::null());
    build.status().ok().filter(|status| status.success())?;
    let size = fs::metadata(&file).expect("a package").len();
    let index = format!(
        "{CONTROL}Filename: pool/rejoin-probe_1.0_all.deb\nSize: {size}\nSHA256: {}\n",
        sha256(&file)?
    );
    fs::write(site.join("Packages"), &index).expect("a file");
    let release = format!(
        "Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {} {} Packages\n",
        sha256(&site.join("Packages"))?,
        index.len()
    );
    fs::write(site.join("Release"), release).expect("a file");
    Some(())
}

fn sha256(file: &Path) -> Option<String> {
    let output = Command::new("sha256sum").arg(file).output().ok()?;
    text(&output.stdout).split_whitespace().next().map(str::to_owned)
}

/// The traces of apt-get: exit codes, its output, and its files.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    said: Vec<(Option<i32>, String)>,
    files: BTreeMap<String, String>,
}

/// One machine's apt.
struct Apt<'a> {
    managed: &'a Managed,
    port: u16,
    user: &'a str,
    is_with: bool,
}

impl Apt<'_> {
    /// Updates, downloads and installs. Returns what is left, and Rejoin's lines.
    fn run(&self) -> (Left, Vec<String>) {
        let root = self.managed.file(&format!("apt-{}-{}", self.user, self.is_with));
        let root = Path::new(&root);
        for part in [
            "etc/preferences.d",
            "log",
            "state/lists/partial",
            "cache/archives/partial",
            "root/var/lib/dpkg",
            "here",
        ] {
            fs::create_dir_all(root.join(part)).expect("a folder");
        }
        fs::write(root.join("root/var/lib/dpkg/status"), "").expect("a file");
        let source = format!("deb [trusted=yes] https://localhost:{}/ ./\n", self.port);
        fs::write(root.join("etc/sources.list"), source).expect("a file");
        fs::write(root.join("apt.conf"), self.settings(root)).expect("a file");
        if self.user == "_apt" {
            let mut id = Command::new("id");
            let output = id.args(["-u", "_apt"]).output().expect("coreutils");
            let uid = text(&output.stdout).trim().parse().expect("apt's user");
            chown(root.join("here"), Some(uid), None).expect("we are root");
        }
        let (mut said, mut lines) = (Vec::new(), Vec::new());
        for words in [
            &["update"][..],
            &["download", "rejoin-probe"],
            &["install", "--yes", "--allow-unauthenticated", "rejoin-probe"],
        ] {
            let mut apt = Command::new("apt-get");
            apt.args(words).current_dir(root.join("here")).env("APT_CONFIG", root.join("apt.conf"));
            apt.env("LC_ALL", "C").stdin(Stdio::null());
            if self.is_with {
                apt.env("LD_PRELOAD", self.managed.file("libraries/librejoin_preload.so"));
                apt.env("REJOIN_MANAGER", self.managed.socket()).env("REJOIN_DEBUG", "1");
                apt.env("REJOIN_PATIENCE_MS", "20000");
            }
            let output = apt.output().expect("it runs");
            let told = text(&output.stderr);
            let ours = told.lines().filter(|line| line.starts_with("rejoin: "));
            lines.extend(ours.map(str::to_owned));
            let own = |line: &&str| !line.starts_with("rejoin: ") && !line.starts_with("Fetched ");
            let all = text(&output.stdout) + &told;
            let all: Vec<_> = all.lines().filter(own).collect();
            let all = all.join("\n").replace(&root.display().to_string(), "ROOT");
            said.push((output.status.code(), all));
        }
        let files = ["state/lists", "here", "root/opt"].map(|part| root.join(part));
        let files = files.iter().flat_map(|part| digests(part, part)).collect();
        (Left { said, files }, lines)
    }

    fn settings(&self, root: &Path) -> String {
        let root = root.display();
        format!(
            "Dir::State \"{root}/state\"; Dir::Cache \"{root}/cache\"; Dir::Etc \"{root}/etc\";\n\
             Dir::Log \"{root}/log\"; Dir::State::status \"{root}/root/var/lib/dpkg/status\";\n\
             Dir::Etc::main \"/dev/null\"; Dir::Etc::parts \"/dev/null\";\n\
             DPkg::Options {{ \"--root={root}/root\"; }};\n\
             Acquire::https::CaInfo \"{}\"; Acquire::Languages \"none\"; Acquire::Retries \"0\";\n\
             APT::Sandbox::User \"{}\";\n",
            self.managed.file("ca.pem"),
            self.user
        )
    }
}

/// The digests of all files below a folder, by their paths from there.
fn digests(folder: &Path, top: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(digests(&path, top));
        } else if path.file_name().is_some_and(|name| name != "lock") {
            let name = path.strip_prefix(top).expect("below it").display().to_string();
            found.push((name, sha256(&path).unwrap_or_default()));
        }
    }
    found
}

#[test]
fn apt_updates_downloads_and_installs() {
    let managed = Managed::start("apt");
    let folder = managed.file("repository");
    if chown(managed.file("ca.pem"), Some(0), None).is_err()
        || repository(Path::new(&folder)).is_none()
    {
        eprintln!("skipped: apt-get (needs root, and Debian)");
        return;
    }
    // The project may lie where apt's user does not get to.
    let libraries = managed.file("libraries");
    fs::create_dir(&libraries).expect("a folder");
    for name in ["librejoin_preload.so", "librejoin_gnutls.so"] {
        fs::copy(library(name), format!("{libraries}/{name}")).expect("a file");
    }
    // As the system's manager listens, which serves every user.
    let everybody = fs::Permissions::from_mode(0o666);
    fs::set_permissions(managed.socket(), everybody).expect("a socket");
    let (certificate, key) = managed.certify(&["localhost"]);
    let mut server = Command::new("/usr/bin/python3");
    server.args(["-c", SERVER, &certificate, &key, &format!("{folder}/site")]);
    let mut server = Process::start(server.stdout(Stdio::piped()).stderr(Stdio::null()));
    let port = server.lines().find(|line| line.parse().ok());
    for user in ["root", "_apt"] {
        let run = |is_with| Apt { managed: &managed, port, user, is_with }.run();
        let ((plain, _), (with, lines)) = (run(false), run(true));
        assert!(plain.said.iter().all(|(code, _)| *code == Some(0)), "{user}: {plain:#?}");
        assert!(plain.files.keys().any(|name| name.ends_with("noise")), "{user}: {plain:#?}");
        assert_eq!(plain, with, "{user}");
        let is_through = |line: &String| line.contains(": through the manager: ");
        assert!(!lines.is_empty() && lines.iter().all(is_through), "{user}: {lines:#?}");
    }
}
