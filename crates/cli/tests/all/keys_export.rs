//! `rejoin keys export` without a cluster, and where something is in its way.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rejoin_cache::{Capacity, Settings};
use rejoin_store::{CacheName, RingFile, Store};
use rejoin_testkit::certificates::Pair;
use rejoin_testkit::clock::Clock;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::port::{reserve, wait_until_open};
use rejoin_testkit::process::{Process, wait_for, wait_until};
use rejoin_testkit::random::Random;
use rejoin_tickets::{KeyRing, Schedule};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::REJOIN;
use crate::keys::Shared;
use crate::program::{complaint, done, refusal, rejoin, text};

/// An exporter that follows, and what it says.
struct Exporter {
    process: Process,
    said: PathBuf,
    complaints: PathBuf,
}

impl Exporter {
    /// Starts `rejoin keys export --follow` with these words more.
    fn start(clock: &Clock, folder: &Folder, words: &[&str]) -> Self {
        Self::run(clock.command(REJOIN), folder, words)
    }

    fn run(mut command: Command, folder: &Folder, words: &[&str]) -> Self {
        let [said, complaints] = ["said", "complaints"].map(|name| folder.join(name));
        command.args(["keys", "export", "--follow", "--context", "shop"]).args(words);
        command.stdin(Stdio::null()).stdout(fs::File::create(&said).expect("a file"));
        command.stderr(fs::File::create(&complaints).expect("a file"));
        Self { process: Process::start(&mut command), said, complaints }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).expect("there")
    }

    fn complaints(&self) -> String {
        fs::read_to_string(&self.complaints).expect("there")
    }
}

/// A ring's words on a command line.
fn ring(folder: &Folder) -> [String; 2] {
    ["--ring".to_owned(), folder.file("ring")]
}

/// The keys of a file of format `json`, with their states. `None` if there is no file.
fn listed(path: &Path) -> Option<Vec<(String, String)>> {
    let listed: Value = serde_json::from_slice(&fs::read(path).ok()?).expect("a whole file");
    let keys = listed["keys"].as_array().expect("a list");
    let word = |key: &Value, name: &str| key[name].as_str().expect("a word").to_owned();
    Some(keys.iter().map(|key| (word(key, "key"), word(key, "state"))).collect())
}

#[test]
fn a_cache_or_a_file_is_enough() {
    let (shared, folder) = (Shared::with_keys("export"), Folder::new());
    let [option, file] = ring(&folder);
    let sources = [&[shared.name.as_str()][..], &[&option, &file]];
    let mut seen = HashSet::new();
    for source in sources {
        let export = |format: &str| {
            let into = folder.file(format);
            let words = ["--format", format, "--context", "shop", "--output", &into];
            let told = done(&[&["keys", "export"][..], source, &words].concat());
            (fs::read(&into).expect("written"), told)
        };
        let (raw, told) = export("raw80");
        assert!(raw.len() == 80 && told.ends_with("new keys\n"), "{told}");
        assert_eq!(
            export("raw80").1,
            format!("{}: its keys are the newest\n", folder.file("raw80"))
        );
        let envoy: Value = serde_json::from_slice(&export("envoy").0).expect("JSON");
        let secret = &envoy["resources"][0]["session_ticket_keys"]["keys"];
        assert_eq!(secret[0]["inline_bytes"], STANDARD.encode(&raw));
        done(&[&["keys", "rotate"][..], source].concat());
        let both = export("raw80").0;
        assert_eq!(
            (both.len(), &both[..80]),
            (160, &raw[..]),
            "the next one decrypts until its turn"
        );
        assert!(seen.insert(raw));
    }
    let missing = rejoin(&[
        "keys",
        "export",
        "no-such-cache",
        "--format",
        "raw80",
        "--context",
        "x",
        "--output",
        "x",
    ]);
    assert!(complaint(&missing).0.contains("no-such-cache"));
}

/// Others have another ring, or will make one. Nobody would learn of the keys that it went on to make.
#[test]
fn a_follower_ends_with_its_cache() {
    for is_replaced in [false, true] {
        let (shared, folder) = (Shared::with_keys("follow-lost"), Folder::new());
        let name = shared.name.to_string();
        let logs = Folder::new();
        let follow = |format: &str| {
            let words = [&name, "--format", format, "--output", &folder.file(format)];
            let logs = Folder::below(logs.path());
            (Exporter::run(Command::new(REJOIN), &logs, &words), logs)
        };
        let (mut files, _logs) = follow("json");
        let (mut sds, _logs) = follow("envoy-sds");
        let there = || ["json", "envoy-sds"].iter().all(|format| folder.join(format).exists());
        wait_until("the file and the socket", there);
        let keys = listed(&folder.join("json")).expect("a file");
        done(&["store", "remove", &name]);
        let _other = is_replaced.then(|| Shared::with_keys("follow-lost"));
        for exporter in [&mut files, &mut sds] {
            let ended = wait_for("the end", || exporter.process.ended());
            let told = exporter.complaints();
            assert!(!ended.success() && told.lines().count() == 1, "{told}");
            let is_clear = |part: &&str| told.contains(*part);
            assert!([&*name, "was removed or replaced"].iter().all(is_clear), "{told}");
        }
        assert_eq!(listed(&folder.join("json")).as_ref(), Some(&keys), "the server has these");
    }
}

