//! `rejoin status`, on unmodified servers, on programs that are none, and on processes that claim to be one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rejoin_cache::{Capacity, Settings};
use rejoin_store::Store;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::shipped::{library, rejoin};
use rejoin_testkit::site::{Site, Versions};
use serde_json::Value;

use crate::compat::matrix::children;
use crate::faults::{NGINX, start_nginx, start_s_server};
use crate::ways::{HAPROXY, NOT_ROOT, compile, python_server};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn run(arguments: &[&str]) -> Output {
    Command::new(rejoin()).arg("status").args(arguments).output().expect("it runs")
}

/// Returns what the command finds, its exit code, and its one line on standard error, if there is one.
fn found(of: &str) -> (Value, i32, String) {
    let output = run(&[of, "--json"]);
    let told = String::from_utf8(output.stderr).expect("text");
    assert!(told.lines().count() <= 1 && !told.contains("panicked"), "{told}");
    let code = output.status.code().expect("an end");
    let json = if code == 2 { Value::Null } else { json(&output.stdout) };
    (json, code, told)
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

/// Returns the only server, its exit code and the line.
fn only_server(of: &str) -> (Value, i32, String) {
    let (found, code, told) = found(of);
    let servers = found["servers"].as_array().expect("servers");
    assert_eq!(servers.len(), 1, "{found}");
    (servers[0].clone(), code, told)
}

/// Returns what `rejoin doctor` finds in the way, each with its mend, and its exit code.
fn in_the_way(of: &str) -> (Vec<[String; 2]>, i32) {
    let mut doctor = Command::new(rejoin());
    let output = doctor.args(["doctor", of, "--json"]).output().expect("it runs");
    let told = json(&output.stdout);
    let text = |finding: &Value| {
        ["why", "mend"].map(|name| finding[name].as_str().expect("text").to_owned())
    };
    let findings = told["findings"].as_array().expect("findings").iter().map(text).collect();
    (findings, output.status.code().expect("an end"))
}

/// Returns the text for people.
fn shown(of: &str) -> String {
    String::from_utf8(run(&[of]).stdout).expect("text")
}

fn id(site: &Site) -> String {
    site.running.last().expect("it runs").id().to_string()
}

/// Connects three times over each version. Of these, two resume.
fn connect(site: &Site) {
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = site.client(versions);
        assert_eq!([(); 3].map(|()| client.connect()), [false, true, true]);
    }
}

fn counts(of: &Value) -> [u64; 2] {
    ["full", "resumed"].map(|kind| of["handshakes"][kind].as_u64().expect("a count"))
}

/// The agent of a machine alone brings the cluster's ticket keys, once it has reached Valkey. Until then the workers have
/// keys of their own.
#[test]
fn a_cluster_whose_ticket_keys_have_not_come_stands_in_the_way() {
    let mut site = Site::new("status-no-ring");
    let (folder, settings) = (Path::new(Store::FOLDER), Settings::new(Capacity::Bytes(1 << 20)));
    let made = Store::open_for_cluster(folder, &site.cache(), Some(&settings), &[7; 16]);
    drop(made.expect("a cache"));
    let tickets = NGINX.replace("ssl_session_tickets off;", "ssl_session_tickets on;");
    site.write("nginx.conf", &tickets.replace("@MORE@", ""));
    let Some(()) = start_nginx(&mut site) else { return };
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = site.client(versions);
        let resumed = [(); 6].map(|()| client.connect());
        assert_eq!(resumed, [false, true, true, true, true, true], "{versions:?}");
    }
    let (found, code) = in_the_way(&id(&site));
    let [[why, mend]] = &found[..] else { panic!("{found:?}") };
    assert!(code == 1 && why.contains("has no ticket keys") && mend.contains("reaches Valkey"));
}

