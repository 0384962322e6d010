//! `rejoin keys`, on keys as servers make them.

use crate::REJOIN;
use crate::program::{interrupt, start, text};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rejoin_cache::{Capacity, Settings};
use rejoin_store::{CacheName, SharedKeys, Store};
use rejoin_testkit::folder::Folder;
use rejoin_tickets::PAGE_BYTES;
use serde_json::Value;

/// A cache without a server, and gone when it is dropped.
pub(crate) struct Shared {
    pub(crate) name: CacheName,
    store: Arc<Store>,
}

impl Shared {
    fn new(name: &str) -> Self {
        let name: CacheName =
            format!("test-keys-{name}-{}", std::process::id()).parse().expect("a name");
        let settings = Settings::new(Capacity::Sessions(10));
        let store = Store::open(Path::new(Store::FOLDER), &name, Some(&settings)).expect("made");
        Self { name, store: Arc::new(store) }
    }

    pub(crate) fn with_keys(name: &str) -> Self {
        let shared = Self::new(name);
        let now_s = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        SharedKeys::open(Arc::clone(&shared.store), None, None, now_s, |_| {}).expect("keys");
        shared
    }

    fn rejoin(&self, action: &str, more: &[&str]) -> Output {
        let mut command = Command::new(REJOIN);
        command.args(["keys", action, self.name.as_str()]).args(more);
        command.output().expect("the program runs")
    }

    fn list(&self) -> Vec<Value> {
        let listed = self.rejoin("list", &["--json"]);
        assert!(listed.status.success(), "{listed:?}");
        serde_json::from_slice(&listed.stdout).expect("JSON")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = Store::remove(Path::new(Store::FOLDER), &self.name);
    }
}

#[test]
fn keys_are_listed_rotated_and_retired() {
    let shared = Shared::with_keys("all");
    let first = shared.list();
    assert_eq!((first.len(), &first[0]["state"]), (1, &Value::from("encrypting")));
    let rotated = shared.rejoin("rotate", &[]);
    assert!(text(&rotated.stdout).contains("encrypts in 1 h"), "{rotated:?}");
    let both = shared.list();
    let states: Vec<_> = both.iter().map(|key| key["state"].as_str().expect("text")).collect();
    assert_eq!(states, ["encrypting", "upcoming"]);
    let id = both[0]["key"].as_str().expect("text");
    let table = text(&shared.rejoin("list", &[]).stdout);
    assert!(table.contains(id) && table.contains("encrypting"), "{table}");
    let retired = shared.rejoin("retire", &[&id[..12]]);
    assert!(retired.status.success() && text(&retired.stdout).contains(id), "{retired:?}");
    let left = shared.list();
    assert_eq!((left.len(), &left[0]["key"]), (1, &both[1]["key"]));
}

/// This process is the server, which goes on with the cache that another one replaced.
#[test]
fn retiring_tells_of_processes_that_have_another_cache_of_the_name() {
    let shared = Shared::with_keys("lost");
    let retire = |key: &str| shared.rejoin("retire", &[key]);
    let retired = retire(shared.list()[0]["key"].as_str().expect("text"));
    let told = text(&retired.stdout);
    assert!(told.contains("no server that uses this cache opens"), "{told}");
    assert_eq!(text(&retired.stderr), "", "the cache has its name");
    let settings = Settings::new(Capacity::Sessions(20));
    let folder = Path::new(Store::FOLDER);
    Store::open_or_replace(folder, &shared.name, &settings, true).expect("replaced");
    let id = std::process::id();
    for more in [&[][..], &["--json"]] {
        assert!(shared.rejoin("rotate", &[]).status.success());
        let key = shared.list()[0]["key"].as_str().expect("text").to_owned();
        let output = shared.rejoin("retire", &[&[key.as_str()], more].concat());
        let told = text(&output.stderr);
        assert!(told.contains(&format!("process {id} (")) && told.contains("restart it"), "{told}");
        if !more.is_empty() {
            let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(json["out_of_reach"], serde_json::json!([id]));
        }
    }
}

#[test]
fn watching_ends_with_its_reader() {
    let shared = Shared::new("watched");
    for form in [&["--watch"][..], &["--watch", "--json"]] {
        let mut command = Command::new(REJOIN);
        command.args(["stats", shared.name.as_str()]).args(form).stdout(Stdio::piped());
        let mut watching = command.spawn().expect("the program runs");
        let mut line = String::new();
        let mut reader = BufReader::new(watching.stdout.take().expect("piped"));
        reader.read_line(&mut line).expect("a line");
        drop(reader);
        let until = Instant::now() + Duration::from_secs(10);
        while watching.try_wait().expect("our own child").is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
        let _ = watching.kill();
        let ended = watching.wait().expect("our own child");
        assert!(ended.success(), "{form:?} goes on without a reader");
    }
}

