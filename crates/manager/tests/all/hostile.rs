//! Programs that harm others, or that end as none should.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::net::SendFlags;
use serde_json::json;

use rejoin_testkit::certificates::Pair;
use rejoin_testkit::house::House;
use rejoin_testkit::house::program::{answer, pass, pass_with, send};
use rejoin_testkit::house::rustls_server;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::proxy::{call, rogue};

/// A socket whose last close takes long.
fn lingering(listener: &TcpListener, held: &mut Vec<TcpStream>) -> TcpStream {
    let mut tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    held.push(listener.accept().unwrap().0);
    let seconds = Some(Duration::from_secs(60));
    rustix::net::sockopt::set_socket_linger(&tcp, seconds).unwrap();
    tcp.set_nonblocking(true).unwrap();
    while tcp.write(&[0; 65_536]).is_ok() {}
    tcp
}

/// Returns true if the manager answers another program within 20 seconds.
fn answers(house: &House) -> bool {
    let program = house.program();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut stream = program.dial();
        send(&mut stream, &json!({"rejoin": 1, "stats": {}}));
        let mut length = [0; 4];
        let _ = tell.send(stream.read_exact(&mut length).is_ok());
    });
    told.recv_timeout(Duration::from_secs(20)).unwrap_or(false)
}

