//! The memory and descriptors of connections, and their release.

use std::time::{Duration, Instant};

use serde_json::json;

use super::process::start;
use rejoin_testkit::house::House;
use rejoin_testkit::process::status_kib;

/// Returns the resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    status_kib(pid, "VmRSS").unwrap() * 1024
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn two_thousand_connections_at_once_take_64_kib_each_at_most() {
    const CONNECTIONS: usize = 2_000;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    if most.is_some_and(|most| most < 10_000) {
        eprintln!("only {most:?} descriptors are allowed: not tested");
        return;
    }
    // The process inherits it.
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let house = House::empty();
    let server = house.rustls(|_| {});
    let process = start(&house);
    let pid = process.id();
    let connect = || house.program().connect("server.test", server.port, json!({})).unwrap();
    // What is allocated once.
    drop((0..50).map(|_| connect()).collect::<Vec<_>>());
    let settled = |open: usize| {
        let until = Instant::now() + Duration::from_secs(60);
        while house.program().stats()["open"] != open {
            assert!(Instant::now() < until, "{}", house.program().stats());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    settled(0);
    let (before, files) = (resident(pid), descriptors(pid));
    let program = house.program();
    let port = server.port;
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let program = program.clone();
            std::thread::spawn(move || {
                let wishes = || json!({"deadline_ms": 60_000});
                let connect = || program.connect("server.test", port, wishes()).unwrap();
                (0..CONNECTIONS / 20).map(|_| connect()).collect::<Vec<_>>()
            })
        })
        .collect();
    let connections: Vec<_> =
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    settled(CONNECTIONS);
    let each = resident(pid).saturating_sub(before) / CONNECTIONS as u64;
    eprintln!("{each} bytes for each idle connection");
    assert!(each <= 64 * 1024, "{each} bytes");
    // All of them work.
    for connection in connections.into_iter().step_by(100) {
        connection.talk();
    }
    settled(0);
    assert!(descriptors(pid) <= files + 2, "{} descriptors after {files}", descriptors(pid));
}
