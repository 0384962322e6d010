//! `rejoin cluster run` and `rejoin keys export`, started as root.

use std::os::unix::fs::{MetadataExt, chown};
use std::process::{Command, Stdio};

use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::{Process, assert_has_no_rights, wait_until};
use rejoin_testkit::valkey::Valkey;

use crate::REJOIN;

const USER: &str = "daemon";

/// A cluster of one machine, whose files only its user can read.
pub(crate) struct Cluster {
    folder: Folder,
    pub(crate) valkey: Valkey,
}

impl Cluster {
    /// `None` if this is not root, who alone has rights to give up.
    fn start_as_root() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: no rights can be given up, and nothing is tested");
            return None;
        }
        Some(Self::start())
    }

    pub(crate) fn start() -> Self {
        let (folder, valkey) = (Folder::new(), Valkey::start(&[]));
        let settings = format!(
            "name = \"web\"\nservers = [\"127.0.0.1:{}\"]\nkey_file = {:?}\nfolder = {:?}\n\
             capacity = \"1MiB\"\n",
            valkey.port,
            folder.join("key"),
            folder.path(),
        );
        folder.write("cluster.toml", settings);
        let made = Command::new(REJOIN).args(["cluster", "key"]).arg(folder.join("key")).output();
        assert!(made.is_ok_and(|made| made.status.success()));
        Self { folder, valkey }
    }

    /// Its agent, and the address of its metrics.
    pub(crate) fn agent(&self) -> (Process, String) {
        let mut command = Command::new(REJOIN);
        command.args(["cluster", "run", "--metrics", "127.0.0.1:0"]).arg(self.option("settings"));
        let mut agent = Process::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        let address = |line: &str| {
            let (_, address) = line.split_once("metrics on http://")?;
            Some(address.strip_suffix("/metrics")?.to_owned())
        };
        let address = agent.lines().find(address);
        (agent, address)
    }

    /// The key that encrypts all that leaves the machine, as it is written.
    pub(crate) fn key(&self) -> String {
        let key = std::fs::read_to_string(self.folder.join("key")).expect("a key");
        key.trim_end().to_owned()
    }

    fn option(&self, name: &str) -> String {
        format!("--{name}={}", self.folder.file("cluster.toml"))
    }
}

fn quiet(command: &mut Command) -> Process {
    Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()))
}

#[test]
fn an_agent_gives_up_root_for_good() {
    let Some(cluster) = Cluster::start_as_root() else { return };
    let mut command = Command::new(REJOIN);
    command.args(["cluster", "run", "--user", USER]).arg(cluster.option("settings"));
    let mut agent = quiet(&mut command);
    // It is recorded once the first ring is there.
    let seen = cluster.folder.join("key.seen");
    wait_until("the first ring", || seen.metadata().is_ok_and(|file| file.len() > 0));
    assert_has_no_rights(agent.id(), USER);
    let file = seen.metadata().expect("there");
    assert_eq!((file.uid(), file.mode() & 0o777), (0, 0o600));
    assert_eq!(agent.terminate().code(), Some(0));
}

/// Only the shell that runs `--then` stays root's.
#[test]
fn an_exporter_gives_up_root_for_good_as_an_agent_does() {
    let Some(cluster) = Cluster::start_as_root() else { return };
    let (to, ran) = (Folder::new(), cluster.folder.join("ran"));
    let daemon = nix::unistd::User::from_name(USER).expect("users").expect("it is there");
    chown(to.path(), Some(daemon.uid.as_raw()), Some(daemon.gid.as_raw())).expect("given");
    let export = |name: &str, more: &[&str]| {
        let mut command = Command::new(REJOIN);
        command.args(["keys", "export", "--format", "nginx", "--context", "shop", "--user", USER]);
        command.arg(cluster.option("cluster")).arg("--output").arg(to.join(name));
        command.arg("--then").arg(format!("id -u >> {}", ran.display())).args(more);
        command
    };
    let mut exporter = quiet(&mut export("keys", &["--follow"]));
    let ids = || std::fs::read_to_string(&ran).unwrap_or_default();
    wait_until("the command", || ids() == "0\n");
    assert_has_no_rights(exporter.id(), USER);
    let list = to.join("keys/keys.conf").metadata().expect("written");
    assert_eq!((list.uid(), list.mode() & 0o777), (daemon.uid.as_raw(), 0o600));
    assert_eq!(exporter.terminate().code(), Some(0));
    let once = export("others", &[]).output().expect("it runs");
    assert!(once.status.success(), "{}", String::from_utf8_lossy(&once.stderr));
    assert_eq!(ids(), "0\n0\n");
    let list = to.join("others/keys.conf").metadata().expect("written");
    assert_eq!(list.uid(), daemon.uid.as_raw());
}