/// Its memory is gone, although the name is there. A key that it went on with would be nobody else's, and nothing would rotate.
#[test]
fn a_follower_and_a_share_end_when_the_cache_is_cut_short() {
    let (caches, folder) = (Folder::new(), Folder::new());
    let name: CacheName = "web".parse().expect("a name");
    let settings = Settings::new(Capacity::Sessions(10));
    let store = Store::open(caches.path(), &name, Some(&settings)).expect("made");
    let in_folder = ["web", "--folder", &caches.path().display().to_string()].map(str::to_owned);
    let run = |words: &[&str]| {
        let logs = Folder::below(folder.path());
        let [said, complaints] = ["said", "complaints"].map(|name| logs.join(name));
        let mut command = Command::new(REJOIN);
        command.args(words).args(&in_folder).stdin(Stdio::null());
        command.stdout(fs::File::create(&said).expect("a file"));
        command.stderr(fs::File::create(&complaints).expect("a file"));
        (Process::start(&mut command), said, complaints, logs)
    };
    let export = ["keys", "export", "--follow", "--context", "shop", "--format"];
    let [json, sds, share] = ["json", "envoy-sds", "share"].map(|name| folder.file(name));
    let started = [
        run(&[&export[..], &["json", "--output", &json]].concat()),
        run(&[&export[..], &["envoy-sds", "--output", &sds]].concat()),
        run(&["share", "--socket", &share]),
    ];
    // The share listens before it opens the cache, so that one whose socket is taken makes none, and says when it has it.
    let (_, said, ..) = &started[2];
    let is_shared = || fs::read_to_string(said).is_ok_and(|said| said.contains("shared on"));
    let there = || [&json, &sds].iter().all(|path| Path::new(path).exists()) && is_shared();
    wait_until("the file and the sockets", there);
    let file = fs::File::options().write(true).open(caches.join(name.file_name()));
    file.expect("there").set_len(4_096).expect("cut");
    drop(store);
    for (mut process, _, complaints, _logs) in started {
        let ended = wait_for("the end", || process.ended());
        let told = fs::read_to_string(complaints).expect("there");
        assert!(!ended.success() && told.lines().count() == 1, "{told}");
        let parts = ["cache web", "was cut short", "rejoin store remove web"];
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    }
}

/// A turn lasts 200 ms. A reader finds whole files all the time, and a key that was encrypting never comes back once
/// another has followed.
#[test]
fn an_exporter_that_is_killed_leaves_whole_files() {
    const TIME: Duration = Duration::from_secs(6);
    let Some(clock) = Clock::faster(500) else {
        eprintln!("skipped: faketime is not installed");
        return;
    };
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [json, nginx] = ["json", "nginx"].map(|format| folder.file(format));
    let is_over = AtomicBool::new(false);
    let kill = |format: &str, seed| {
        let (logs, mut random, mut kills) = (Folder::new(), Random::new(seed), 0);
        while !is_over.load(Ordering::Relaxed) {
            let words = ["--format", format, "--output", &folder.file(format)];
            let turns = ["--rotate-every", "100s", "--ticket-lifetime", "300s"];
            let words = [&words[..], &[&option, &file], &turns].concat();
            let mut exporter = Exporter::start(&clock, &logs, &words);
            thread::sleep(Duration::from_millis(20 + random.below(200)));
            exporter.process.kill();
            kills += 1;
        }
        kills
    };
    let (encrypting, kills) = thread::scope(|scope| {
        let killers = [("json", 1), ("nginx", 2)];
        let killers = killers.map(|(format, seed)| scope.spawn(move || kill(format, seed)));
        // They end, too, if the reader finds a file that it should not.
        let ending = Over(&is_over);
        let (begin, mut encrypting) = (Instant::now(), Vec::new());
        while begin.elapsed() < TIME {
            let keys = listed(Path::new(&json)).unwrap_or_default();
            if let Some((key, state)) = keys.first() {
                assert_eq!(state, "encrypting");
                if encrypting.last() != Some(key) {
                    assert!(!encrypting.contains(key), "an old key encrypts again");
                    encrypting.push(key.clone());
                }
            }
            read_nginx(Path::new(&nginx));
        }
        drop(ending);
        (encrypting.len(), killers.map(|killer| killer.join().expect("no panic")))
    });
    assert!(encrypting > 5, "{encrypting} turns");
    assert!(kills.iter().all(|kills| *kills > 5), "{kills:?}");
}

/// Tells the killers, when it is dropped, that it is over.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads the list, and all files that it names, unless another list comes meanwhile.
fn read_nginx(folder: &Path) {
    let list = || fs::read_to_string(folder.join("keys.conf")).unwrap_or_default();
    let before = list();
    for line in before.lines() {
        let path = line.strip_prefix("ssl_session_ticket_key \"").expect("a key");
        let path = path.strip_suffix("\";").expect("the end of a line");
        let key = fs::read(path).unwrap_or_default();
        assert!(key.len() == 80 || list() != before, "{} bytes in {path}", key.len());
    }
}