#[test]
fn the_workers_of_nginx_are_one_server_and_each_has_its_counts() {
    let mut site = Site::new("status-nginx");
    site.write("nginx.conf", &NGINX.replace("@MORE@", ""));
    let Some(()) = start_nginx(&mut site) else { return };
    let (server, code, told) = only_server(&id(&site));
    assert_eq!((code, &server["attached"], &*told), (0, &Value::Bool(true), ""), "{server}");
    assert!(shown(&id(&site)).contains("no client has come so far"), "{server}");
    (0..5).for_each(|_| connect(&site));
    let (server, code, _) = only_server(&id(&site));
    let cache = Value::from(site.cache.as_str());
    assert_eq!((code, &server["cache"], &server["program"]), (0, &cache, &"nginx".into()));
    let [context] = &server["contexts"].as_array().expect("contexts")[..] else {
        panic!("{server}")
    };
    assert_eq!((counts(context), &context["state"]), ([10, 20], &"attached".into()), "{server}");
    assert!(!context["name"].as_str().expect("a name").is_empty(), "{server}");
    let processes = server["processes"].as_array().expect("processes");
    assert_eq!(processes.len(), 3, "a master and two workers: {server}");
    let sum = |kind| processes.iter().map(|process| counts(process)[kind]).sum::<u64>();
    assert_eq!([sum(0), sum(1)], [10, 20], "{server}");
    assert_eq!(counts(&processes[0]), [0, 0], "the master: {server}");
    let served = processes.iter().filter(|process| process["last_s_ago"].is_u64());
    assert_eq!(served.count(), 2, "{server}");
    // A worker is as good as its master.
    let (of_worker, ..) = only_server(&processes[1]["pid"].to_string());
    assert_eq!(counts(&of_worker["contexts"][0]), [10, 20], "{of_worker}");
    let text = shown(&id(&site));
    assert!(text.contains(": attached to ") && text.contains("66.7 %"), "{text}");
    assert_eq!(in_the_way(&id(&site)), (vec![], 0));
    let before = children(&id(&site));
    assert!(Command::new("kill").args(["-HUP", &id(&site)]).status().expect("run").success());
    wait_until("other workers", || {
        let now = children(&id(&site));
        now.len() == 2 && before.iter().all(|worker| !now.contains(worker))
    });
    let (server, ..) = only_server(&id(&site));
    let others = ["full", "resumed"].map(|kind| server["other_processes"][kind].as_u64());
    assert_eq!(others, [Some(10), Some(20)], "of workers that ended: {server}");
}

#[test]
fn a_server_whose_cache_has_lost_its_name_is_out_of_reach() {
    let mut site = Site::new("status-lost");
    site.write("nginx.conf", &NGINX.replace("@MORE@", ""));
    let Some(()) = start_nginx(&mut site) else { return };
    connect(&site);
    let is_told = || {
        let remarks = only_server(&id(&site)).0["remarks"].to_string();
        let (found, code) = in_the_way(&id(&site));
        let is_lost = |[why, mend]: &[String; 2]| {
            why.contains("has lost its name") && mend == "restart the server"
        };
        let is_found = found.iter().any(is_lost) && code == 1;
        assert_eq!(remarks.contains("has lost its name"), is_found, "{remarks} {found:?}");
        is_found
    };
    assert!(!is_told());
    let (folder, other) = (Path::new(Store::FOLDER), Settings::new(Capacity::Bytes(2 << 20)));
    Store::open_or_replace(folder, &site.cache(), &other, true).expect("replaced");
    assert!(is_told(), "another cache has the name");
    Store::remove(folder, &site.cache()).expect("removed");
    assert!(is_told(), "none has the name");
}

/// HAProxy's master runs its program anew, and then shares no memory with the worker.
#[test]
fn the_worker_of_a_master_that_runs_anew_is_found() {
    let mut site = Site::new("status-haproxy");
    let off = HAPROXY.replace("  nbthread 2", "  tune.ssl.cachesize 0");
    site.write("haproxy.cfg", &off.replace("both.pem", "both.pem no-tls-tickets"));
    let configuration = site.shown("haproxy.cfg");
    let Some(()) = site.start("haproxy", &["-W", "-db", "-f", &configuration]) else { return };
    site.client(Versions::Tls13).connect();
    let (found, code, told) = found(&id(&site));
    assert!(code == 1 && told.contains("neither keeps sessions"), "{told} {found}");
    let processes = found["servers"].as_array().expect("servers").iter();
    let processes = processes.filter_map(|server| server["processes"].as_array()).flatten();
    assert_eq!(processes.count(), 2, "a master and a worker: {found}");
}

#[test]
fn a_server_in_a_folder_of_its_own_without_proc_is_seen_too() {
    let mut site = Site::new("status-python");
    let chroot = if is_root() { "import os; os.chroot('FOLDER')\n" } else { "" };
    site.configure("stateful = yes");
    // The first connection loads what is loaded late.
    let before = "client, server = ssl.MemoryBIO(), ssl.MemoryBIO()\n\
                  context.wrap_bio(client, server, server_side=True)\n";
    site.write("server.py", &python_server(&format!("{before}{chroot}")));
    let script = site.shown("server.py");
    let Some(()) = site.start("python3", &[&script]) else { return };
    connect(&site);
    let (server, code, _) = only_server(&id(&site));
    assert_eq!((code, counts(&server), counts(&server["processes"][0])), (0, [2, 4], [2, 4]));
    assert_eq!((&server["stateful"], &server["folder"]), (&true.into(), &"/dev/shm".into()));
}