/// Closing a socket that lingers waits for its peer: not on a thread that serves programs.
#[test]
fn a_passed_socket_that_lingers_holds_nobody_up() {
    let house = House::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        let tcp = lingering(&listener, &mut held);
        let mut stream = house.program().dial();
        pass(&stream, &[0], &tcp);
        drop(tcp);
        // A message of no length: the manager is the last to close the socket.
        stream.write_all(&[0; 3]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(answers(&house), "a program holds the manager up");
}

/// Descriptors arrive wherever a program sends them.
#[test]
fn sockets_that_nobody_asked_for_hold_nobody_up() {
    let (house, server) = House::with_rustls(|_| {});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (mut held, mut open) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        // With plaintext.
        let connection = house.program().connect("server.test", server.port, json!({})).unwrap();
        pass(&connection.stream, b"x", &lingering(&listener, &mut held));
        open.push(connection.stream);
        // After a request that comes to nothing: nobody reads it.
        let mut stream = house.program().dial();
        let silent = json!({"host": "127.0.0.1", "port": port, "deadline_ms": 500});
        send(&mut stream, &json!({"rejoin": 1, "connect": silent}));
        pass(&stream, b"x", &lingering(&listener, &mut held));
        assert_eq!(answer(&mut stream)["error"]["kind"], "timeout");
        open.push(stream);
        // Out of band: the next read passes it by.
        let stream = house.program().dial();
        pass_with(&stream, b"x", &lingering(&listener, &mut held), SendFlags::OOB);
        pass(&stream, &[0; 4], &lingering(&listener, &mut held));
        open.push(stream);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(answers(&house), "a program holds the manager up");
}

/// The program has the socket that it passed, too, and may make it wait.
#[test]
fn a_passed_socket_that_is_made_to_wait_holds_nobody_up() {
    let (house, server) = House::with_rustls(|_| {});
    let mut held = Vec::new();
    for _ in 0..2 {
        let tcp = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let wish = json!({"host": "server.test", "port": 1, "socket": true});
        let request = json!({"rejoin": 1, "connect": wish});
        let (mut stream, answer) = house.program().ask_passing(&request, &tcp);
        assert_eq!(answer["connected"]["version"], "TLSv1.3");
        tcp.set_nonblocking(false).unwrap();
        stream.write_all(b"hello\n").unwrap();
        held.push((tcp, stream));
        std::thread::sleep(Duration::from_millis(300));
        let is_up = answers(&house);
        if !is_up {
            // So that the test ends.
            for (tcp, _) in &held {
                let _ = tcp.shutdown(Shutdown::Both);
            }
        }
        assert!(is_up, "a program holds the manager up");
    }
}

/// Passes a socket, and holds the kernel's lock on it: it sends from memory whose pages it is to
/// supply itself, and never does. MANAGER PORT HOW-MANY
const HOLDER: &str = "\
import ctypes, fcntl, json, mmap, platform, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
call = {'x86_64': 323, 'aarch64': 282}.get(platform.machine())
supplier = libc.syscall(call, 0) if call else -1
if supplier < 0:
    sys.exit('skipped')
fcntl.ioctl(supplier, 0xC018AA3F, bytearray(struct.pack('QQQ', 0xAA, 0, 0)))
page = mmap.mmap(-1, mmap.PAGESIZE)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
register = struct.pack('QQQQ', at, mmap.PAGESIZE, 1, 0)
fcntl.ioctl(supplier, 0xC020AA00, bytearray(register))
kept = []
for _ in range(int(sys.argv[3])):
    tcp = socket.create_connection(('127.0.0.1', int(sys.argv[2])))
    send = lambda fd=tcp.fileno(): libc.send(fd, ctypes.c_void_p(at), mmap.PAGESIZE, 0)
    threading.Thread(target=send, daemon=True).start()
    time.sleep(.2)
    manager = socket.socket(socket.AF_UNIX)
    manager.connect(sys.argv[1])
    wish = {'host': 'server.test', 'port': 1, 'socket': True}
    request = json.dumps({'rejoin': 1, 'connect': wish}).encode()
    socket.send_fds(manager, [struct.pack('>I', len(request)) + request], [tcp.fileno()])
    kept.append((tcp, manager))
time.sleep(.3)
print('held', flush=True)
sys.stdin.read()
";

/// Every system call on such a socket blocks, even one for its address.
#[test]
fn a_passed_socket_that_is_held_holds_nobody_up() {
    let house = House::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut holder = Command::new("python3")
        .args(["-c", HOLDER, house.socket().to_str().unwrap(), &port, "4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut said = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let is_up = answers(&house);
    holder.kill().unwrap();
    holder.wait().unwrap();
    if said.is_empty() {
        eprintln!("userfaultfd is not available: not tested");
    }
    assert!(is_up, "a program holds the manager up");
}

/// A server that tells how its client ended: `Ok` after a `close_notify`.
fn watching(pair: &Pair) -> (u16, std::sync::mpsc::Receiver<std::io::Result<usize>>) {
    let (tell, told) = channel();
    let port = rustls_server::rogue(rustls_server::config(pair, |_| {}), move |mut stream| {
        let _ = tell.send(stream.read_to_end(&mut Vec::new()));
    });
    (port, told)
}

/// A shutdown of the manager truncates the program's data: the server must not take it for complete.
#[test]
fn a_manager_that_ends_does_not_say_that_its_programs_were_done() {
    let mut house = House::new();
    let pair = house.certify("server", &["server.test"]);
    let (port, told) = watching(&pair);
    let mut connection = house.program().connect("server.test", port, json!({})).unwrap();
    connection.stream.write_all(b"the first half").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    house.stop();
    let ended = told.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(ended.is_err(), "the server was told that this was all: {ended:?}");
}

/// A program that dies is no program that is done (it has not shut its direction down).
#[test]
fn a_program_that_is_gone_has_not_said_that_this_was_all() {
    let house = House::new();
    let pair = house.certify("server", &["server.test"]);
    let (port, told) = watching(&pair);
    let mut connection = house.program().connect("server.test", port, json!({})).unwrap();
    connection.stream.write_all(b"the first half").unwrap();
    drop(connection);
    let ended = told.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(ended.is_err(), "the server was told that this was all: {ended:?}");
}

#[test]
fn a_program_that_dies_before_a_server_that_takes_nothing_is_noticed() {
    let (house, server) = House::with_rustls(|_| {});
    // Passes the handshake on, and then takes nothing more.
    let port = rogue(move |mut client| {
        let mut server = call(server.port, &client);
        let (mut piece, mut seen) = ([0; 4096], 0);
        while let Ok(read) = client.read(&mut piece) {
            seen += read;
            if read == 0 || seen > 20_000 {
                break;
            }
            server.write_all(&piece[..read]).unwrap();
        }
        // Holds the connection until the test's process ends.
        loop {
            std::thread::park();
        }
    });
    let mut connection = house.program().connect("server.test", port, json!({})).unwrap();
    connection.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    while connection.stream.write(&[b'x'; 65_536]).is_ok() {}
    drop(connection);
    wait_until("the end of a connection whose program is gone", || {
        house.clock.pass(Duration::from_secs(10));
        house.program().stats()["open"] == 0
    });
}

#[test]
fn a_server_that_breaks_over_a_session_on_a_passed_socket_is_left_to_the_program() {
    let (house, server) = House::with_rustls(|_| {});
    house.program().visit("server.test", server.port, json!({}));
    // Hangs up on every hello.
    let port = rogue(|mut client| {
        let _ = client.read(&mut [0; 16 * 1024]);
    });
    let ask = |label: &str| {
        let tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let wish =
            json!({"host": "server.test", "port": server.port, "socket": true, "label": label});
        let request = json!({"rejoin": 1, "connect": wish});
        house.program().ask_passing(&request, &tcp).1["error"]["kind"].clone()
    };
    assert_eq!(ask("without a session"), "tls_failed");
    assert_eq!(ask(""), "busy");
}

#[test]
fn programs_that_give_up_during_the_handshake_leave_their_place() {
    let house = House::with(|settings| settings.connections_per_user = 3);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = house.program().dial();
        let wish = json!({"host": "127.0.0.1", "port": port, "deadline_ms": 120_000});
        send(&mut stream, &json!({"rejoin": 1, "connect": wish}));
        open.push(silent.accept().unwrap());
    }
    wait_until("room for another program", || {
        let mut stream = house.program().dial();
        let _ = stream.write_all(&[0; 4]);
        answer(&mut stream)["error"]["kind"] == "bad_request"
    });
}

/// Long requests beyond the quota are refused with "busy"; short requests are still served.
#[test]
fn long_requests_that_are_withheld_take_so_much_and_no_more() {
    let house = House::new();
    let announce = || {
        let mut stream = house.program().dial();
        stream.write_all(&(256_u32 * 1024).to_be_bytes()).unwrap();
        stream
    };
    let held: Vec<_> = (0..200).map(|_| announce()).collect();
    // Of 32 MiB.
    let is_told = |stream: &&std::os::unix::net::UnixStream| {
        stream.set_nonblocking(true).unwrap();
        rustix::net::recv(stream, &mut [0; 1][..], rustix::net::RecvFlags::PEEK).is_ok()
    };
    let refused = || held.iter().filter(is_told).count();
    // Sooner than the requests time out, after ten seconds.
    let until = std::time::Instant::now() + Duration::from_secs(8);
    while refused() < 72 {
        assert!(std::time::Instant::now() < until, "{} were told", refused());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut told = held.iter().find(is_told).unwrap().try_clone().unwrap();
    told.set_nonblocking(false).unwrap();
    assert_eq!(answer(&mut told)["error"]["kind"], "busy");
    wait_until("no open connection", || house.program().stats()["open"] == 0);
    drop(held);
    let long = json!({"trust": {"bundle": " ".repeat(200_000)}});
    wait_until("room for a long request", || {
        house.program().kind("server.test", 1, long.clone()) != "busy"
    });
}