/// A disk of two pages, in a mount namespace that ends with the exporter.
#[test]
fn a_full_disk_leaves_the_files_whole() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    fs::create_dir(folder.join("disk")).expect("a folder");
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=8k,mode=700 none \"$0\" && exec \"$@\"";
    command.args(["--map-root-user", "--mount", "sh", "-c", script, &folder.file("disk"), REJOIN]);
    let keys = folder.file("disk/keys");
    let words = ["--format", "json", "--output", &keys, &option, &file];
    let mut exporter = Exporter::run(command, &folder, &words);
    // Its own view of the folder.
    let disk =
        PathBuf::from(format!("/proc/{}/root{}", exporter.process.id(), folder.file("disk")));
    let count = || listed(&disk.join("keys")).map(|keys| keys.len());
    let first = wait_for("the first keys, or the end", || {
        count().map(Some).or_else(|| exporter.process.ended().map(|_| None))
    });
    if first.is_none() {
        eprintln!("skipped: no file system can be mounted here: {}", exporter.complaints());
        return;
    }
    let ballast = disk.join("ballast");
    let mut filling = fs::File::create(&ballast).expect("room for a name");
    while filling.write_all(&[1; 512]).is_ok() {}
    let rotate = || done(&["keys", "rotate", &option, &file]);
    rotate();
    wait_until("a complaint", || exporter.complaints().contains("No space left"));
    let told = exporter.complaints();
    // It looks once a second.
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(exporter.complaints(), told, "it is said once");
    assert!(told.lines().count() == 1 && told.contains("goes on with the keys it has"), "{told}");
    assert_eq!(count(), Some(1), "the old file is there");
    let names = fs::read_dir(&disk).expect("there").count();
    assert_eq!(names, 2, "the old file and the ballast, and nothing half written");
    fs::remove_file(&ballast).expect("removed");
    drop(filling);
    wait_until("the new keys", || count() == Some(2));
}

/// Half a minute of the exporter lasts half a second.
#[test]
fn a_server_that_refuses_is_told_again() {
    let Some(clock) = Clock::faster(60) else {
        eprintln!("skipped: faketime is not installed");
        return;
    };
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, asked, accepts] = ["keys", "asked", "accepts"].map(|name| folder.file(name));
    let then = format!("echo >>{asked}; test -e {accepts}");
    let words = ["--format", "raw80", "--output", &keys, "--then", &then, &option, &file];
    let exporter = Exporter::start(&clock, &folder, &words);
    let times = || fs::read(&asked).unwrap_or_default().len();
    wait_until("three refusals", || times() >= 3);
    let told = exporter.complaints();
    let is_clear = |part: &&str| told.contains(*part);
    let parts = ["exit status: 1", "the files are written", "told again every 30 s"];
    assert!(told.lines().count() == 1 && parts.iter().all(is_clear), "{told}");
    assert!(!exporter.said().contains("the server has the keys now"), "{}", exporter.said());
    fs::write(&accepts, "").expect("written");
    wait_until("its word", || exporter.said().ends_with("the server has the keys now\n"));
    let after = times();
    thread::sleep(Duration::from_secs(1));
    assert_eq!((times(), exporter.complaints()), (after, told), "it is told no more");
}

/// A reload that failed, or an exporter that ended before it, is made up for by the next run.
#[test]
fn the_next_run_tells_a_server_that_was_not_told() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, told] = ["keys", "told"].map(|name| folder.file(name));
    let run = |then: &str| {
        let words = ["keys", "export", "--context", "shop", "--format", "raw80", "--output", &keys];
        rejoin(&[&words[..], &["--then", then, &option, &file]].concat())
    };
    let tell = format!("echo >>{told}");
    let times = || fs::read(&told).unwrap_or_default().len();
    assert!(!run("false").status.success());
    for expected in [1, 1] {
        assert!(run(&tell).status.success());
        assert_eq!(times(), expected);
    }
    assert_eq!(folder.file_names(), [".ring.lock", "keys", "ring", "told"]);
    // One that follows does not know what the server has.
    let words = ["--format", "raw80", "--output", &keys, "--then", &tell, &option, &file];
    let _exporter = Exporter::run(Command::new(REJOIN), &folder, &words);
    wait_until("its word", || times() == 2);
}

/// A server whose keys are gone fails at its next reload, and the next key may come in twelve hours.
#[test]
fn files_that_are_gone_are_written_again() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, turns] = ["keys", "turns"].map(|name| folder.file(name));
    let then = format!("echo >>{turns}");
    let words = ["--format", "nginx", "--output", &keys, "--then", &then, &option, &file];
    let exporter = Exporter::run(Command::new(REJOIN), &folder, &words);
    let turns = || fs::read(&turns).unwrap_or_default().len();
    wait_until("the first turn", || turns() == 1);
    let list = Path::new(&keys).join("keys.conf");
    let before = fs::read_to_string(&list).expect("written");
    fs::remove_dir_all(&keys).expect("removed");
    let removed = Instant::now();
    wait_until("the second turn", || turns() == 2);
    // It looks once a second.
    assert!(removed.elapsed() < Duration::from_secs(4), "{:?}", removed.elapsed());
    assert_eq!(fs::read_to_string(&list).expect("again"), before);
    read_nginx(Path::new(&keys));
    let told = exporter.complaints();
    assert!(told.lines().count() == 1 && told.contains("written again"), "{told}");
    // Whoever removes them again and again reloads the server not every second.
    fs::remove_dir_all(&keys).expect("removed");
    thread::sleep(Duration::from_millis(2_500));
    assert!(!Path::new(&keys).exists() && turns() == 2);
}

/// Nobody can start it again with the rights that the exporter has given up, but its unit.
#[test]
fn an_exporter_ends_without_the_shell_that_tells_its_server() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, turns] = ["keys", "turns"].map(|name| folder.file(name));
    let then = format!("echo >>{turns}");
    let words = ["--format", "json", "--output", &keys, "--then", &then, &option, &file];
    let mut exporter = Exporter::run(Command::new(REJOIN), &folder, &words);
    wait_until("the first turn", || fs::read(&turns).is_ok_and(|turns| turns.len() == 1));
    let id = exporter.process.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("its own");
    let shell: i32 = children.trim().parse().expect("one child");
    let shell = Pid::from_raw(shell).expect("a process");
    kill_process(shell, Signal::KILL).expect("killed");
    let ended = wait_for("the end", || exporter.process.ended());
    let told = exporter.complaints();
    assert!(!ended.success() && told.lines().count() == 1, "{told}");
    assert!(told.contains("shell") && told.contains("start it again"), "{told}");
}