#[test]
fn contexts_that_are_left_alone_say_why() {
    let mut site = Site::new("status-early");
    let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
    let files = ["-early_data", "-cert", &pair, "-key", &pair];
    site.start("openssl", &[&["s_server", "-accept", &port][..], &files].concat())
        .expect("installed");
    drop(site.client(Versions::Tls13).shake_hands().expect("a connection"));
    let (server, code, told) = only_server(&id(&site));
    assert!(code == 1 && told.contains("left alone: it accepts early data"), "{told}");
    assert_eq!(server["contexts"][0]["state"], "early_data", "{server}");
    site.stop();
    site.write("nginx.conf", &NGINX.replace("@MORE@", "ssl_session_cache off;"));
    let Some(()) = start_nginx(&mut site) else { return };
    site.client(Versions::Tls13).connect();
    let (server, code, told) = only_server(&id(&site));
    assert!(code == 1 && told.contains("left alone: the program neither keeps sessions"), "{told}");
    assert_eq!(
        (&server["contexts"][0]["state"], counts(&server)),
        (&"off".into(), [1, 0]),
        "{server}"
    );
}

#[test]
fn a_program_that_takes_the_info_callback_is_found_out() {
    let mut site = Site::new("status-info");
    let program = compile(&site, "deaf.c", "own_info", &["-DOWN_INFO", "-lssl", "-lcrypto"]);
    let (port, pair) = (site.port.to_string(), site.shown("both.pem"));
    site.start(&program, &[&port, &pair]).expect("compiled");
    site.client(Versions::Tls12).connect();
    let (server, code, told) = only_server(&id(&site));
    assert!(code == 1 && told.contains("SSL_set_info_callback"), "{told} {server}");
    assert!(
        server["remarks"][0].as_str().is_some_and(|line| line.contains("no handshake")),
        "{server}"
    );
}

#[test]
fn a_program_that_only_connects_is_no_server() {
    let mut site = Site::new("status-client");
    start_s_server(&mut site, &["env"]).expect("installed");
    site.write(
        "client.py",
        "import socket, ssl, time\n\
         context = ssl._create_unverified_context()\n\
         context.wrap_socket(socket.create_connection(('127.0.0.1', @PORT@)))\n\
         open('connected', 'w').close()\n\
         time.sleep(60)\n",
    );
    let client = site.command("python3").arg(site.shown("client.py")).spawn();
    site.running.push(client.expect("installed"));
    wait_until("it has connected", || site.file("connected").exists());
    let (server, code, told) = only_server(&id(&site));
    assert!(code == 1 && told.contains("only made connections itself"), "{told}");
    assert_eq!(
        (&server["connections"]["as_client"], &server["contexts"]),
        (&1.into(), &json(b"[]"))
    );
}

#[test]
fn a_failure_is_told_as_long_as_the_server_runs() {
    let mut site = Site::new("status-wrong");
    site.configure("capasity = 2MiB");
    start_s_server(&mut site, &["env"]).expect("installed");
    let (server, code, told) = only_server(&id(&site));
    assert!(code == 1 && told.contains("runs without Rejoin: capasity: no such setting"), "{told}");
    assert_eq!(server["settings"], Value::String(site.shown("openssl.cnf")));
    site.stop();
    // Root opens its cache with its first context.
    if !is_root() {
        return;
    }
    site.configure("folder = /nonexistent");
    site.write("server.py", &python_server(""));
    let script = site.shown("server.py");
    site.start("setpriv", &[&NOT_ROOT[..], &["python3", &script]].concat()).expect("installed");
    site.client(Versions::Tls13).connect();
    let (server, code, told) = only_server(&id(&site));
    assert!(code == 1 && told.contains("cannot be opened so far: "), "{told}");
    assert!(server["contexts"][0]["began"]["no_cache"].as_u64() > Some(0), "{server}");
}

#[test]
fn processes_without_rejoin_say_why() {
    let mut site = Site::new("status-without");
    site.write("server.py", &python_server(""));
    let script = site.shown("server.py");
    let environment = std::mem::take(&mut site.environment);
    let Some(()) = site.start("python3", &[&script]) else { return };
    let (_, code, told) = found(&id(&site));
    assert!(code == 1 && told.contains("OPENSSL_CONF is not set in its environment"), "{told}");
    let (findings, code) = in_the_way(&id(&site));
    let [[why, mend]] = &findings[..] else { panic!("{findings:?}") };
    assert!(code == 1 && why.contains("OPENSSL_CONF") && mend.contains("rejoin run"), "{mend}");
    site.stop();
    site.environment = environment;
    fs::write(site.file("openssl.cnf"), "").expect("a file");
    site.start("python3", &[&script]).expect("installed");
    let (found_without, code, told) = found(&id(&site));
    assert!(code == 1 && told.contains("does not name librejoin.so"), "{told}");
    assert_eq!(found_without["without"][0]["pid"].to_string(), id(&site));
    site.running.push(Command::new("sleep").arg("60").spawn().expect("installed"));
    let (_, code, told) = found(&id(&site));
    assert!(code == 1 && told.contains("no shared libssl"), "{told}");
}

