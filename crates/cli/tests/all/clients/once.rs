//! Connections that cannot be made a second time, and connections whose session the server demands on others.

use std::process::{Command, Stdio};

use rejoin_testkit::clients::world::World;
use rejoin_testkit::process::Process;

use crate::program::text;

/// A client of TLS over a connection that it accepted, as in FTPS in active mode: the server calls it. The manager has
/// no suite in common with the first server, and the second one is silent for too long.
const CALLED: &str = "\
import socket, ssl, sys, threading, time
def serve(address, way):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    if way == 'old':
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers('ECDHE-ECDSA-AES128-SHA256')
    plain = socket.create_connection(address)
    if way == 'slow':
        time.sleep(5)
    try:
        tls = context.wrap_socket(plain, server_side=True)
        tls.sendall(tls.recv(10))
        tls.close()
    except OSError as error:
        print('server', type(error).__name__)
for way in ['old', 'slow']:
    listener = socket.create_server(('127.0.0.1', 0))
    server = threading.Thread(target=serve, args=[listener.getsockname(), way])
    server.start()
    plain = listener.accept()[0]
    context = ssl.create_default_context(cafile=sys.argv[3])
    try:
        tls = context.wrap_socket(plain, server_hostname='localhost')
        tls.sendall(b'question')
        print(way, tls.recv(10))
    except OSError as error:
        print(way, type(error).__name__)
    server.join()
";

#[test]
fn a_client_that_was_called_goes_on_as_without_rejoin() {
    let world = World::new("called");
    let (certificate, key) = world.managed.certify(&["localhost"]);
    let [plain, with] = [false, true].map(|is_with| {
        let mut client = Command::new("/usr/bin/python3");
        client.args(["-c", CALLED, &certificate, &key, &world.managed.file("ca.pem")]);
        if is_with {
            world.with_rejoin(&mut client);
        }
        let output = client.output().expect("it runs");
        (text(&output.stdout), text(&output.stderr))
    });
    assert_eq!(plain.0, "old b'question'\nslow b'question'\n");
    assert_eq!(with.0, plain.0, "{}", with.1);
    assert_eq!(with.1.matches("no TCP connection that it may give away").count(), 2, "{}", with.1);
}

/// A server of implicit FTPS that takes a data connection only with the control connection's session, as vsftpd,
/// ProFTPD and FileZilla do.
const FTPS: &str = "\
import socket, ssl, sys, threading
listener = socket.create_server(('127.0.0.1', 990))
print('listens', flush=True)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
def serve(plain):
    control = context.wrap_socket(plain, server_side=True).makefile('rwb')
    def say(line):
        control.write(line.encode() + b'\\r\\n')
        control.flush()
    said = {'USER': '331 and', 'PASS': '230 in', 'PWD': '257 \\\"/\\\"', 'SIZE': '213 9'}
    say('220 here')
    for line in control:
        word = line.split()[0].decode()
        if word == 'EPSV':
            data = socket.create_server(('127.0.0.1', 0))
            say('229 (|||%d|)' % data.getsockname()[1])
        elif word == 'RETR':
            taken = data.accept()[0]
            say('150 here')
            taken = context.wrap_socket(taken, server_side=True)
            is_same = taken.session_reused
            if is_same:
                taken.sendall(b'the file\\n')
                taken.unwrap()
            taken.close()
            say('226 done' if is_same else '522 not the session')
        else:
            say(said.get(word, '200 well'))
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
";

#[test]
fn a_server_of_files_finds_its_session_on_data_connections() {
    let world = World::new("ftps");
    let (certificate, key) = world.managed.certify(&["localhost"]);
    let mut command = Command::new("python3");
    command.args(["-c", FTPS, &certificate, &key]).stdout(Stdio::piped());
    let mut server = Process::start(&mut command);
    if server.lines().next_line().as_deref() != Some("listens") {
        eprintln!("skipped: port 990 may not be used");
        return;
    }
    for version in ["1.3", "1.2"] {
        for is_with in [false, true, true] {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "-4", "--tls-max", version]);
            curl.args(["--cacert", &world.managed.file("ca.pem")]);
            curl.arg("ftps://localhost/file");
            if is_with {
                world.with_rejoin(&mut curl);
            }
            let output = curl.output().expect("curl is installed");
            let told = text(&output.stderr);
            assert_eq!(text(&output.stdout), "the file\n", "{version}: {told}");
            assert!(!told.contains("through the manager"), "{told}");
        }
    }
}
