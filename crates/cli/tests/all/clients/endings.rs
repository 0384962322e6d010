//! A server's reset reaches a program that writes as it does without Rejoin. The other ends are in `differential`.

use std::process::{Command, Stdio};

use rejoin_testkit::clients::world::World;
use rejoin_testkit::process::{Lines, Process};

use crate::program::text;

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

/// Closes its own direction without close_notify, and prints what it reads then.
const CLOSES: &str = "\
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    tls = context.wrap_socket(listener.accept()[0], server_side=True, suppress_ragged_eofs=False)
    tls.sendall(b'all')
    socket.socket.shutdown(tls, socket.SHUT_WR)
    heard = b''
    try:
        while piece := tls.recv(100):
            heard += piece
        end = 'close_notify'
    except OSError as error:
        end = type(error).__name__
    print(heard, end, flush=True)
";

/// Writes after the server's end.
const ANSWERS: &str = "\
import select, socket, ssl, sys
plain = socket.create_connection(('localhost', int(sys.argv[1])))
tls = ssl.create_default_context(cafile=sys.argv[2]).wrap_socket(plain, server_hostname='localhost')
print(tls.recv(3))
poll = select.poll()
poll.register(tls.fileno(), select.POLLRDHUP)
poll.poll(30000)
print(tls.send(b'late'))
try:
    tls.unwrap()
except OSError as error:
    print(type(error).__name__)
";

/// Starts a server. Returns it with its lines and its port.
fn served(world: &World, script: &str) -> (Process, Lines, u16) {
    let (certificate, key) = world.managed.certify(&["localhost"]);
    let mut command = Command::new("python3");
    command.args(["-c", script, &certificate, &key]).stdout(Stdio::piped());
    let mut server = Process::start(&mut command);
    let lines = server.lines();
    let port = lines.find(|line| line.parse().ok());
    (server, lines, port)
}

/// Runs a client without Rejoin and with it. Returns what each printed.
fn both_ways(world: &World, script: &str, port: u16) -> [String; 2] {
    [false, true].map(|is_with| {
        let mut client = Command::new("/usr/bin/python3");
        client.args(["-c", script, &port.to_string(), &world.managed.file("ca.pem")]);
        if is_with {
            world.with_rejoin(&mut client);
        }
        let output = client.output().expect("it runs");
        let told = text(&output.stderr);
        assert_eq!(told.contains("through the manager"), is_with, "{told}");
        text(&output.stdout)
    })
}

#[test]
fn who_writes_after_a_reset_hears_of_it_first() {
    let world = World::new("writes");
    let (_server, _, port) = served(&world, RESETS);
    let [plain, with] = both_ways(&world, WRITES, port);
    assert!(plain.starts_with("ConnectionResetError"), "{plain}");
    assert_eq!(with, plain);
}

#[test]
fn a_server_that_says_no_more_hears_what_the_program_says() {
    let world = World::new("half");
    let (_server, heard, port) = served(&world, CLOSES);
    let [plain, with] = both_ways(&world, ANSWERS, port);
    assert_eq!(with, plain);
    let [of_plain, of_with] = [heard.next_line(), heard.next_line()];
    assert_eq!(of_plain.as_deref(), Some("b'late' close_notify"));
    assert_eq!(of_with, of_plain);
}