/// Root exports keys into a folder of the user whose server reads them.
#[test]
fn no_link_of_the_folders_owner_is_followed() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let theirs = folder.join("theirs");
    fs::create_dir(&theirs).expect("a folder");
    let victim = folder.write("victim", "untouched");
    std::os::unix::fs::symlink(&victim, theirs.join(".keys.untold")).expect("a link");
    if chown(&theirs, Some(1234), None).is_err() {
        return eprintln!("skipped: a folder of another user (needs root)");
    }
    let output = theirs.join("keys").display().to_string();
    let words = ["keys", "export", "--context", "shop", "--format", "raw80", "--output", &output];
    for _ in 0..2 {
        done(&[&words[..], &["--then", "true", &option, &file]].concat());
        assert_eq!(fs::read_to_string(&victim).expect("there"), "untouched");
    }
    assert!(!theirs.join(".keys.untold").exists());
}

/// A key that was revoked leaves the files while the server still works on the last ones.
#[test]
fn a_server_that_is_slow_keeps_no_key() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, turns] = ["keys", "turns"].map(|name| folder.file(name));
    let goes_on = folder.file("goes-on");
    let then = format!("echo >>{turns}; while ! test -e {goes_on}; do sleep 0.05; done");
    let words = ["--format", "json", "--output", &keys, "--then", &then, &option, &file];
    let exporter = Exporter::run(Command::new(REJOIN), &folder, &words);
    let turns = || fs::read(&turns).unwrap_or_default().len();
    wait_until("the first turn", || turns() == 1);
    let count = || listed(Path::new(&keys)).map_or(0, |keys| keys.len());
    let made = done(&["keys", "rotate", &option, &file]);
    let id = made.split([' ', ',']).nth(1).expect("an id");
    wait_until("two keys", || count() == 2);
    done(&["keys", "retire", id, &option, &file]);
    wait_until("the key to be gone", || count() == 1);
    assert_eq!(turns(), 1, "one at a time");
    fs::write(&goes_on, "").expect("written");
    wait_until("the second turn", || turns() == 2);
    assert_eq!(exporter.complaints(), "");
}

/// A command that runs `timeout` with a second for each time that `--then` has.
fn hasty(folder: &Folder) -> Command {
    let script = "#!/bin/sh\nfor word; do\nshift\ncase $word in 60 | 5) word=1 ;; esac\nset -- \"$@\" \"$word\"\ndone\n\
                  exec /usr/bin/timeout \"$@\"\n";
    let timeout = folder.write("timeout", script);
    fs::set_permissions(timeout, fs::Permissions::from_mode(0o755)).expect("ours");
    let path = std::env::var("PATH").expect("a path");
    let mut command = Command::new(REJOIN);
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    command
}

/// Returns true if a process runs. One that has ended and that nobody has waited for has no command line.
fn runs(process: &str) -> bool {
    fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// The server is told of later keys all the same, and the processes do not pile up.
#[test]
fn a_command_that_ignores_its_end_is_ended() {
    for is_beside in [false, true] {
        let folder = Folder::new();
        let [option, file] = ring(&folder);
        let [keys, turns] = ["keys", "turns"].map(|name| folder.file(name));
        let stays = format!("trap '' TERM; echo $$ >>{turns}; while :; do sleep 0.1; done");
        let script = folder.write("stays.sh", &stays);
        // The shell of the command ends when it is asked to, and the script does not.
        let beside = format!("sh {}; true", script.display());
        let then = if is_beside { &beside } else { &stays };
        let words = ["--format", "json", "--output", &keys, "--then", then, &option, &file];
        let mut exporter = Exporter::run(hasty(&folder), &folder, &words);
        let turns = || fs::read_to_string(&turns).unwrap_or_default();
        let told = || exporter.complaints().contains("still running after a minute");
        wait_until("the complaint", told);
        done(&["keys", "rotate", &option, &file]);
        wait_until("the second turn", || turns().lines().count() == 2);
        exporter.process.terminate();
        let all_ended = || turns().lines().all(|process| !runs(process));
        wait_until("the end of all that the command started", all_ended);
        assert_eq!(exporter.complaints().lines().count(), 1, "{}", exporter.complaints());
    }
}

/// A reload may start its server, which goes on when the command has ended.
#[test]
fn what_a_command_that_succeeds_leaves_goes_on() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let server = folder.file("server");
    let then = format!("sleep 20 & echo $! >{server}");
    let words = ["--format", "json", "--output", &folder.file("keys"), "--then", &then];
    let words = [&words[..], &[&option, &file]].concat();
    let exporter = Exporter::run(Command::new(REJOIN), &folder, &words);
    let server = || fs::read_to_string(&server).unwrap_or_default().trim().to_owned();
    wait_until("the server", || !server().is_empty());
    thread::sleep(Duration::from_secs(1));
    assert!(runs(&server()), "{}", exporter.complaints());
    let server = Pid::from_raw(server().parse().expect("a process")).expect("a process");
    kill_process(server, Signal::KILL).expect("ours");
}

/// Exports once, with these words more.
fn export_once(folder: &Folder, words: &[&str]) -> Output {
    let [option, file] = ring(folder);
    rejoin(&[&["keys", "export", "--context", "shop"][..], words, &[&option, &file]].concat())
}

