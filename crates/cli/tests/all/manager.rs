//! `rejoin manager` as a process: it serves, says when it is ready, and ends when it is told to.

use crate::REJOIN;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rejoin_testkit::manager::serving;
use rejoin_testkit::process::{assert_has_no_rights, copy_program, status_kib, wait_until};

fn folder(name: &str) -> PathBuf {
    // A socket's path has 107 characters at most.
    let folder = std::env::temp_dir().join(format!("rejoin-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn rejoin() -> Command {
    let mut command = Command::new(REJOIN);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The answer to a request for counts.
fn stats(socket: &Path) -> serde_json::Value {
    let until = Instant::now() + Duration::from_secs(20);
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let request = br#"{"rejoin":1,"stats":{}}"#;
    stream.write_all(&(request.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    serde_json::from_slice(&answer[4..]).unwrap()
}

fn terminate(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

#[test]
fn it_says_when_it_is_ready_and_ends_when_told() {
    let folder = folder("manager");
    let (socket, notify) = (folder.join("m.sock"), folder.join("notify"));
    let told = UnixDatagram::bind(&notify).unwrap();
    told.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut command = rejoin();
    command.args(["manager", "--json", "--socket"]).arg(&socket).env("NOTIFY_SOCKET", &notify);
    let mut child = command.spawn().unwrap();
    let mut word = [0; 64];
    let read = told.recv(&mut word).unwrap();
    assert_eq!(&word[..read], b"READY=1");
    assert_eq!(stats(&socket)["stats"]["open"], 0);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A second one is told who is there.
    let second = rejoin().args(["manager", "--socket"]).arg(&socket).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("another manager serves") && said.lines().count() == 1, "{said}");
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let last: serde_json::Value = serde_json::from_str(&lines.last().unwrap()).unwrap();
    assert_eq!(last["handshakes"]["full"], 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn it_gives_the_socket_to_the_user_that_it_becomes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nobody else to become");
        return;
    }
    let folder = folder("becomes");
    let socket = folder.join("m.sock");
    let mut command = rejoin();
    command.args(["manager", "--user", "daemon", "--socket"]).arg(&socket);
    let mut child = command.spawn().unwrap();
    // It answers when it has become the user.
    stats(&socket);
    let of = std::fs::metadata(&socket).unwrap();
    let daemon = nix::unistd::User::from_name("daemon").unwrap().unwrap();
    let (uid, gid) = (daemon.uid.as_raw(), daemon.gid.as_raw());
    assert_eq!((of.uid(), of.gid(), of.mode() & 0o777), (uid, gid, 0o660));
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

/// It is root's until it has the socket.
#[test]
fn it_takes_over_from_a_manager_that_has_given_up_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nobody else to become");
        return;
    }
    let folder = folder("succeeds");
    let socket = folder.join("m.sock");
    let start = |more: &[&str]| {
        let mut command = rejoin();
        command.args(["manager", "--user", "daemon", "--socket"]).arg(&socket).args(more);
        serving(command.stderr(Stdio::null()))
    };
    // Without one to take over from, it starts as usual.
    let mut old = start(&["--take-over"]);
    assert_eq!(stats(&socket)["stats"]["open"], 0);
    let mut new = start(&["--take-over"]);
    assert!(old.wait().success());
    assert_eq!(stats(&socket)["stats"]["open"], 0);
    assert_has_no_rights(new.id(), "daemon");
    // The lock of the path is the new one's now.
    let third = rejoin().args(["manager", "--socket"]).arg(&socket).output().unwrap();
    let said = String::from_utf8_lossy(&third.stderr).into_owned();
    assert!(said.contains("--take-over"), "{said}");
    assert!(new.terminate().success());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn it_takes_the_service_managers_socket() {
    let folder = folder("activated");
    let socket = folder.join("m.sock");
    let mut command = Command::new("systemd-socket-activate");
    command.arg("--listen").arg(&socket).arg(REJOIN).arg("manager");
    let Ok(mut child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        eprintln!("systemd-socket-activate is not installed: nothing is tested");
        return;
    };
    assert_eq!(stats(&socket)["stats"]["open"], 0);
    // It has become the manager.
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn settings_that_make_no_sense_are_one_line() {
    let folder = folder("settings");
    let settings = folder.join("manager.toml");
    std::fs::write(&settings, "tickets = 0\n").unwrap();
    let refused = rejoin().args(["manager", "--settings"]).arg(&settings).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("tickets: give 1 to 64") && said.lines().count() == 1, "{said}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn without_a_place_for_its_socket_it_gives_advice() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nobody else to start it");
        return;
    }
    let folder = folder("advice");
    // Another user may not reach the one that was built.
    let program = folder.join("rejoin");
    copy_program(Path::new(REJOIN), &program);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=4242", "--regid=4242", "--clear-groups", "--"]).arg(&program);
    let refused = command.arg("manager").env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let line = said.lines().rfind(|line| !line.contains("swap")).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    for word in
        ["XDG_RUNTIME_DIR is not set", "/run/user/4242", "--socket PATH", "REJOIN_MANAGER=PATH"]
    {
        assert!(line.contains(word), "{said}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn its_memory_is_locked_where_the_limit_allows_all_of_it() {
    let folder = folder("locked");
    let locked_kib = |user: &[&str]| {
        let socket = folder.join("m.sock");
        let mut command = rejoin();
        command.args(["manager", "--socket"]).arg(&socket).args(user).stderr(Stdio::null());
        let manager = serving(&mut command);
        // It still gets memory.
        assert_eq!(stats(&socket)["stats"]["open"], 0);
        status_kib(manager.id(), "VmLck").unwrap()
    };
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let limit = limits.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
    let is_unlimited = limit.contains("unlimited");
    let (root, own) = (rustix::process::geteuid().is_root(), locked_kib(&[]));
    assert_eq!(own > 1_024, root || is_unlimited, "{own} KiB of {limit}");
    if root {
        // Root may lock, and may lift the limit or not; its user may not.
        let other = locked_kib(&["--user", "daemon"]);
        assert!(other == 0 || other > 1_024, "{other} KiB of {limit}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn it_tells_the_service_manager_how_long_it_may_drain() {
    let folder = folder("notifies");
    let (socket, notify) = (folder.join("m.sock"), folder.join("notify"));
    let settings = folder.join("manager.toml");
    std::fs::write(&settings, "drain_s = 77\n").unwrap();
    let told = UnixDatagram::bind(&notify).unwrap();
    told.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut command = rejoin();
    command.args(["manager", "--socket"]).arg(&socket).arg("--settings").arg(&settings);
    let mut child = command.env("NOTIFY_SOCKET", &notify).spawn().unwrap();
    let mut word = [0; 64];
    let mut next = || {
        let read = told.recv(&mut word).unwrap();
        String::from_utf8_lossy(&word[..read]).into_owned()
    };
    assert_eq!(next(), "READY=1");
    // A program that has said nothing yet.
    let waiting = UnixStream::connect(&socket).unwrap();
    stats(&socket);
    terminate(&child);
    assert_eq!(next(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=87000000");
    drop(waiting);
    wait_until("its end", || child.try_wait().unwrap().is_some());
    std::fs::remove_dir_all(folder).unwrap();
}
