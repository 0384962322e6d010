//! The ways in which a server's connection ends reach the program as without Rejoin.

use std::process::{Command, Output, Stdio};

use rejoin_testkit::clients::world::World;
use rejoin_testkit::process::{Process, wait_until};

use crate::program::text;

/// A server of answers without a length, which ends each connection as the path says. It sends half of the last answer,
/// and waits until it is killed.
const SERVER: &str = "\
import socket, ssl, struct, sys, threading, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.minimum_version = getattr(ssl.TLSVersion, sys.argv[3])
context.maximum_version = context.minimum_version
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
def serve(connection):
    tls = context.wrap_socket(connection, server_side=True)
    path = tls.recv(4096).split()[1]
    tls.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\n' + 150000 * b'a')
    if path == b'/half':
        print('half', flush=True)
        time.sleep(60)
    tls.sendall(150000 * b'b')
    if path == b'/notify':
        tls.unwrap()
    elif path == b'/reset':
        time.sleep(0.7)
        tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    tls.close()
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
";

fn start(world: &World, version: &str) -> (Process, rejoin_testkit::process::Lines, u16) {
    let (certificate, key) = world.managed.certify(&["localhost"]);
    let mut command = Command::new("python3");
    command.args(["-c", SERVER, &certificate, &key, version]).stdout(Stdio::piped());
    let mut server = Process::start(&mut command);
    let lines = server.lines();
    let port = lines.find(|line| line.parse().ok());
    (server, lines, port)
}

/// Returns the commands that download a page.
fn programs(world: &World, port: u16, path: &str) -> Vec<Command> {
    let (url, ca) = (format!("https://localhost:{port}/{path}"), world.managed.file("ca.pem"));
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--http1.0", "--cacert", &ca, &url]);
    let mut wget = Command::new("wget");
    wget.args(["-q", "-O-", "-t1", &format!("--ca-certificate={ca}"), &url]);
    let mut python = Command::new("/usr/bin/python3");
    let script = "import ssl, sys, urllib.request as u\n\
        context = ssl.create_default_context(cafile=sys.argv[2])\n\
        sys.stdout.buffer.write(u.urlopen(sys.argv[1], context=context).read())\n";
    python.args(["-c", script, &url, &ca]);
    vec![curl, wget, python]
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn last_line(output: &Output) -> String {
    text(&output.stderr)
        .lines()
        .rfind(|line| !line.contains("rejoin"))
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_reset_is_a_reset_and_an_end_is_an_end() {
    let world = World::new("endings");
    for version in ["TLSv1_2", "TLSv1_3"] {
        let (_server, _lines, port) = start(&world, version);
        for path in ["notify", "close", "reset"] {
            let plain = programs(&world, port, path);
            for (mut plain, mut with) in plain.into_iter().zip(programs(&world, port, path)) {
                let what = format!("{version} {path} {}", name(&plain));
                let Ok(plain) = plain.output() else { continue };
                for round in 0..2 {
                    world.with_rejoin(&mut with);
                    let with = with.output().expect("it runs");
                    let told = text(&with.stderr);
                    assert!(told.contains("through the manager"), "{what}: {told}");
                    assert_eq!(with.status, plain.status, "{what} {round}: {told}");
                    assert_eq!(with.stdout.len(), plain.stdout.len(), "{what} {round}: {told}");
                    assert_eq!(last_line(&with), last_line(&plain), "{what} {round}");
                }
            }
        }
    }
}

/// A manager that dies is no end of the data. (Python 3.11 takes most resets for one, and is left out.)
#[test]
fn what_a_killed_manager_left_half_is_an_error() {
    let mut world = World::new("half");
    let (_server, lines, port) = start(&world, "TLSv1_3");
    let half = programs(&world, port, "half").into_iter();
    for mut with in half.filter(|program| !name(program).contains("python")) {
        let what = name(&with);
        world.with_rejoin(&mut with);
        let output = world.managed.file("output");
        with.stdout(std::fs::File::create(&output).expect("a file")).stderr(Stdio::piped());
        let mut program = Process::start(&mut with);
        assert_eq!(lines.next_line().as_deref(), Some("half"), "{what}");
        wait_until("half of the answer is relayed", || {
            std::fs::metadata(&output).is_ok_and(|file| file.len() > 0)
        });
        world.managed.kill();
        let status = program.wait();
        assert!(!status.success(), "{what} took half for all");
        world.managed.run();
    }
}

/// Resets the connection when the client has made its handshake.
const RESETS: &str = "\
import socket, ssl, struct, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    tls = context.wrap_socket(listener.accept()[0], server_side=True)
    tls.recv(1)
    tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    tls.close()
";

/// Writes twice after the reset.
const WRITES: &str = "\
import os, select, signal, socket, ssl, sys
signal.signal(signal.SIGPIPE, lambda *said: print('signal'))
plain = socket.create_connection(('localhost', int(sys.argv[1])))
tls = ssl.create_default_context(cafile=sys.argv[2]).wrap_socket(plain, server_hostname='localhost')
tls.send(b'x')
poll = select.poll()
poll.register(tls.fileno(), 0)
poll.poll(30000)
for _ in range(2):
    try:
        os.write(tls.fileno(), b'x')
    except OSError as error:
        print(type(error).__name__)
";

#[test]
fn who_writes_after_a_reset_hears_of_it_first() {
    let world = World::new("writes");
    let (certificate, key) = world.managed.certify(&["localhost"]);
    let mut command = Command::new("python3");
    command.args(["-c", RESETS, &certificate, &key]).stdout(Stdio::piped());
    let mut server = Process::start(&mut command);
    let port: u16 = server.lines().find(|line| line.parse().ok());
    let client = || {
        let mut client = Command::new("/usr/bin/python3");
        client.args(["-c", WRITES, &port.to_string(), &world.managed.file("ca.pem")]);
        client
    };
    let plain = client().output().expect("it runs");
    assert!(text(&plain.stdout).starts_with("ConnectionResetError"), "{}", text(&plain.stdout));
    let mut with = client();
    world.with_rejoin(&mut with);
    let with = with.output().expect("it runs");
    assert!(text(&with.stderr).contains("through the manager"), "{}", text(&with.stderr));
    assert_eq!(text(&with.stdout), text(&plain.stdout));
}
