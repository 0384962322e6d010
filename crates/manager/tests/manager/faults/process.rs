//! The manager as a process: this test's own program, run again.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rejoin_manager::Settings;
use serde_json::json;

use crate::means::House;
use crate::means::rogue::{extension, tapped};
use crate::means::server::Server;

/// Where the process listens, in its environment.
const SOCKET: &str = "REJOIN_TEST_SOCKET";
/// Whom it becomes, if anybody.
const USER: &str = "REJOIN_TEST_USER";

/// Not a test: the process. It does nothing where no other test started it.
#[test]
fn process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let socket = Path::new(&socket);
    rejoin_manager::harden().unwrap();
    let (listener, _lock) = match rejoin_manager::listen(socket, 0o600) {
        Ok(listening) => listening,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    if let Ok(user) = std::env::var(USER) {
        rejoin_manager::hand_over(socket, &user).unwrap();
        rejoin_manager::become_user(&user).unwrap();
    }
    let bundle = Some(socket.with_file_name("authority.pem"));
    let settings = Settings { system_bundle: bundle, ..Settings::default() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener).unwrap();
        let never = std::future::pending();
        rejoin_manager::run(listener, settings, || {}, never).await.unwrap();
    });
}

pub(super) struct Process(pub(super) Child);

impl Process {
    pub(super) fn start(house: &House) -> Self {
        Self::start_with(house, &mut Self::command(house))
    }

    fn start_with(house: &House, command: &mut Command) -> Self {
        let mut process = Self(command.spawn().unwrap());
        let until = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(house.socket()).is_err() {
            assert!(process.0.try_wait().unwrap().is_none() && Instant::now() < until);
            std::thread::sleep(Duration::from_millis(10));
        }
        process
    }

    fn command(house: &House) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "faults::process::process", "--nocapture"]);
        command.env(SOCKET, house.socket()).env("SSLKEYLOGFILE", house.file("keys"));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn rule_01_a_killed_manager_starts_with_nothing() {
    let house = House::empty();
    house.certify("server", &["server.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
    let (tap, told) = tapped(server.port);
    let why = || house.program().visit("server.test", tap, json!({}));
    let first = Process::start(&house);
    assert_eq!(why(), "no_session");
    assert_eq!(why(), "resumed");
    drop(first);
    // Its socket is still there, and nobody behind it.
    assert!(house.socket().exists());
    let _second = Process::start(&house);
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
    let _first = Process::start(&house);
    let second = Process::command(&house).output().unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("another manager serves"), "{said}");
    house.program().stats();
    // Something else than a socket is not removed.
    let house = House::empty();
    std::fs::write(house.socket(), "mine").unwrap();
    let second = Process::command(&house).output().unwrap();
    assert!(!second.status.success());
    assert_eq!(std::fs::read(house.socket()).unwrap(), b"mine");
}

#[test]
fn rule_15_the_process_logs_no_keys_and_shows_its_memory_to_nobody() {
    let house = House::empty();
    house.certify("server", &["server.test"]);
    let server = Server::openssl(&house.folder, "server", &["-tls1_3"]);
    let process = Process::start(&house);
    for _ in 0..2 {
        house.program().visit("server.test", server.port, json!({}));
    }
    assert!(!house.file("keys").exists());
    assert_eq!(house.socket().metadata().unwrap().mode() & 0o777, 0o600);
    let folder = format!("/proc/{}", process.0.id());
    let limits = std::fs::read_to_string(format!("{folder}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
}

#[test]
fn rule_15_hardening_hides_the_memory() {
    use rustix::process::{DumpableBehavior, dumpable_behavior};
    rejoin_manager::harden().unwrap();
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
}

#[test]
fn a_manager_that_becomes_another_user_gives_it_the_socket() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nobody else to become");
        return;
    }
    let house = House::empty();
    let _process = Process::start_with(&house, Process::command(&house).env(USER, "daemon"));
    // It answers when it has become the user.
    house.program().stats();
    let of = house.socket().metadata().unwrap();
    let daemon = nix::unistd::User::from_name("daemon").unwrap().unwrap();
    assert_eq!(
        (of.uid(), of.gid(), of.mode() & 0o777),
        (daemon.uid.as_raw(), daemon.gid.as_raw(), 0o660)
    );
}

/// What the process has in memory; for root alone.
fn memory(process: &Process) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let folder = format!("/proc/{}", process.0.id());
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
    let process = Process::start(&house);
    let own = house.authority.issue(&["one.test"]);
    let early = "R0VUIC9zZWNyZXQtb2YtdGhlLXByb2dyYW0=";
    let wish = json!({"share": false, "early_data": early,
        "identity": {"chain": own.certificate, "key": own.key}});
    house.program().visit("server.test", server.port, wish);
    let until = Instant::now() + Duration::from_secs(20);
    while house.program().stats()["open"] != 0 {
        assert!(Instant::now() < until);
    }
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
