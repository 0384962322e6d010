//! Processes that fork after they attached.

use super::{certified, clients, counters, lines_of_ours, make_client};
use rejoin_testkit::site::{Site, Versions};

/// A server with one process for each connection, the child of one that has made handshakes itself.
const FOR_EACH: &str = "\
import os, signal, socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('FOLDER/cert.pem', 'FOLDER/key.pem')
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server(('127.0.0.1', @PORT@))
def serve(connection):
    connection.settimeout(5)
    try:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(4096)
            tls.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\n%d\\n' % os.getpid())
    except OSError:
        pass
served = 0
while True:
    connection = listener.accept()[0]
    served += 1
    if @PARENT_TOO@ and served % 3 == 0:
        serve(connection)
    elif os.fork() == 0:
        serve(connection)
        os._exit(0)
    connection.close()
";

#[test]
fn a_child_for_each_connection() {
    for (name, parent_too) in [("children", "False"), ("family", "True")] {
        let mut site = Site::new(&format!("fault-{name}"));
        site.configure("stateful = yes");
        site.write("server.py", &FOR_EACH.replace("@PARENT_TOO@", parent_too));
        let script = site.shown("server.py");
        if site.start("python3", &[&script]).is_none() {
            return;
        }
        for mut client in clients(&site) {
            client.connect();
            (0..9).for_each(|_| assert!(client.connect(), "{name}"));
            client.answers.sort();
            client.answers.dedup();
            assert!(client.answers.len() > 6, "{name}: {:?}", client.answers);
        }
        assert_eq!((counters(&site).hits, lines_of_ours(&site).len()), (18, 0), "{name}");
    }
}

/// A server of that kind that asks for certificates, and judges them as nobody can see.
#[test]
fn children_resume_clients_with_certificates_where_they_do_without_rejoin() {
    const ASKS: &str = "\
context.verify_mode = ssl.CERT_OPTIONAL
context.load_verify_locations('FOLDER/client.pem')
@TICKETS@
listener = socket";
    for (tickets, known) in [("", true), ("context.options |= ssl.OP_NO_TICKET", false)] {
        for settings in [None, Some(""), Some("stateful = yes")] {
            let mut site = Site::new(&format!("fault-asking-children-{known}"));
            make_client(&site);
            match settings {
                Some(settings) => site.configure(settings),
                None => site.environment.clear(),
            }
            let asks = ASKS.replace("@TICKETS@", tickets);
            let server = FOR_EACH.replace("listener = socket", &asks);
            site.write("server.py", &server.replace("@PARENT_TOO@", "False"));
            let script = site.shown("server.py");
            if site.start("python3", &[&script]).is_none() {
                return;
            }
            for versions in [Versions::Tls12, Versions::Tls13] {
                let mut client = certified(&site, versions);
                let full = (0..6).filter(|_| !client.connect()).count();
                let expected = if known { 1 } else { 6 };
                assert_eq!(full, expected, "{tickets} {settings:?} {versions:?}");
            }
        }
    }
}
