//! Connections that cannot be made a second time.

use std::process::Command;

use rejoin_testkit::clients::world::World;

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