/// A run by hand, or a second instance, may be first. The server must not go on with a key that was revoked.
#[test]
fn keys_that_another_run_wrote_are_told_too() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, turns] = ["keys", "turns"].map(|name| folder.file(name));
    let then = format!("echo >>{turns}");
    let words = ["--format", "nginx", "--output", &keys];
    let follow = [&words[..], &["--then", &then, &option, &file]].concat();
    let exporter = Exporter::run(Command::new(REJOIN), &folder, &follow);
    let turns = || fs::read(&turns).unwrap_or_default().len();
    wait_until("the first turn", || turns() == 1);
    let process = Pid::from_raw(exporter.process.id().cast_signed()).expect("a process");
    kill_process(process, Signal::STOP).expect("stopped");
    done(&["keys", "rotate", &option, &file]);
    let told = text(&export_once(&folder, &words).stdout);
    assert!(told.ends_with("new keys\n"), "{told}");
    kill_process(process, Signal::CONT).expect("goes on");
    let begin = Instant::now();
    wait_until("the second turn", || turns() == 2);
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}

/// The list is replaced, and a file that is no longer named cannot be removed.
#[test]
fn keys_that_were_written_in_part_are_told_later() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, turns] = ["keys", "turns"].map(|name| folder.file(name));
    let then = format!("echo >>{turns}");
    let words = ["--format", "nginx", "--output", &keys, "--then", &then];
    let turns = || fs::read(&turns).unwrap_or_default().len();
    let obstacle = Path::new(&keys).join(format!("{}.key", "0".repeat(32)));
    fs::create_dir_all(&obstacle).expect("made");
    fs::set_permissions(&keys, PermissionsExt::from_mode(0o700)).expect("set");
    assert!(!export_once(&folder, &words).status.success());
    assert!(Path::new(&keys).join("keys.conf").exists() && turns() == 0);
    fs::remove_dir(&obstacle).expect("there");
    // By hand, and nobody is told.
    assert!(export_once(&folder, &words[..4]).status.success());
    for _ in 0..2 {
        assert!(export_once(&folder, &words).status.success());
        assert_eq!(turns(), 1);
    }
    let follow = [&words[..], &[&option, &file]].concat();
    let exporter = Exporter::run(Command::new(REJOIN), &folder, &follow);
    wait_until("the first turn of one that follows", || turns() == 2);
    fs::create_dir(&obstacle).expect("made");
    done(&["keys", "rotate", &option, &file]);
    wait_until("a complaint", || exporter.complaints().contains("cannot write"));
    fs::remove_dir(&obstacle).expect("there");
    wait_until("its second turn", || turns() == 3);
}

/// A reload reads the files, whatever HAProxy's socket says. Half a minute of the exporter lasts half a second.
#[test]
fn a_socket_that_is_gone_keeps_no_server_from_its_reload() {
    let folder = Folder::new();
    let [keys, nobody, turns] = ["keys", "nobody", "turns"].map(|name| folder.file(name));
    let then = format!("echo >>{turns}");
    let words = ["--format", "haproxy", "--output", &keys, "--push", &nobody, "--then", &then];
    let turns = || fs::read(&turns).unwrap_or_default().len();
    let once = export_once(&folder, &words);
    let told = text(&once.stderr);
    assert!(once.status.code() == Some(1) && told.contains("nobody"), "{told}");
    assert_eq!(turns(), 1);
    let again = export_once(&folder, &words);
    assert_eq!(
        (again.status.code(), turns()),
        (Some(0), 1),
        "nothing changed, and it was reloaded"
    );
    let Some(clock) = Clock::faster(60) else {
        return eprintln!("skipped: faketime is not installed");
    };
    let [option, file] = ring(&folder);
    let exporter = Exporter::start(&clock, &folder, &[&words[..], &[&option, &file]].concat());
    wait_until("the first turn", || turns() == 2);
    wait_until("a complaint", || exporter.complaints().contains("nobody"));
    thread::sleep(Duration::from_secs(2));
    assert_eq!(turns(), 2, "what has succeeded is not repeated");
    let told = exporter.complaints();
    assert!(told.contains("--then has succeeded") && !told.contains("the keys it has"), "{told}");
}

/// The second is no less a reason for a server to have old keys.
#[test]
fn two_faults_are_said_in_two_lines() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let theirs = folder.join("theirs");
    fs::create_dir(&theirs).expect("made");
    let mode = |mode| fs::set_permissions(&theirs, PermissionsExt::from_mode(mode)).expect("set");
    mode(0o700);
    let keys = theirs.join("keys").display().to_string();
    let words = ["--format", "json", "--output", &keys, &option, &file];
    let exporter = Exporter::run(Command::new(REJOIN), &folder, &words);
    wait_until("the file", || Path::new(&keys).exists());
    fs::write(&file, "no ring").expect("written");
    wait_until("the ring's fault", || exporter.complaints().contains("remove it, or name another"));
    mode(0o777);
    fs::remove_file(&keys).expect("there");
    wait_until("the folder's fault", || exporter.complaints().contains("mode 777"));
}

#[test]
fn one_that_follows_prints_no_json() {
    let folder = Folder::new();
    let output = folder.file("keys");
    let told =
        export_once(&folder, &["--format", "raw80", "--output", &output, "--follow", "--json"]);
    assert_eq!(told.status.code(), Some(2), "{}", text(&told.stderr));
    assert!(text(&told.stderr).contains("--json"));
}

