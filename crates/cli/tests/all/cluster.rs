//! `rejoin cluster run` and `rejoin keys export`, started as root, and `rejoin cluster rekey`.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Stdio};

use rejoin_store::Store;
use rejoin_testkit::clock::Clock;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::{Process, Signal, assert_has_no_rights, wait_until};
use rejoin_testkit::programs::process_memory::search;
use rejoin_testkit::sentinels::replica;
use rejoin_testkit::valkey::Valkey;
use rejoin_tickets::PAGE_BYTES;

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

    /// The agent of another machine on this one, and the file of its settings.
    fn other(&self, machine: &str) -> (Process, String) {
        let folder = self.folder.join(machine);
        std::fs::create_dir(&folder).expect("a folder");
        let settings = std::fs::read_to_string(self.folder.join("cluster.toml")).expect("text");
        let [own, other] = [self.folder.path(), &folder].map(|of| format!("\nfolder = {of:?}\n"));
        let [key, copy] = [self.folder.join("key"), folder.join("key")];
        std::fs::copy(&key, &copy).expect("copied");
        let settings =
            settings.replace(&own, &other).replace(&format!("{key:?}"), &format!("{copy:?}"));
        let file = folder.join("cluster.toml").display().to_string();
        std::fs::write(&file, format!("machine = {machine:?}\n{settings}")).expect("written");
        let mut command = Command::new(REJOIN);
        (quiet(command.args(["cluster", "run", "--settings", &file])), file)
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

/// An agent runs for months. Whoever reads its memory then must not find the keys that it began with.
#[test]
fn an_agent_has_no_key_in_memory_that_its_ring_has_lost() {
    let Some(cluster) = Cluster::start_as_root() else { return };
    let (mut first, _) = cluster.agent();
    let store = Store::open(cluster.folder.path(), &"web".parse().expect("a name"), None);
    let (store, mut page) = (store.expect("the agent made it"), [0; PAGE_BYTES]);
    let ring = || store.ring().expect("free");
    wait_until("the first ring", || ring().is_some());
    assert_eq!(first.terminate().code(), Some(0));
    let (agent, _) = cluster.agent();
    ring().expect("the agent before had it").to_page(&mut page);
    const SECRET_AT: usize = 56;
    let secrets = [("the key", page[SECRET_AT..SECRET_AT + 32].to_vec())];
    let has_key = || !search(agent.id(), &secrets).found.is_empty();
    assert!(has_key());
    let id = ring().and_then(|ring| ring.list(0).next()).expect("a key").id;
    for step in [&["rotate"][..], &["revoke", &id.to_string()]] {
        let mut keys = Command::new(REJOIN);
        let done = keys.arg("keys").args(step).arg(cluster.option("cluster")).status();
        assert!(done.is_ok_and(|done| done.success()));
    }
    wait_until("the newer ring", || {
        !ring().is_some_and(|ring| ring.list(0).any(|key| key.id == id))
    });
    wait_until("no key in the agent's memory", || !has_key());
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

/// An agent, and the file of all that it says.
fn logged(cluster: &Cluster, more: &[&str]) -> (Process, impl Fn(&str) -> usize) {
    let path = cluster.folder.join("log");
    let log = std::fs::File::create(&path).expect("a file");
    let mut command = Command::new(REJOIN);
    command.args(["cluster", "run"]).args(more).arg(cluster.option("settings"));
    command.stdout(log.try_clone().expect("a descriptor")).stderr(log).stdin(Stdio::null());
    let agent = Process::start(&mut command);
    let seen = cluster.folder.join("key.seen");
    wait_until("the first ring", || seen.metadata().is_ok_and(|file| file.len() > 0));
    (agent, move |what: &str| std::fs::read_to_string(&path).expect("a log").matches(what).count())
}

/// Returns the output of a command of the cluster, and its exit code.
fn told(cluster: &Cluster, words: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(REJOIN);
    command.arg("cluster").args(words).arg(cluster.option("settings"));
    let told = command.output().expect("it runs");
    let text = [told.stdout, told.stderr].concat();
    (String::from_utf8(text).expect("text"), told.status.code())
}

#[test]
fn the_key_is_replaced_in_three_steps_and_each_is_told() {
    let cluster = Cluster::start();
    let (mut agent, says) = logged(&cluster, &[]);
    let taken = |steps| wait_until("the agent", || says("the key file has changed") == steps);
    let status = || {
        let (text, code) = told(&cluster, &["status", "--json"]);
        assert_eq!(code, Some(0), "{text}");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let first = status()["cluster_key"]["used"].clone();
    assert_eq!(status()["ring_key"], first);
    let (text, code) = told(&cluster, &["rekey", "use"]);
    assert!(code == Some(1) && text.contains("add comes before use"), "{text}");
    let takes = |step: &str| {
        let (text, code) = told(&cluster, &["rekey", step]);
        assert!(code == Some(0) && text.contains("copy it to all machines"), "{text}");
    };
    takes("add");
    let next = status()["cluster_key"]["next"].clone();
    assert!(next.is_string() && next != first, "{next}");
    assert_eq!((&status()["cluster_key"]["used"], &status()["ring_key"]), (&first, &first));
    taken(1);
    takes("use");
    taken(2);
    wait_until("the ring under the next key", || status()["ring_key"] == next);
    assert_eq!(
        status()["cluster_key"],
        serde_json::json!({"used": next, "next": null, "last": first})
    );
    let (text, _) = told(&cluster, &["status"]);
    assert!(text.contains("ones in Valkey are under it"), "{text}");
    takes("drop");
    taken(3);
    assert_eq!(
        status()["cluster_key"],
        serde_json::json!({"used": next, "next": null, "last": null})
    );
    assert_eq!(status()["ring_key"], next);
    // An agent that starts with it finds its cache.
    assert_eq!(agent.terminate().code(), Some(0));
    let (mut again, says) = logged(&cluster, &[]);
    wait_until("it is linked", || says("linked with") == 1);
    assert_eq!(again.terminate().code(), Some(0));
}

/// An exporter makes ticket keys as an agent does, so it must not stay with the last key.
#[test]
fn an_exporter_takes_each_step_too() {
    let cluster = Cluster::start();
    let log = cluster.folder.join("log");
    let file = std::fs::File::create(&log).expect("a file");
    let mut command = Command::new(REJOIN);
    command.args(["keys", "export", "--follow", "--format", "json", "--context", "shop"]);
    command.arg(cluster.option("cluster")).arg("--output").arg(cluster.folder.join("keys"));
    command.stdout(file.try_clone().expect("a descriptor")).stderr(file).stdin(Stdio::null());
    let mut exporter = Process::start(&mut command);
    let says = || std::fs::read_to_string(&log).expect("a log");
    wait_until("the first keys", || says().matches("new keys").count() == 1);
    for (number, step) in ["add", "use", "drop"].into_iter().enumerate() {
        assert_eq!(told(&cluster, &["rekey", step]).1, Some(0));
        let taken = || says().matches("key file has changed").count() == number + 1;
        wait_until("the exporter", taken);
    }
    let mut rotate = Command::new(REJOIN);
    let made = rotate.args(["keys", "rotate"]).arg(cluster.option("cluster")).output();
    assert!(made.expect("it runs").status.success());
    wait_until("the next keys", || says().matches("new keys").count() == 2);
    assert_eq!(exporter.terminate().code(), Some(0));
    assert!(!says().contains("cannot"), "{}", says());
}

/// A machine may have an exporter and no agent. Its file can be opened here, and not written to.
#[test]
fn an_exporter_says_that_it_cannot_record_the_newest_ring() {
    let cluster = Cluster::start();
    let (_agent, _) = logged(&cluster, &[]);
    std::fs::write(cluster.folder.join("key.seen"), "").expect("emptied");
    let mut export = Command::new("sh");
    export.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", REJOIN]);
    export.args(["keys", "export", "--format", "json", "--context", "shop", "--output", "keys"]);
    export.arg(cluster.option("cluster")).current_dir(&cluster.folder);
    let said = export.output().expect("it runs").stderr;
    let said = String::from_utf8(said).expect("text");
    let line = said.lines().next().unwrap_or_default();
    assert!(line.contains("key.seen") && line.contains("will not be recognised"), "{said}");
}

/// The key that encrypts is chosen by the clock, so an exporter says that it is wrong, as an agent does.
#[test]
fn an_exporter_says_that_its_clock_is_wrong() {
    let Some(clock) = Clock::ahead(600) else {
        eprintln!("skipped: faketime is not installed");
        return;
    };
    let cluster = Cluster::start();
    let (_agent, _) = logged(&cluster, &[]);
    let export = |name: &str, more: &[&str]| {
        let mut command = clock.command(REJOIN);
        command.args(["keys", "export", "--format", "json", "--context", "shop"]);
        command.arg(cluster.option("cluster")).arg("--output").arg(cluster.folder.join(name));
        command.args(more);
        command
    };
    let line = "clock is 600 s ahead of Valkey's";
    // A second may pass between the two.
    let is_told = |said: &str| said.contains(line) || said.contains(&line.replace("600", "599"));
    let once = export("once", &[]).output().expect("it runs");
    let said = String::from_utf8_lossy(&once.stderr).into_owned();
    assert!(once.status.success() && is_told(&said) && said.lines().count() == 1, "{said}");
    let log = cluster.folder.join("complaints");
    let mut follow = export("follows", &["--follow"]);
    follow.stdin(Stdio::null()).stdout(Stdio::null());
    let _exporter = Process::start(follow.stderr(std::fs::File::create(&log).expect("a file")));
    let said = || std::fs::read_to_string(&log).expect("a log");
    wait_until("it is told", || is_told(&said()));
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert_eq!(said().lines().count(), 1, "it is said once: {}", said());
    assert!(cluster.folder.join("follows").exists());
}

#[test]
fn status_shows_all_machines_and_those_with_a_problem_first() {
    const REPORTED: &str = "rejoin:{web}:reported";
    let cluster = Cluster::start();
    let (mut omega, of_omega) = cluster.other("omega");
    let settings = std::fs::read_to_string(cluster.folder.join("cluster.toml")).expect("text");
    cluster.folder.write("cluster.toml", format!("machine = \"alpha\"\n{settings}"));
    let status = |words: &[&str]| {
        let (text, code) = told(&cluster, &[&["status"], words].concat());
        assert_eq!(code, Some(0), "{text}");
        text
    };
    let record = || serde_json::from_str::<serde_json::Value>(&status(&["--json"])).expect("JSON");
    let (_alpha, _) = logged(&cluster, &[]);
    let are_there = |record: &serde_json::Value| {
        let machines = record["machines"].as_array().expect("a list");
        machines.len() == 2 && machines.iter().all(|machine| machine["ring_version"] == 1)
    };
    wait_until("two machines", || are_there(&record()));
    let shown = record();
    let names = |record: &serde_json::Value| {
        let of = |machine: &serde_json::Value| machine["machine"].as_str().map(str::to_owned);
        record["machines"].as_array().expect("a list").iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(names(&shown), ["alpha", "omega"]);
    for machine in shown["machines"].as_array().expect("a list") {
        assert_eq!(machine["key"], shown["cluster_key"]["used"]);
        let zeros = ["ring_lag", "rekey_step", "unanswered", "asked", "late", "dropped"];
        assert!(zeros.iter().all(|what| machine[what] == 0), "{machine}");
        assert!(machine["problems"] == serde_json::json!([]) && machine["site"].is_null());
        assert!(machine["seen_ms_ago"].as_u64().is_some_and(|ago_ms| ago_ms < 30_000));
    }
    assert_eq!((&shown["ring_version"], &shown["machines_unopened"]), (&1.into(), &0.into()));
    // Any machine shows all of them, and one without an agent does.
    omega.terminate();
    let other = Command::new(REJOIN).args(["cluster", "status", "--settings", &of_omega]).output();
    let text = String::from_utf8(other.expect("it runs").stdout).expect("text");
    assert!(text.contains("machines: 2") && text.contains("alpha"), "{text}");
    // Of the two only one goes on to report.
    let is_earlier = || {
        let machines = record()["machines"].as_array().expect("a list").clone();
        let ago = |name: &str| {
            let machine = machines.iter().find(|machine| machine["machine"] == name);
            machine.and_then(|machine| machine["seen_ms_ago"].as_u64()).expect("a time")
        };
        ago("omega") > ago("alpha")
    };
    wait_until("a later report", is_earlier);
    let first = "redis.call('ZRANGE', KEYS[1], 0, 0)[1]";
    let age = format!("return redis.call('ZINCRBY', KEYS[1], -40000, {first})");
    cluster.valkey.say(&format!("EVAL \"{age}\" 1 {REPORTED}"));
    cluster.valkey.say(&format!("ZADD {REPORTED} 7 forged"));
    cluster.valkey.say("HSET rejoin:{web}:machines forged forged");
    let shown = record();
    assert_eq!(names(&shown), ["omega", "alpha"]);
    assert_eq!(shown["machines"][0]["problems"], serde_json::json!(["silent"]));
    assert_eq!(shown["machines_unopened"], 1);
    let text = status(&[]);
    let lines: Vec<_> = text.lines().skip_while(|line| !line.starts_with("machines: ")).collect();
    let [counted, head, _, omega, alpha, unread] = lines[..] else { panic!("{text}") };
    assert_eq!(counted, "machines: 2; with a problem: 1");
    assert!(head.starts_with(" machine") && !head.contains("site"), "{text}");
    assert!(omega.contains("omega") && omega.contains("silent"), "{text}");
    assert!(alpha.contains("alpha") && alpha.contains(" – "), "{text}");
    assert!(unread.starts_with("reports that cannot be read: 1;"), "{text}");
    assert!(!text.contains("forged"), "{text}");
}

/// The file that root replaces belongs to the agent's user, or is root's.
#[test]
fn an_agent_that_gave_up_root_reads_its_own_key_file_again() {
    let Some(cluster) = Cluster::start_as_root() else { return };
    let daemon = nix::unistd::User::from_name(USER).expect("users").expect("it is there");
    let key = cluster.folder.join("key");
    // The folder is the test's own, and closed to others.
    std::fs::set_permissions(cluster.folder.path(), PermissionsExt::from_mode(0o755))
        .expect("ours");
    let settings = std::fs::read_to_string(cluster.folder.join("cluster.toml")).expect("text");
    cluster.folder.write("cluster.toml", format!("agent_user = {USER:?}\n{settings}"));
    let (mut agent, says) = logged(&cluster, &[]);
    assert_has_no_rights(agent.id(), USER);
    let (text, code) = told(&cluster, &["rekey", "add"]);
    assert_eq!(code, Some(0), "{text}");
    wait_until("it says so", || says("restart this process") == 1);
    chown(&key, Some(daemon.uid.as_raw()), None).expect("given");
    wait_until("it reads the file", || says("which is used next") == 1);
    let (text, code) = told(&cluster, &["rekey", "use"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(key.metadata().expect("there").uid(), daemon.uid.as_raw());
    wait_until("it reads the file", || says("which was used before") == 1);
    assert_eq!(says("restart this process"), 1);
    assert_eq!(agent.terminate().code(), Some(0));
}

/// A revocation that no replica has is lost with the primary.
#[test]
fn a_revocation_says_how_many_replicas_have_it() {
    let cluster = Cluster::start();
    let (_agent, _) = logged(&cluster, &[]);
    let keys = |words: &[&str]| {
        let mut command = Command::new(REJOIN);
        let told = command.arg("keys").args(words).arg(cluster.option("cluster")).output();
        let told = told.expect("it runs");
        let [text, errors] =
            [told.stdout, told.stderr].map(|text| String::from_utf8(text).expect("text"));
        assert!(told.status.success(), "{errors}");
        (text, errors)
    };
    let made = |text: &str| {
        let record = serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        (record["key"].as_str().expect("a key").to_owned(), record["replicas"].clone())
    };
    let (alone, replicas) = made(&keys(&["rotate", "--json"]).0);
    assert!(replicas.is_null(), "there are none: {replicas}");
    let replica = replica(cluster.valkey.port, &[]);
    let (text, errors) = keys(&["revoke", &alone]);
    assert!(text.contains("1 of 1 replicas") && errors.is_empty(), "{text}{errors}");
    let (second, replicas) = made(&keys(&["rotate", "--json"]).0);
    assert_eq!(replicas, 1);
    replica.process().signal(Signal::STOP);
    let (text, errors) = keys(&["revoke", &second]);
    assert!(text.contains("0 of 1 replicas"), "{text}");
    assert!(errors.contains("1 of 1 replicas of Valkey have not confirmed"), "{errors}");
    replica.process().signal(Signal::CONT);
}

/// Its servers go on with the key that was revoked.
#[test]
fn a_revocation_names_the_machines_that_have_not_followed() {
    let cluster = Cluster::start();
    let [(one, _), (other, _)] = ["one", "other"].map(|name| cluster.other(name));
    let reported = || cluster.valkey.say("HLEN rejoin:{web}:machines") == "2";
    wait_until("both", reported);
    let keys = |words: &[&str]| {
        let mut command = Command::new(REJOIN);
        let told = command.args(["keys", "--json"]).args(words).arg(cluster.option("cluster"));
        let told = told.output().expect("it runs");
        let errors = String::from_utf8(told.stderr).expect("text");
        (serde_json::from_slice::<serde_json::Value>(&told.stdout).expect(&errors), errors)
    };
    let revoke = || {
        let (made, _) = keys(&["rotate"]);
        keys(&["revoke", made["key"].as_str().expect("a key")])
    };
    let (told, errors) = revoke();
    assert_eq!((&told["machines_behind"], &*errors), (&serde_json::json!([]), ""));
    other.signal(Signal::STOP);
    let (told, errors) = revoke();
    assert_eq!(told["machines_behind"], serde_json::json!(["other"]), "{errors}");
    assert!(errors.contains("have not said so: other;"), "{errors}");
    other.signal(Signal::CONT);
    drop((one, other));
}

/// A restarted agent would have neither the last keys nor the file's.
#[test]
fn an_agent_whose_key_file_is_broken_is_not_to_be_restarted() {
    let cluster = Cluster::start();
    let (mut agent, says) = logged(&cluster, &[]);
    let (key, whole) = (cluster.folder.join("key"), cluster.key());
    for (broken, reason) in [(Some("0123"), "64 hexadecimal digits"), (None, "cannot read")] {
        match broken {
            Some(text) => drop(cluster.folder.write("key", text)),
            None => std::fs::remove_file(&key).expect("there"),
        }
        wait_until("it says so", || says(reason) == 1);
    }
    assert_eq!((says("restart this process"), says("only this process has")), (0, 2));
    cluster.folder.write("key", whole + "\n");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("ours");
    let status = || told(&cluster, &["status"]);
    wait_until("all is well", || status().1 == Some(0));
    assert_eq!(agent.terminate().code(), Some(0));
}

/// A disk that is full leaves nothing that the next try would take for a key. A file of no bytes is all that fits here.
#[test]
fn a_key_file_is_whole_or_not_there() {
    let folder = Folder::new();
    let file = folder.file("key");
    for trap in ["trap '' XFSZ; ", ""] {
        let mut command = Command::new("sh");
        let script = format!("{trap}ulimit -f 0; exec \"$0\" cluster key \"$1\"");
        let made = command.args(["-c", &script, REJOIN, &file]).output().expect("sh");
        let told = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(!made.status.success() && !folder.join("key").exists(), "{told}");
        // It was killed the second time.
        assert!(trap.is_empty() || folder.file_names().is_empty(), "{:?}", folder.file_names());
    }
    let made = Command::new(REJOIN).args(["cluster", "key", &file]).output().expect("it runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(std::fs::read(&file).expect("there").len(), 65);
}

#[test]
fn a_key_file_is_never_written_over() {
    let folder = Folder::new();
    let file = folder.join("key");
    let make =
        || Command::new(REJOIN).args(["cluster", "key"]).arg(&file).output().expect("it runs");
    assert!(make().status.success());
    let before = std::fs::read(&file).expect("there");
    let again = make();
    let told = String::from_utf8_lossy(&again.stderr);
    assert_eq!((again.status.code(), told.lines().count()), (Some(1), 1), "{told}");
    for part in ["it exists, and is never written over", "rejoin cluster rekey"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(std::fs::read(&file).expect("there"), before);
}
