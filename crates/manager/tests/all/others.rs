//! Programs of other users, and in other places, in Python.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rejoin_testkit::house::House;
use rejoin_testkit::process::{Lines, Process};
use serde_json::Value;

/// Speaks the protocol. MANAGER PORT
const ASK: &str = r#"
import json, socket, struct, sys
def dial():
    manager = socket.socket(socket.AF_UNIX)
    manager.connect(sys.argv[1])
    return manager
def ask(passing=[], **request):
    manager = dial()
    message = json.dumps({"rejoin": 1, **request}).encode()
    message = struct.pack(">I", len(message)) + message
    if passing:
        socket.send_fds(manager, [message], passing)
    else:
        manager.sendall(message)
    def exactly(count):
        read = b""
        while len(read) < count:
            more = manager.recv(count - len(read))
            assert more
            read += more
        return read
    return manager, json.loads(exactly(struct.unpack(">I", exactly(4))[0]))
connect = {"host": "server.test", "port": int(sys.argv[2]), "addresses": ["127.0.0.1"]}
"#;

/// Returns a command that runs a script of this user, by these words before it.
fn script(uid: u32, before: &[&str], house: &House, port: u16, script: &str) -> Command {
    for path in [&house.folder, &house.socket()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let user = format!("--reuid={uid}");
    let setpriv = ["setpriv", &user, "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c"];
    let mut words = before.iter().chain(&setpriv);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args([&[ASK, script].concat(), house.socket().to_str().unwrap()]);
    command.arg(port.to_string());
    command
}

/// Runs a program of another user, and returns what it prints.
pub(crate) fn run_as(uid: u32, house: &House, port: u16, source: &str) -> Value {
    run_by(uid, &[], house, port, source)
}

/// The same, by a command such as `unshare`.
pub(crate) fn run_by(uid: u32, by: &[&str], house: &House, port: u16, source: &str) -> Value {
    let asked = script(uid, by, house, port, source).output().unwrap();
    serde_json::from_slice(&asked.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&asked.stderr)))
}

/// Starts a program of another user, which runs until it is dropped. Returns its lines, too.
pub(crate) fn start_as(uid: u32, house: &House, port: u16, source: &str) -> (Process, Lines) {
    let mut command = script(uid, &[], house, port, source);
    let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let lines = process.lines();
    (process, lines)
}