/// A key is due, and nothing can be written where the ring is. The keys before it are good for longer.
#[test]
fn a_ring_that_cannot_be_written_is_exported() {
    const HOUR_S: u64 = 3_600;
    let folder = Folder::new();
    let fixed = Folder::below(folder.path());
    fs::set_permissions(fixed.path(), PermissionsExt::from_mode(0o700)).expect("set");
    let now_s = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let path = fixed.join("ring");
    RingFile::new(&path, None).look(now_s - 13 * HOUR_S).expect("made");
    let in_fixed = |words: &[&str]| {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
        command.args(["--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(fixed.path()).args(words);
        command.stdin(Stdio::null()).output().expect("unshare")
    };
    if !in_fixed(&["true"]).status.success() {
        return eprintln!("skipped: nothing can be mounted here");
    }
    let (ring, output) = (path.display().to_string(), folder.file("keys"));
    let words = ["keys", "export", "--context", "shop", "--format", "json", "--output", &output];
    let export = in_fixed(&[&[REJOIN][..], &words, &["--ring", &ring]].concat());
    let told = text(&export.stderr);
    assert!(export.status.success() && told.contains("Read-only"), "{told}");
    assert_eq!(listed(Path::new(&output)).map(|keys| keys.len()), Some(1));
    let list = in_fixed(&[REJOIN, "keys", "list", "--ring", &ring, "--json"]);
    assert!(list.status.success(), "{}", text(&list.stderr));
}

/// Envoy has a user of its own, and so has the exporter.
#[test]
fn envoys_socket_is_for_those_who_need_it() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    for (allow, mode) in [(&[][..], 0o660), (&["--allow", "nobody"][..], 0o666)] {
        let socket = folder.join(format!("socket-{mode:o}"));
        let output = socket.display().to_string();
        let words = ["--format", "envoy-sds", "--output", &output, "--user", "nobody"];
        let words = [&words[..], allow, &[&option, &file]].concat();
        let exporter = Exporter::run(Command::new(REJOIN), &folder, &words);
        let found = || fs::symlink_metadata(&socket).ok().map(|found| (found.uid(), found.mode()));
        let is_theirs = || found().is_some_and(|(user, found)| user != 0 && found & 0o777 == mode);
        wait_until("the socket", is_theirs);
        drop(exporter);
    }
    let output = folder.file("raw");
    let told =
        export_once(&folder, &["--format", "raw80", "--output", &output, "--allow", "nobody"]);
    assert_eq!(told.status.code(), Some(2), "{}", text(&told.stderr));
}

/// Tickets of the old ring are lost. Whoever removed it may have wanted that, or not.
#[test]
fn a_ring_that_was_removed_is_missed() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let keys = folder.file("keys");
    let words = ["--format", "json", "--output", &keys, &option, &file];
    let exporter = Exporter::run(Command::new(REJOIN), &folder, &words);
    wait_until("the keys", || listed(Path::new(&keys)).is_some());
    let before = listed(Path::new(&keys));
    fs::remove_file(&file).expect("there");
    wait_until("other keys", || listed(Path::new(&keys)) != before);
    let told = exporter.complaints();
    let parts = [&*file, "removed", "full handshakes"];
    assert!(told.lines().count() == 1 && parts.iter().all(|part| told.contains(part)), "{told}");
}

/// The other option is the ring's own: tickets that clients have must stay good for as long as they were told.
#[test]
fn one_option_of_the_schedule_leaves_the_other() {
    let (shared, folder) = (Shared::with_keys("turns"), Folder::new());
    let [option, file] = ring(&folder);
    for (at, source) in
        [&[&*shared.name.to_string()][..], &[&option, &file]].into_iter().enumerate()
    {
        let lifetime_s = |name: &str, turns: &[&str]| {
            let output = folder.file(&format!("{name}{at}"));
            let words = ["--format", "json", "--context", "shop", "--output", &output];
            done(&[&["keys", "export"][..], source, &words, turns].concat());
            let written: Value =
                serde_json::from_slice(&fs::read(output).expect("written")).expect("JSON");
            written["ticket_lifetime_s"].as_u64().expect("a number")
        };
        let both = ["--rotate-every", "24h", "--ticket-lifetime", "7d"];
        assert_eq!(lifetime_s("both", &both), 7 * 24 * 3_600);
        assert_eq!(lifetime_s("one", &["--rotate-every", "20h"]), 7 * 24 * 3_600);
        let words = ["--format", "json", "--context", "shop", "--output", &folder.file("refused")];
        let refused =
            rejoin(&[&["keys", "export"][..], source, &words, &["--rotate-every", "1h"]].concat());
        let told = text(&refused.stderr);
        assert!(!refused.status.success() && told.contains("rotate less often"), "{told}");
    }
}

/// Figures that fit no ring are a mistake in the command, whichever is given. Nothing is opened or made before.
#[test]
fn one_option_that_fits_no_ring_is_refused_at_once() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let (output, socket) = (folder.file("output"), folder.file("socket"));
    let words = ["--format", "json", "--context", "shop", "--output", &output];
    let export = [&["keys", "export"][..], &words, &[&option, &file]].concat();
    for turns in [["--rotate-every", "60s"], ["--rotate-every", "31d"], ["--ticket-lifetime", "8d"]]
    {
        for command in [&export[..], &["share", "no-such-cache", "--socket", &socket]] {
            let (told, code) = refusal(&[command, &turns].concat());
            assert!(code == 2 && told.contains("--ticket-lifetime: "), "{told}");
        }
    }
    assert!(!["ring", "output", "socket"].iter().any(|name| folder.join(name).exists()));
}

