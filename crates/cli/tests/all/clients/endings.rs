//! A server's reset reaches a program that writes as it does without Rejoin. The other ends are in `differential`.

use std::process::{Command, Stdio};

use rejoin_testkit::clients::world::World;
use rejoin_testkit::process::{Lines, Process};

use crate::program::text;

/// The beginning of each server: it listens, and prints its port.
const LISTENS: &str = "\
import fcntl, socket, ssl, struct, sys, termios, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
";

/// Resets the connection when the client has made its handshake.
const RESETS: &str = "\
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

/// Reads one record and closes, with close_notify if it is asked to.
const LEAVES: &str = "\
while True:
    tls = context.wrap_socket(listener.accept()[0], server_side=True)
    if tls.recv(100) == b'notify':
        tls.setblocking(False)
        try:
            tls.unwrap()
        except OSError:
            pass
    tls.close()
";

/// Writes on and on, and never reads, as a program does that ships logs. Prints which write fails, and how.
const SHIPS: &str = "\
import select, signal, socket, ssl, sys, time
signal.signal(signal.SIGPIPE, lambda *said: print('signal'))
for first in [b'notify', b'end']:
    plain = socket.create_connection(('localhost', int(sys.argv[1])))
    tls = ssl.create_default_context(cafile=sys.argv[2]).wrap_socket(plain, server_hostname='localhost')
    tls.send(first)
    poll = select.poll()
    poll.register(tls.fileno(), select.POLLRDHUP)
    poll.poll(30000)
    try:
        for number in range(10):
            tls.send(b'x' * 10000)
            time.sleep(0.3)
        print('all are written')
    except OSError as error:
        print(number, type(error).__name__)
    plain.close()
    tls.close()
";

/// Sends a page, and closes when the client's system has all of it, although the client still writes.
const HURRIES: &str = "\
while True:
    tls = context.wrap_socket(listener.accept()[0], server_side=True)
    size, end = tls.recv(100).split()
    tls.sendall(bytes(range(256)) * (int(size) // 256))
    if end == b'notify':
        tls.setblocking(False)
        try:
            tls.unwrap()
        except OSError:
            pass
    while struct.unpack('i', fcntl.ioctl(tls, termios.TIOCOUTQ, b'1234'))[0] > 0:
        time.sleep(0.01)
    if end == b'reset':
        tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    tls.close()
";

/// Writes until that fails, and only then reads the page.
const READS_LATE: &str = "\
import hashlib, os, signal, socket, ssl, sys, time
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
for end in ['notify', 'end', 'reset']:
    plain = socket.socket()
    try:
        plain.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)  # SO_RCVBUFFORCE
        size = 4 << 20
    except PermissionError:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
        size = 64 << 10
    plain.connect(('127.0.0.1', int(sys.argv[1])))
    context = ssl.create_default_context(cafile=sys.argv[2])
    tls = context.wrap_socket(plain, server_hostname='localhost', suppress_ragged_eofs=False)
    tls.send(f'{size} {end}'.encode())
    time.sleep(1)
    told = 'all are written'
    for number in range(20):
        try:
            tls.send(b'x' * 10000)
            time.sleep(0.1)
        except OSError as error:
            told = 'it fails'
            break
    page, last = hashlib.sha256(), 'end'
    read = 0
    try:
        while piece := tls.recv(65536):
            read += len(piece)
            page.update(piece)
    except OSError as error:
        last = type(error).__name__
    # After a reset it depends on which call heard of it.
    print(told, read, page.hexdigest(), last if end != 'reset' else '')
";

/// Starts a server. Returns it with its lines and its port.
fn served(world: &World, script: &str) -> (Process, Lines, u16) {
    let (certificate, key) = world.managed.certify(&["localhost"]);
    let mut command = Command::new("python3");
    let script = [LISTENS, script].concat();
    command.args(["-c", &script, &certificate, &key]).stdout(Stdio::piped());
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

#[test]
fn who_only_writes_hears_that_the_server_has_left() {
    let world = World::new("leaves");
    let (_server, _, port) = served(&world, LEAVES);
    let [plain, with] = both_ways(&world, SHIPS, port);
    assert_eq!(plain, "signal\n1 SSLEOFError\n".repeat(2));
    assert_eq!(with, plain);
}

#[test]
fn what_a_server_sent_before_it_left_is_read_by_a_program_that_still_wrote() {
    let world = World::new("hurries");
    let (_server, _, port) = served(&world, HURRIES);
    let [plain, with] = both_ways(&world, READS_LATE, port);
    assert_eq!(plain.matches("it fails").count(), 3, "{plain}");
    assert_eq!(with, plain);
}

/// Sends half of an answer that lasts until the end, and then a fatal alert, over TLS of the version that it is told.
const ALERTS: &str = "\
context.maximum_version = getattr(ssl.TLSVersion, sys.argv[3])
while True:
    plain = listener.accept()[0]
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(heard, said, server_side=True)
    def done(step):
        while True:
            try:
                step()
                return plain.sendall(said.read())
            except ssl.SSLWantReadError:
                plain.sendall(said.read())
                heard.write(plain.recv(65536))
    done(tls.do_handshake)
    done(lambda: tls.read(100))
    done(lambda: tls.write(b'half'))
    time.sleep(0.2)
    heard.write(b'\\x17\\x03\\x03\\x00\\x20' + bytes(32))
    try:
        tls.read(100)
    except ssl.SSLError:
        plain.sendall(said.read())
    plain.close()
";

/// Reads until the end, as most programs of Python do: an end without close_notify counts as one.
const READS_ALL: &str = "\
import socket, ssl, sys
plain = socket.create_connection(('localhost', int(sys.argv[1])))
tls = ssl.create_default_context(cafile=sys.argv[2]).wrap_socket(plain, server_hostname='localhost')
tls.send(b'question')
heard = b''
try:
    while piece := tls.recv(100):
        heard += piece
    print(heard, 'all')
except OSError as error:
    print(heard, type(error).__name__)
";

#[test]
fn an_alert_in_an_answer_does_not_pass_for_its_end() {
    let world = World::new("alerts");
    let (certificate, key) = world.managed.certify(&["localhost"]);
    for version in ["TLSv1_2", "TLSv1_3"] {
        let mut server = Command::new("/usr/bin/python3");
        server.args(["-c", &format!("{LISTENS}{ALERTS}"), &certificate, &key, version]);
        let mut server = Process::start(server.stdout(Stdio::piped()));
        let port = server.lines().next_line().expect("it listens");
        for is_with in [false, true, true] {
            let mut client = Command::new("/usr/bin/python3");
            client.args(["-c", READS_ALL, &port, &world.managed.file("ca.pem")]);
            if is_with {
                world.with_rejoin(&mut client);
            }
            let output = client.output().expect("it runs");
            let told = text(&output.stderr);
            assert_eq!(text(&output.stdout), "b'half' SSLError\n", "{version}: {told}");
            assert_eq!(told.contains("through the manager"), is_with, "{version}: {told}");
        }
    }
}
