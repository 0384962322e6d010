//! `rejoin` in a cluster of two sites, at a machine whose site is not the home of the ticket keys.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::valkey::Valkey;

use crate::REJOIN;

/// A machine in Tokyo. The home is Berlin.
struct Machine {
    folder: Folder,
    berlin: Valkey,
    tokyo: Valkey,
}

impl Machine {
    fn new() -> Self {
        let (folder, berlin, tokyo) = (Folder::new(), Valkey::start(&[]), Valkey::start(&[]));
        let settings = format!(
            "name = \"web\"\nsite = \"tokyo\"\nhome = \"berlin\"\nservers = [\"127.0.0.1:{}\"]\n\
             key_file = {:?}\nfolder = {:?}\ncapacity = \"1MiB\"\n\
             [[sites]]\nname = \"berlin\"\nservers = [\"127.0.0.1:{}\"]\n",
            tokyo.port,
            folder.join("key"),
            folder.path(),
            berlin.port
        );
        folder.write("cluster.toml", settings);
        let made = Command::new(REJOIN).args(["cluster", "key"]).arg(folder.join("key")).output();
        assert!(made.is_ok_and(|made| made.status.success()));
        Self { folder, berlin, tokyo }
    }

    fn agent(&self) -> Process {
        let settings = self.folder.join("cluster.toml");
        let mut agent = Command::new(REJOIN);
        agent.args(["cluster", "run", "--settings"]).arg(settings);
        let said = File::create(self.folder.join("said")).expect("a file");
        Process::start(agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said))
    }

    fn keys(&self, words: &[&str]) -> Output {
        let mut keys = Command::new(REJOIN);
        keys.arg("keys").args(words).arg(format!("--cluster={}", self.folder.file("cluster.toml")));
        keys.output().expect("it runs")
    }

    /// Returns the answer of `rejoin cluster status`.
    fn status(&self, words: &[&str]) -> String {
        let mut status = Command::new(REJOIN);
        status.args(["cluster", "status"]).args(words);
        status.arg(format!("--settings={}", self.folder.file("cluster.toml")));
        let told = status.output().expect("it runs");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).expect("text")
    }

    /// The number of keys, and what is told beside them.
    fn list(&self) -> (usize, String) {
        let listed = self.keys(&["list", "--json"]);
        let keys = serde_json::from_slice::<Vec<serde_json::Value>>(&listed.stdout);
        let count = keys.map_or(0, |keys| keys.len());
        (count, String::from_utf8_lossy(&listed.stderr).into_owned())
    }
}

#[test]
fn keys_are_changed_at_home_and_shown_without_it() {
    let mut machine = Machine::new();
    let mut agent = machine.agent();
    wait_until("the first key", || machine.list().0 == 1);
    assert!(machine.keys(&["rotate"]).status.success());
    assert_eq!(machine.list(), (2, String::new()));
    let version = "HGET rejoin:{web}:ring version";
    wait_until("the copy", || machine.tokyo.say(version) == machine.berlin.say(version));
    machine.berlin.stop();
    let refused = machine.keys(&["rotate"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("berlin, the home of the ticket keys, cannot be reached"), "{told}");
    assert_eq!(refused.status.code(), Some(1));
    let (keys, told) = machine.list();
    assert!(keys == 2 && told.contains("this site has a copy"), "{keys} {told}");
    assert_eq!(told.matches("Connection refused").count(), 1, "the reason is told once: {told}");
    let to = machine.folder.file("keys");
    let exported = machine.keys(&["export", "--format=haproxy", "--context=shop", "--output", &to]);
    let told = String::from_utf8_lossy(&exported.stderr).into_owned();
    assert!(exported.status.success() && told.contains("berlin, the home"), "{told}");
    let told = machine.status(&[]);
    assert!(told.starts_with("cluster web: 2 ticket keys\n") && told.contains("linked"), "{told}");
    assert!(told.contains("\nthe machines of berlin are not known: "), "{told}");
    let shown: serde_json::Value =
        serde_json::from_str(&machine.status(&["--json"])).expect("JSON");
    assert_eq!(shown["machines_unread"][0]["site"], "berlin");
    let [own] = &shown["machines"].as_array().expect("a list")[..] else { panic!("{shown}") };
    assert_eq!(own["site"], "tokyo");
    let said = || std::fs::read_to_string(machine.folder.join("said")).expect("a file");
    wait_until("it is told", || said().contains("berlin, the home of its ticket keys: "));
    assert_eq!(agent.terminate().code(), Some(0));
}