/// A cluster's settings have its schedule. A unit that was written before the machine was one of a cluster goes on.
#[test]
fn a_clusters_cache_says_that_its_schedule_stays() {
    let (folder, store) = of_cluster();
    let mut keys = KeyRing::new(Schedule::default());
    keys.rotate(SystemTime::UNIX_EPOCH.elapsed().expect("now").as_secs(), &mut [7; 32])
        .expect("a key");
    store.adopt_ring(&keys, 1).expect("adopted");
    for turns in [&[][..], &["--rotate-every", "1h"]] {
        let ended = export_web(&folder, turns);
        let told = text(&ended.stderr);
        assert!(ended.status.success(), "{told}");
        assert_eq!(told.matches("a cluster's").count(), turns.len() / 2, "{told}");
    }
}

/// The keys that the machine's servers make for themselves meanwhile stay with them.
#[test]
fn a_clusters_keys_are_handed_on_once_they_have_come() {
    let (folder, store) = of_cluster();
    let (place, socket) = (folder.path().to_str().expect("UTF-8"), folder.join("socket"));
    let mut share = Command::new(REJOIN);
    share.args(["share", "web", "--folder", place, "--socket"]).arg(&socket).stdout(Stdio::null());
    let _share = Process::start(&mut share);
    wait_until("the share", || UnixStream::connect(&socket).is_ok());
    let mut program = UnixStream::connect(&socket).expect("it listens");
    let asks = br#"{"rejoin": 1, "keys": {"context": "shop", "form": "raw80"}}"#;
    program.write_all(&[&(asks.len() as u32).to_be_bytes()[..], asks].concat()).expect("sent");
    let mut answered = |within: Duration| {
        let mut length = [0; 4];
        program.set_read_timeout(Some(within)).expect("set");
        program.read_exact(&mut length).map(|()| length)
    };

    // It looks once a second.
    let nothing = answered(Duration::from_millis(2_500)).expect_err("there are no keys");
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    let (told, code) = complaint(&export_web(&folder, &[]));
    assert!(code == 1 && told.contains("try again"), "{told}");
    assert!(!folder.join("keys").exists());
    let (told, code) = refusal(&["keys", "--folder", place, "list", "web"]);
    assert!(code == 1 && told.contains("no ticket keys of its cluster have come"), "{told}");
    let cache = fs::read(folder.join("rejoin-web")).expect("there");
    assert!(!cache.windows(8).any(|word| word == b"rejoinSK"), "no ring was made");

    let mut keys = KeyRing::new(Schedule::default());
    keys.rotate(SystemTime::UNIX_EPOCH.elapsed().expect("now").as_secs(), &mut [7; 32])
        .expect("a key");
    store.adopt_ring(&keys, 1).expect("adopted");
    assert!(answered(Duration::from_secs(60)).is_ok_and(|length| length != [0; 4]));
    assert!(export_web(&folder, &[]).status.success());
    assert_eq!(listed(&folder.join("keys")).map(|keys| keys.len()), Some(1));
}

/// Makes a cluster's cache, whose ring has not come.
fn of_cluster() -> (Folder, Store) {
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("set");
    let (name, settings) = ("web".parse().expect("a name"), Settings::new(Capacity::Sessions(10)));
    let store = Store::open_for_cluster(folder.path(), &name, Some(&settings), &[7; 16]);
    (folder, store.expect("made"))
}

/// Exports the keys of the folder's cache to a file in it.
fn export_web(folder: &Folder, more: &[&str]) -> Output {
    let place = folder.path().to_str().expect("UTF-8");
    let words = ["--format", "json", "--context", "shop", "--output", &folder.file("keys")];
    rejoin(&[&["keys", "export", "web", "--folder", place][..], &words, more].concat())
}

/// A unit's list of capabilities may lack it.
#[test]
fn a_socket_that_cannot_be_given_away_says_why() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let words = ["--format", "envoy-sds", "--context", "shop", "--follow", "--user", "nobody"];
    let output = ["--output", &folder.file("socket"), &option, &file];
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-chown", "--", REJOIN, "keys", "export"])
        .args(words)
        .args(output);
    let ended = match command.output() {
        Ok(ended) if text(&ended.stderr).starts_with("rejoin: ") => ended,
        ended => return eprintln!("skipped: needs root and setpriv: {ended:?}"),
    };
    let (told, code) = complaint(&ended);
    let parts = ["cannot give", "to nobody: Operation not permitted", "CAP_CHOWN", "User="];
    assert!(code == 1 && parts.iter().all(|part| told.contains(part)), "{told}");
}

/// HAProxy with a runtime socket, and keys from a file.
struct Haproxy {
    process: Process,
    port: u16,
}

impl Haproxy {
    /// `None` if it is not installed.
    fn start(folder: &Folder) -> Option<Self> {
        let (port, pair) = (reserve(), Pair::of_localhost());
        folder.write("both.pem", format!("{}{}", pair.certificate, pair.key));
        let text = "\
global
  stats socket FOLDER/socket level admin
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout client 20s
  timeout connect 10s
  timeout server 10s
frontend tls
  bind 127.0.0.1:PORT ssl crt FOLDER/both.pem tls-ticket-keys FOLDER/keys
";
        let text = text.replace("FOLDER", &folder.path().display().to_string());
        let text = text.replace("PORT", &port.to_string());
        let file = folder.write("haproxy.cfg", text);
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(file).stderr(Stdio::null());
        let Ok(process) = Process::try_start(&mut command) else {
            eprintln!("skipped: haproxy is not installed");
            return None;
        };
        wait_until_open(port);
        Some(Self { process, port })
    }

