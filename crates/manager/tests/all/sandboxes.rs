//! Programs that may not go everywhere: the manager does not take them there.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use rejoin_manager::{ConnectRules, Namespaces};
use rejoin_testkit::house::House;
use rejoin_testkit::process::{Process, wait_until};
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::others::{run_as, run_by};

/// Tries the server itself, and then all that the manager offers.
const TRIES_ALL: &str = r#"
def kind(answer):
    return next(iter(answer)) if "error" not in answer else answer["error"]["kind"]
def tried(work):
    try:
        return work()
    except OSError as error:
        return type(error).__name__
def direct():
    socket.create_connection(("127.0.0.1", connect["port"])).close()
    return "connected"
def passed(request):
    tcp = socket.create_connection(("127.0.0.1", connect["port"]))
    return kind(ask([tcp.fileno()], connect={**connect, "socket": True, **request})[1])
records = {"host": "server.test", "port": connect["port"], "address": "127.0.0.1",
           "trust": {"bundle": connect.get("bundle", "")}}
def word(answer):
    answer.pop("rejoin")
    return kind(answer)
print(json.dumps({
    "direct": tried(direct),
    "connect": word(ask(connect=connect)[1]),
    "records": word(ask(records=records)[1]),
    "stats": word(ask(stats={})[1]),
}))
"#;

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("not root: no network namespace can be made");
    }
    is_root
}

#[test]
fn a_program_of_another_network_namespace_gets_nowhere() {
    if !is_root() {
        return;
    }
    let (house, server) = House::with_rustls(|_| {});
    let here = run_as(12_345, &house, server.port, TRIES_ALL);
    assert_eq!((&here["direct"], &here["connect"]), (&json!("connected"), &json!("connected")));
    let there = run_by(0, &["unshare", "-n", "--"], &house, server.port, TRIES_ALL);
    assert_eq!(there["direct"], "OSError", "{there}");
    assert_eq!(there["connect"], "not_permitted", "{there}");
    assert_eq!(there["records"], "not_permitted", "{there}");
    assert_eq!(there["stats"], "stats", "{there}");
    assert_eq!(house.program().stats()["handshakes"]["full"], 1);
}

