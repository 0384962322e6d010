//! The manager as a process: this test's own program, run again.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rejoin_manager::Settings;
use serde_json::json;

use crate::server::Server;
use rejoin_testkit::house::House;
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::proxy::{extension, tapped};

/// The environment variable with the process's socket.
const SOCKET: &str = "REJOIN_TEST_SOCKET";

/// Not a test: the process. It does nothing where no other test started it.
#[test]
fn process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let socket = Path::new(&socket);
    let (listener, _lock) = match rejoin_manager::listen(socket, 0o600) {
        Ok(listening) => listening,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    let bundle = Some(socket.with_file_name("authority.pem"));
    let settings = Settings { system_bundle: bundle, ..Settings::default() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener).unwrap();
        let never = std::future::pending();
        rejoin_manager::run(listener, settings, || {}, never).await.unwrap();
    });
}

pub(super) fn start(house: &House) -> Process {
    let mut process = Process::start(&mut command(house));
    wait_until("the manager's socket", || {
        assert!(process.ended().is_none());
        std::os::unix::net::UnixStream::connect(house.socket()).is_ok()
    });
    process
}

fn command(house: &House) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faults::process::process", "--nocapture"]);
    command.env(SOCKET, house.socket()).env("SSLKEYLOGFILE", house.file("keys"));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn rule_01_a_killed_manager_starts_with_nothing() {
    let house = House::empty();
    house.certify("server", &["server.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
    let (tap, told) = tapped(server.port);
    let why = || house.program().visit("server.test", tap, json!({}));
    let first = start(&house);
    assert_eq!(why(), "no_session");
    assert_eq!(why(), "resumed");
    drop(first);
    // Its socket is still there, and nobody behind it.
    assert!(house.socket().exists());
    let _second = start(&house);
    assert_eq!(why(), "no_session");
    assert_eq!(why(), "resumed");
    let mut tickets: Vec<_> = told.try_iter().filter_map(|flight| extension(&flight, 41)).collect();
    let all = tickets.len();
    tickets.sort();
    tickets.dedup();
    assert_eq!((all, tickets.len()), (2, 2));
}

#[test]
fn a_socket_that_is_taken_is_left_alone() {
    let house = House::empty();
    let _first = start(&house);
    let second = command(&house).output().unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("another manager serves"), "{said}");
    house.program().stats();
    // Something else than a socket is not removed.
    let house = House::empty();
    std::fs::write(house.socket(), "mine").unwrap();
    let second = command(&house).output().unwrap();
    assert!(!second.status.success());
    assert_eq!(std::fs::read(house.socket()).unwrap(), b"mine");
}

#[test]
fn rule_15_the_process_logs_no_keys() {
    let house = House::empty();
    house.certify("server", &["server.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
    let _process = start(&house);
    for _ in 0..2 {
        house.program().visit("server.test", server.port, json!({}));
    }
    assert!(!house.file("keys").exists());
    assert_eq!(house.socket().metadata().unwrap().mode() & 0o777, 0o600);
}

/// Returns the process's writable memory; only root can read it.
fn memory(process: &Process) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let folder = format!("/proc/{}", process.id());
    let memory = std::fs::File::open(format!("{folder}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("{folder}/maps")).unwrap();
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let at = |text| u64::from_str_radix(text, 16).unwrap();
        let mut part = vec![0; (at(to) - at(from)) as usize];
        // Some of it may be gone by now.
        if memory.read_exact_at(&mut part, at(from)).is_ok() {
            all.extend(part);
        }
    }
    all
}

#[test]
fn rule_15_a_clients_key_and_early_data_do_not_stay() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: the manager's memory is not shown");
        return;
    }
    let house = House::empty();
    house.certify("server", &["server.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3", "-verify", "1"]);
    let process = start(&house);
    let own = house.authority.issue(&["one.test"]);
    let early = "R0VUIC9zZWNyZXQtb2YtdGhlLXByb2dyYW0=";
    let wish = json!({"share": false, "early_data": early,
        "identity": {"chain": own.certificate, "key": own.key}});
    house.program().visit("server.test", server.port, wish);
    wait_until("no open connection", || house.program().stats()["open"] == 0);
    let all = memory(&process);
    let found = |text: &str| all.windows(text.len()).filter(|at| *at == text.as_bytes()).count();
    assert!(found("server.test") > 0, "the memory was read");
    // After those comes the public key, which is in the certificate, too.
    for line in own.key.lines().filter(|line| !line.starts_with('-')).take(2) {
        assert_eq!(found(line), 0, "{line}");
    }
    assert_eq!(found(early), 0);
    drop(process);
}