    /// The name of the key that encrypts a new ticket, in the form of `openssl s_client`.
    fn encrypts_under(&self) -> String {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-tls1_2", "-connect", &format!("127.0.0.1:{}", self.port)]);
        let told = command.stdin(Stdio::null()).output().expect("openssl");
        let told = text(&told.stdout);
        let first =
            told.split("TLS session ticket:").nth(1).and_then(|rest| rest.split("0000 - ").nth(1));
        let digits = first.expect("a ticket").split("   ").next().expect("digits");
        digits.replace(['-', ' '], "")
    }
}

/// The names of HAProxy's three keys in a file.
fn names(file: &str) -> Vec<String> {
    let key = |line: &str| {
        let key = STANDARD.decode(line).expect("base64");
        key[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    fs::read_to_string(file).unwrap_or_default().lines().map(key).collect()
}

/// An hour of the ring lasts six seconds at most, and half an hour's lead three.
#[test]
fn haproxy_takes_keys_without_a_reload() {
    let Some(clock) = Clock::faster(60) else {
        eprintln!("skipped: faketime is not installed");
        return;
    };
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, socket] = ["keys", "socket"].map(|name| folder.file(name));
    let turns = ["--rotate-every", "121s", "--ticket-lifetime", "121s"];
    let words = ["--format", "haproxy", "--output", &keys, "--push", &socket, &option, &file];
    let exporter = Exporter::start(&clock, &folder, &[&words[..], &turns].concat());
    wait_until("the file", || Path::new(&keys).exists());
    let Some(mut haproxy) = Haproxy::start(&folder) else { return };
    let first = haproxy.encrypts_under();
    // It did not listen when it was told first.
    wait_until("the socket is there", || {
        exporter.said().ends_with("the server has the keys now\n")
    });
    for turn in 0..3 {
        let before = haproxy.encrypts_under();
        wait_until("another key encrypts", || haproxy.encrypts_under() != before);
        let now = haproxy.encrypts_under();
        assert!(turn > 0 || now != first);
        // The file may be of the turn after.
        assert!(names(&keys).contains(&now), "HAProxy's key is of the ring");
    }
    assert!(haproxy.process.ended().is_none(), "the same process");
    let told = exporter.complaints();
    assert!(told.lines().all(|line| !line.contains("did not take")), "{told}");
}

/// A reload reads the file while a key is being revoked; the push still reaches the worker before it, and the next one has
/// the revoked key. Half a minute of the exporter lasts half a second.
#[test]
fn haproxy_that_came_to_older_keys_is_given_the_newest_again() {
    let Some(clock) = Clock::faster(60) else {
        eprintln!("skipped: faketime is not installed");
        return;
    };
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, socket, turns] = ["keys", "socket", "turns"].map(|name| folder.file(name));
    let then = format!("echo >>{turns}");
    let words = ["--format", "haproxy", "--output", &keys, "--push", &socket, "--then", &then];
    let exporter = Exporter::start(&clock, &folder, &[&words[..], &[&option, &file]].concat());
    wait_until("the file", || Path::new(&keys).exists());
    let Some(haproxy) = Haproxy::start(&folder) else { return };
    wait_until("the push", || exporter.said().ends_with("the server has the keys now\n"));
    let turns = || fs::read(&turns).unwrap_or_default().len();
    let (first, told) = (haproxy.encrypts_under(), exporter.complaints());
    assert!(names(&keys).contains(&first));
    let bytes =
        STANDARD.decode(fs::read_to_string(&keys).expect("keys").lines().next().expect("one"));
    let older = STANDARD.encode(vec![7; bytes.expect("base64").len()]);
    for times in 1..=2 {
        let set = format!("set ssl tls-key {keys} {older};");
        let answer = ask(&socket, &format!("{}\n", set.repeat(3)));
        assert_eq!(answer.matches("updated").count(), 3, "{answer}");
        let said = || exporter.said().matches("the server had other keys").count();
        wait_until("its word", || said() == times);
        assert_eq!(haproxy.encrypts_under(), first);
    }
    assert_eq!((turns(), exporter.complaints()), (1, told), "only HAProxy was told");
}

/// Sends a line to HAProxy's runtime socket, and returns the answer.
fn ask(socket: &str, line: &str) -> String {
    let (mut stream, mut answer) =
        (UnixStream::connect(socket).expect("it listens"), String::new());
    stream.write_all(line.as_bytes()).expect("written");
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn haproxy_that_takes_no_keys_is_said_how_it_would() {
    let folder = Folder::new();
    let [option, file] = ring(&folder);
    let [keys, other, socket] = ["keys", "other", "socket"].map(|name| folder.file(name));
    let export = |output: &str, socket: &str| {
        let words =
            ["--format", "haproxy", "--context", "shop", "--push", socket, "--output", output];
        let _ = fs::remove_file(output);
        let told = rejoin(&[&["keys", "export"][..], &words, &[&option, &file]].concat());
        let lines = text(&told.stderr);
        assert_eq!(told.status.code(), Some(1), "{lines}");
        lines.lines().last().expect("an error").to_owned()
    };
    let told = export(&keys, &folder.file("nobody"));
    assert!(told.contains("nobody") && told.contains("stats socket … level admin"), "{told}");
    let Some(_haproxy) = Haproxy::start(&folder) else { return };
    let told = export(&other, &socket);
    assert!(told.contains(&format!("tls-ticket-keys {other}")), "{told}");
}
