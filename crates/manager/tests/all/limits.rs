//! Users that take all that the manager gives one user: others are served.

use std::time::{Duration, Instant};

use rejoin_testkit::alone::alone;
use rejoin_testkit::house::House;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use serde_json::json;

use crate::others::start_as;

/// Fills the memory for sessions, and then has as many connections as it gets.
const TAKES_ALL: &str = r#"
for number in range(200):
    manager, answer = ask(connect={**connect, "label": str(number // 2)})
    if "connected" in answer:
        manager.sendall(b"hello\n")
        manager.recv(6)
    manager.close()
held = []
while True:
    manager, answer = ask(connect=connect)
    if "connected" not in answer:
        break
    held.append(manager)
print(answer["error"]["kind"], len(held), flush=True)
sys.stdin.read()
"#;

/// Two users, and few descriptors.
#[test]
fn two_users_at_their_limits_leave_room_for_the_next() {
    if !geteuid().is_root() {
        eprintln!("not root: there is no other user to ask as");
        return;
    }
    alone(|| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(800), maximum }).unwrap();
        let house = House::with(|settings| settings.session_bytes = 256 * 1024);
        let server = house.rustls(|_| {});
        let visit = || {
            let since = Instant::now();
            let why = house.program().visit("server.test", server.port, json!({}));
            (since.elapsed(), why)
        };
        assert_eq!(visit().1, "no_session");
        let mut others = Vec::new();
        for uid in [12_345, 12_346] {
            let (process, lines) = start_as(uid, &house, server.port, TAKES_ALL);
            let told = lines.next_line().expect("it has all that it gets");
            let (kind, held) = told.split_once(' ').unwrap();
            assert!(kind == "busy" && held.parse::<usize>().unwrap() > 1, "{told}");
            others.push((process, lines));
        }
        let visits: Vec<_> = (0..5).map(|_| visit()).collect();
        // The server may have forgotten the first session.
        assert_eq!(visits[4].1, "resumed", "{visits:?}");
        let fastest = visits.iter().map(|(time, _)| *time).min().unwrap();
        eprintln!("served in {fastest:?} at best: {visits:?}");
        assert!(fastest < Duration::from_secs(1), "{visits:?}");
    });
}

/// Announces requests of 256 KiB, and withholds them. The manager waits for them for ten seconds.
const ANNOUNCES: &str = r#"
import select
held = [dial() for _ in range(140)]
for manager in held:
    manager.sendall(struct.pack(">I", 256 * 1024))
print(len(select.select(held, [], [], 20)[0]), flush=True)
sys.stdin.read()
"#;

/// Four users whose requests fill what one user may have each: together they would have all.
#[test]
fn requests_that_are_withheld_leave_room_for_those_of_the_next_user() {
    if !geteuid().is_root() {
        eprintln!("not root: there is no other user to ask as");
        return;
    }
    let house = House::new();
    let others: Vec<_> = (12_345..12_349).map(|uid| start_as(uid, &house, 1, ANNOUNCES)).collect();
    for (_, lines) in &others {
        let refused = lines.next_line().expect("an answer");
        assert_ne!(refused, "0", "all are waited for");
    }
    let long = json!({"trust": {"bundle": " ".repeat(200_000)}});
    assert_eq!(house.program().kind("server.test", 1, long), "bad_request");
}
