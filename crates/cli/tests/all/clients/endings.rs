//! A server's reset reaches a program that writes as it does without Rejoin. The other ends are in `differential`.

use std::process::{Command, Stdio};

use rejoin_testkit::clients::world::World;
use rejoin_testkit::process::Process;

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