#[test]
fn a_library_that_was_replaced_is_told() {
    let mut site = Site::new("status-replaced");
    let (copy, cnf) = (site.file("librejoin.so"), site.file("openssl.cnf"));
    fs::copy(library("librejoin.so"), &copy).expect("a copy");
    let text = fs::read_to_string(&cnf).expect("text");
    let path = library("librejoin.so").display().to_string();
    fs::write(&cnf, text.replace(&path, &copy.display().to_string())).expect("a file");
    start_s_server(&mut site, &["env"]).expect("installed");
    assert_eq!(only_server(&id(&site)).0["remarks"], json(b"[]"));
    fs::remove_file(&copy).expect("it was there");
    let (server, code, _) = only_server(&id(&site));
    assert!(server["remarks"][0].as_str().is_some_and(|line| line.contains("restart")), "{server}");
    assert_eq!((code, &server["processes"][0]["library_replaced"]), (0, &true.into()), "{server}");
    let (findings, code) = in_the_way(&id(&site));
    assert!(code == 1 && findings.iter().any(|[_, mend]| mend == "restart it"), "{findings:?}");
}

#[test]
fn other_users_see_their_own_processes_alone() {
    if !is_root() {
        return eprintln!("skipped: programs of another user (needs root)");
    }
    let mut site = Site::new("status-user");
    start_s_server(&mut site, &["env"]).expect("installed");
    let program = rejoin().display().to_string();
    let ask = |of: &[&str]| {
        let words = [&NOT_ROOT[..], &[&*program, "status"], of].concat();
        site.command("setpriv")
            .args(words)
            .stdout(std::process::Stdio::piped())
            .output()
            .expect("it runs")
    };
    let refused = ask(&[&id(&site)]);
    let told = fs::read_to_string(site.file("stderr")).expect("text");
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{told}");
    assert!(told.trim_end().ends_with("it may not be read: run as root"), "{told}");
    let all = json(&ask(&["--json"]).stdout);
    assert!(all["unread_processes"].as_u64() > Some(0), "{all}");
    let pid = |server: &Value| server["processes"][0]["pid"].to_string();
    assert!(
        all["servers"].as_array().expect("servers").iter().all(|of| pid(of) != id(&site)),
        "{all}"
    );
}

/// Processes with a memory of Rejoin's name that holds anything.
#[test]
fn a_memory_of_anybody_is_bytes_alone() {
    const HOSTILE: &str = "\
import mmap, os, random, sys, time
random.seed(7)
size, head = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
file = os.memfd_create('rejoin')
os.ftruncate(file, size)
memory = mmap.mmap(file, size)
filling = random.choice([b'\\x1b', b'\\xff']) * 64 + random.randbytes(4096)
memory[:] = (head + filling * (size // len(filling) + 1))[:size]
open('made', 'w').close()
time.sleep(60)
";
    let mut site = Site::new("status-hostile");
    site.write("hostile.py", HOSTILE);
    let ours = format!("{}{}", hex(b"rejoin-b"), hex(&1_u64.to_ne_bytes()));
    let newer = format!("{}{}", hex(b"rejoin-b"), hex(&99_u64.to_ne_bytes()));
    for (size, head, complaint) in [
        ("4096", "", "cannot be read"),
        ("1048576", "", "is not Rejoin's"),
        ("1048576", &*newer, "this version cannot read"),
        ("1048576", &*ours, ""),
    ] {
        let _ = fs::remove_file(site.file("made"));
        let child =
            site.command("python3").arg(site.shown("hostile.py")).args([size, head]).spawn();
        site.running.push(child.expect("installed"));
        wait_until("it has its memory", || site.file("made").exists());
        let (server, _, told) = only_server(&id(&site));
        assert!(told.contains(complaint), "{told}");
        let lists =
            ["contexts", "processes"].map(|list| server[list].as_array().map_or(0, Vec::len));
        assert!(lists[0] <= 128 && lists[1] == 1, "{lists:?}");
        for of in [&[&*id(&site)][..], &[]] {
            let output = run(of);
            let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
            assert!(!text.contains("panicked") && !text.contains('\u{1b}'), "{text}");
        }
        site.stop();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_does_not_exist_is_an_error() {
    for (of, complaint) in
        [("4194305", "no process 4194305"), ("no-such-unit", "no process is in a unit")]
    {
        let (_, code, told) = found(of);
        assert!(code == 2 && told.contains(complaint), "{told}");
    }
}
