//! Users that take all that the manager gives one user: others are served.

use std::time::{Duration, Instant};

use rejoin_manager::{Control, Event, Settings, Sockets, serve};
use rejoin_testkit::alone::alone;
use rejoin_testkit::house::House;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
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

/// Passes sockets whose last close waits, and then comes and goes: each time with bytes that nobody reads, and with a
/// descriptor among them if that is asked for.
const LEAVES_BYTES: &str = r#"
import os, threading
def lingers(listener):
    tcp = socket.create_connection(listener.getsockname())
    peers.append(listener.accept()[0])
    tcp.setblocking(False)
    try:
        while True:
            tcp.send(b"x" * 65536)
    except BlockingIOError:
        pass
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3000))
    return tcp
peers, listener = [], socket.create_server(("127.0.0.1", 0))
def gives():
    # If the manager is the first to close the socket, this thread is the one that waits.
    tcp, manager = lingers(listener), dial()
    socket.send_fds(manager, [bytes(3)], [tcp.fileno()])
    tcp.close()
for _ in range(8):
    thread = threading.Thread(target=gives, daemon=True)
    thread.start()
    thread.join(0.2)
pipe, _ = os.pipe()
for _ in range(3000):
    try:
        manager = dial()
        message = json.dumps({"rejoin": 1, "stats": {}}).encode()
        manager.sendall(struct.pack(">I", len(message)) + message + b"unread")
        if DESCRIPTOR:
            socket.send_fds(manager, [b"x"], [pipe])
        manager.settimeout(5)
        manager.recv(100_000)
    except ConnectionError:
        pass
    except TimeoutError:
        break
    manager.close()
print("done", flush=True)
sys.stdin.read()
"#;

/// Sockets that wait to be closed are descriptors, too. Neither a user of the manager nor one whom the settings leave
/// out may have them all.
#[test]
fn sockets_that_cannot_be_closed_leave_room_for_the_next_user() {
    if !geteuid().is_root() {
        eprintln!("not root: there is no other user to ask as");
        return;
    }
    alone(|| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(800), maximum }).unwrap();
        for (users, descriptor) in
            [(vec![], "False"), (vec![0], "False"), (vec![], "True"), (vec![0], "True")]
        {
            let house = House::with(|settings| settings.users = users.clone());
            let server = house.rustls(|_| {});
            let source = format!("DESCRIPTOR = {descriptor}\n{LEAVES_BYTES}");
            let (_process, lines) = start_as(12_345, &house, server.port, &source);
            assert_eq!(lines.next_line().as_deref(), Some("done"));
            let since = Instant::now();
            assert_eq!(house.program().visit("server.test", server.port, json!({})), "no_session");
            let taken = since.elapsed();
            assert!(taken < Duration::from_secs(1), "{users:?} {descriptor}: {taken:?}");
        }
    });
}

#[test]
fn a_manager_that_cannot_accept_says_so() {
    alone(|| {
        let folder = rejoin_testkit::folder::Folder::new();
        let path = folder.path().join("m.sock");
        let (listener, lock) = rejoin_manager::listen(&path, 0o600).unwrap();
        listener.set_nonblocking(true).unwrap();
        let sockets = Sockets { listener, lock: Some(lock), predecessor: None };
        let (controls, received) = tokio::sync::mpsc::unbounded_channel();
        let (tell, told) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let tell = move |event| tell.send(event).unwrap();
        let serving = runtime.spawn(serve(sockets, Settings::default(), received, tell));
        let next = || told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(matches!(next(), Event::Ready));
        let program = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..limits }).unwrap();
        connect(&program, &SocketAddrUnix::new(path).unwrap()).unwrap();
        let event = next();
        setrlimit(Resource::Nofile, limits).unwrap();
        let Event::CannotAccept(why) = event else { panic!("{event:?}") };
        assert_eq!(why.raw_os_error(), Some(24));
        controls.send(Control::Stop).unwrap();
        runtime.block_on(serving).unwrap().unwrap();
        assert!(told.try_recv().is_err(), "it says it once");
    });
}