#[test]
fn the_settings_name_other_network_namespaces() {
    if !is_root() {
        return;
    }
    let mut holder = Command::new("unshare");
    holder.args(["-n", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let holder = Process::start(&mut holder);
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let named = format!("/proc/{}/ns/net", holder.id());
    wait_until("a namespace", || std::fs::read_link(&named).is_ok_and(|of| of != own));
    let enter = format!("--net={named}");
    let kind_of = |served: Namespaces, by: &[&str]| {
        let house = House::with(|settings| settings.network_namespaces = served);
        let server = house.rustls(|_| {});
        run_by(0, by, &house, server.port, TRIES_ALL)["connect"].clone()
    };
    let listed = || Namespaces::Listed(vec![named.clone().into()]);
    assert_eq!(kind_of(listed(), &["nsenter", &enter, "--"]), "connected");
    assert_eq!(kind_of(listed(), &["unshare", "-n", "--"]), "not_permitted");
    assert_eq!(kind_of(Namespaces::Any, &["unshare", "-n", "--"]), "connected");
    assert_eq!(kind_of(Namespaces::Own, &["nsenter", &enter, "--"]), "not_permitted");
}

/// A filter that allows every system call is one, too.
const FILTERED: &str = r#"
import ctypes
libc = ctypes.CDLL(None)
rule = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(rule)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
tcp = socket.create_connection(("127.0.0.1", connect["port"]))
own = ask([tcp.fileno()], connect={**connect, "socket": True})[1]
asked = ask(connect=connect)[1]
print(json.dumps([answer.get("error", {"kind": "connected"})["kind"] for answer in [asked, own]]))
"#;

#[test]
fn a_program_under_a_seccomp_filter_uses_its_own_sockets() {
    if !is_root() {
        return;
    }
    for (sandboxed, kind) in [(false, "not_permitted"), (true, "connected")] {
        let house = House::with(|settings| settings.connect.sandboxed = sandboxed);
        let server = house.rustls(|_| {});
        let kinds = run_as(12_345, &house, server.port, FILTERED);
        assert_eq!(kinds, json!([kind, "connected"]));
    }
}

#[test]
fn the_settings_say_who_may_ask_for_which_connections() {
    let own = std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned();
    let kind_under = |wishes: Value, rules: &dyn Fn(&mut ConnectRules, u16)| {
        let house = House::empty();
        let server = house.rustls(|_| {});
        let mut house = house;
        let mut settings = house.settings();
        rules(&mut settings.connect, server.port);
        house.start(settings);
        house.program().kind("server.test", server.port, wishes)
    };
    let permits = |rules: &dyn Fn(&mut ConnectRules, u16)| {
        let kind = kind_under(json!({}), rules);
        assert!(kind == "not_permitted" || kind.starts_with("connected: "), "{kind}");
        kind != "not_permitted"
    };
    let host = |pattern: &str| Some(vec![pattern.parse().unwrap()]);
    assert!(permits(&|_, _| {}));
    assert!(permits(&|rules, port| rules.ports = Some(vec![port.try_into().unwrap()])));
    assert!(!permits(&|rules, _| rules.ports = Some(vec![443.try_into().unwrap()])));
    assert!(permits(&|rules, _| rules.programs = Some(vec![own.clone()])));
    assert!(!permits(&|rules, _| rules.programs = Some(vec!["another".to_owned()])));
    assert!(!permits(&|rules, _| rules.programs = Some(Vec::new())));
    assert!(!permits(&|rules, _| rules.hosts = host("other.test")));
    // The name alone would not bind a program that says where it is.
    assert!(!permits(&|rules, _| rules.hosts = host("*.test")));
    let kind = kind_under(json!({"addresses": []}), &|rules, _| rules.hosts = host("*.test"));
    assert_eq!(kind, "name_not_found");
}

/// Asks for the listening socket, and leaves.
const TAKES_OVER: &str = r#"
manager, answer = ask(take_over={})
print(json.dumps(answer.get("error", {"kind": "ready"})["kind"]))
"#;

/// With the socket it could deceive all other programs.
#[test]
fn a_confined_program_does_not_take_the_socket_over() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let kind = |by: &[&str], script: &str| run_by(0, by, &house, 1, script);
    assert_eq!(kind(&["env"], TAKES_OVER), "ready");
    for by in [
        &["unshare", "-n", "--"][..],
        &["unshare", "-p", "-f", "--mount-proc", "--"],
        &["setpriv", "--bounding-set=-sys_admin", "--"],
    ] {
        assert_eq!(kind(by, TAKES_OVER), "not_permitted", "{by:?}");
    }
    let filters = FILTERED.split("tcp =").next().unwrap();
    assert_eq!(kind(&["env"], &[filters, TAKES_OVER].concat()), "not_permitted");
    assert_eq!(run_as(12_345, &house, 1, TAKES_OVER), "not_permitted");
    // Nobody has taken it.
    assert_eq!(house.program().stats()["open"], 0);
}

/// The settings say whose connections are served. They keep neither the owner's questions nor a successor out.
#[test]
fn users_that_the_settings_leave_out_are_not_those_in_charge() {
    if !is_root() {
        return;
    }
    let house = House::with(|settings| settings.users = vec![65_534]);

    assert_eq!(run_as(0, &house, 1, TAKES_OVER), "ready");
    assert_eq!(house.program().stats()["open"], 0);
    assert_eq!(house.program().end(&json!("00000000000000000000000000000000")), "unknown");
    assert_eq!(house.program().kind("server.test", 1, json!({})), "not_permitted");
    assert!(rejoin_manager::take_over(&house.socket(), None).unwrap().is_some());
}

#[test]
fn a_successor_that_is_refused_says_why() {
    let folder = rejoin_testkit::folder::Folder::new();
    let path = folder.path().join("m.sock");
    let listener = UnixListener::bind(&path).unwrap();
    // Says so before it has heard anything, and hangs up.
    std::thread::spawn(move || {
        let said =
            br#"{"rejoin":1,"error":{"kind":"not_permitted","detail":"not you","remedy":""}}"#;
        let message = [&(said.len() as u32).to_be_bytes()[..], said].concat();
        for stream in listener.incoming() {
            stream.unwrap().write_all(&message).unwrap();
        }
    });
    for _ in 0..100 {
        let refused = rejoin_manager::take_over(&path, None).unwrap_err().to_string();
        assert!(refused.contains("not you"), "{refused}");
    }
}