/// Servers count in the cache that has taken its place.
#[test]
fn watching_goes_on_with_the_cache_that_replaces_another() {
    for form in [&["--watch"][..], &["--watch", "--json"]] {
        let shared = Shared::new("watched-on");
        let mut command = Command::new(REJOIN);
        command.args(["stats", shared.name.as_str()]).args(form);
        let mut watching = start(&mut command);
        let mut lines = BufReader::new(watching.stdout.take().expect("piped")).lines();
        let mut line = || lines.next().expect("a line").expect("text");
        line();
        drop(shared);
        let other = Shared::new("watched-on");
        let is_seen = |line: &str| match form {
            [_] => line.split_whitespace().next().is_some_and(|count| count.parse() == Ok(1)),
            _ => line.contains("\"full_handshakes\":1,"),
        };
        let mut counted = |until: Instant| {
            while Instant::now() < until {
                if is_seen(&line()) {
                    return true;
                }
            }
            false
        };
        assert!(!counted(Instant::now() + Duration::from_secs(3)), "nothing was counted");
        other.store.record_handshake(false);
        let is_counted = counted(Instant::now() + Duration::from_secs(4));
        interrupt(&watching);
        let told = text(&watching.wait_with_output().expect("our own child").stderr);
        assert!(is_counted, "{form:?}: {told}");
        assert!(told.contains("was removed or replaced") && told.lines().count() <= 2, "{told}");
    }
}

#[test]
fn what_cannot_be_done_says_why() {
    let shared = Shared::with_keys("refused");
    // An empty beginning would fit the only key, and a short one might.
    for (key, told) in [
        ("", "give at least 4 hexadecimal digits"),
        (&shared.list()[0]["key"].as_str().expect("text")[..3], "give at least 4"),
        ("zzzz", "give at least 4 hexadecimal digits"),
        ("00000000000000000000", "no key begins"),
    ] {
        let refused = shared.rejoin("retire", &[key]);
        assert!(text(&refused.stderr).contains(told), "{refused:?}");
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert_eq!(shared.list().len(), 1);
    }
    let empty = Shared::new("empty");
    for action in ["list", "rotate"] {
        let refused = empty.rejoin(action, &[]);
        assert!(text(&refused.stderr).contains("start a server"), "{refused:?}");
        assert_eq!(refused.status.code(), Some(1));
    }
}

#[test]
fn the_last_place_is_left_to_the_schedule() {
    let shared = Shared::with_keys("full");
    for _ in 1..Store::MOST_KEYS_BY_HAND {
        assert!(shared.rejoin("rotate", &[]).status.success());
    }
    let refused = shared.rejoin("rotate", &[]);
    let told = text(&refused.stderr);
    assert_eq!((refused.status.code(), told.matches("in use").count()), (Some(1), 1), "{told}");
}

#[test]
fn no_key_byte_is_printed() {
    let shared = Shared::with_keys("secret");
    let mut page = [0; PAGE_BYTES];
    shared.store.ring().expect("free").expect("a ring").to_page(&mut page);
    // As the page's form has it: the first key's secret.
    let secret = &page[56..88];
    assert!(secret.iter().any(|byte| *byte != 0));
    let hex: String = secret[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    for arguments in [&["--json"][..], &[]] {
        let printed = text(&shared.rejoin("list", arguments).stdout);
        assert!(!printed.contains(&hex) && !printed.is_empty(), "{printed}");
    }
}

/// A folder that only its owner writes to, as key files need.
fn own_folder() -> Folder {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).expect("set");
    folder
}

#[test]
fn a_ring_in_a_file_is_enough() {
    let folder = own_folder();
    let (ring, to) = (folder.file("ring"), folder.file("keys"));
    let keys = |words: &[&str]| {
        let mut command = Command::new(REJOIN);
        command.arg("keys").args(words).args(["--ring", &ring]).output().expect("the program runs")
    };
    let missing = keys(&["list"]);
    assert!(!missing.status.success() && text(&missing.stderr).contains("there is no file"));
    let export = ["export", "--format", "envoy", "--context", "shop", "--output", &to];
    let done = keys(&export);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(text(&keys(&export).stdout).trim_end(), format!("{to}: its keys are the newest"));
    let held = || {
        let written = std::fs::read_to_string(&to).expect("written");
        let written: Value = serde_json::from_str(&written).expect("JSON");
        written["resources"][0]["session_ticket_keys"]["keys"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(held(), 1);
    assert!(text(&keys(&["rotate"]).stdout).contains("encrypts in 1 h"));
    assert_eq!(text(&keys(&export).stdout).trim_end(), format!("{to}: new keys"));
    assert_eq!(held(), 2);
    let listed: Vec<Value> =
        serde_json::from_slice(&keys(&["list", "--json"]).stdout).expect("JSON");
    assert_eq!(listed.len(), 2);
    let apache = ["export", "--format", "apache", "--context", "shop", "--output", &to];
    let told = text(&keys(&apache).stderr);
    assert!(told.contains("the server holds one key") && told.contains("by no secret"), "{told}");
}

#[test]
fn a_command_line_names_one_ring() {
    let refused = |words: &[&str], why: &str| {
        let done = Command::new(REJOIN).arg("keys").args(words).output().expect("it runs");
        assert!(done.status.code() == Some(2) && text(&done.stderr).contains(why), "{done:?}");
    };
    refused(&["list"], "give a cache's name, --cluster or --ring");
    refused(&["list", "web", "--ring", "file"], "not two of them");
    let export = ["export", "--format", "nginx", "--output", "keys", "--context"];
    refused(&[&export[..], &["shop"]].concat(), "give a cache's name, --cluster or --ring");
    refused(&[&export[..], &["", "--ring", "file"]].concat(), "--context");
    refused(
        &[&export[..], &["a", "--ring", "file", "--push", "socket"]].concat(),
        "--format haproxy",
    );
}
