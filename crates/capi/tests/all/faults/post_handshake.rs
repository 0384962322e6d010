//! Post-handshake client authentication (RFC 8446, section 4.6.2).

use std::io::{Read, Write};

use super::{certify, make_client};
use crate::ways::python_server;
use rejoin_testkit::site::{Client, Site, Versions};

/// A context and a service that ask for certificates after the handshake.
const ASKING: &str = "\
context.load_verify_locations('FOLDER/client.pem')
context.verify_mode = ssl.CERT_REQUIRED
context.post_handshake_auth = True
def serve(tls):
    before = bool(tls.getpeercert())
    tls.verify_client_post_handshake()
    tls.sendall(b'?')
    tls.recv(4096)
    tls.sendall(f'{before} {bool(tls.getpeercert())}'.encode())
";

#[test]
fn what_is_asked_after_the_handshake_is_shown_all_the_same() {
    for (attached, stateful) in [(false, ""), (true, "stateful = no"), (true, "stateful = yes")] {
        let mut site = Site::new("fault-post-handshake");
        site.configure(stateful);
        if !attached {
            site.environment.clear();
        }
        make_client(&site);
        site.write("server.py", &python_server(ASKING));
        let script = site.shown("server.py");
        site.start("python3", &[&script]).expect("installed");
        let client = Client::with(site.address(), Versions::Tls13, |connector| {
            certify(connector, &site);
            // SAFETY: the builder owns its context.
            unsafe { openssl_sys::SSL_CTX_set_post_handshake_auth(connector.as_ptr(), 1) };
        });
        let shown = [(); 3].map(|()| show(&client));
        let expected = [(false, "False True"), (true, "True True"), (true, "True True")];
        assert_eq!(shown, expected.map(|(resumed, who)| (resumed, who.to_owned())), "{stateful}");
    }
}

/// Returns true if the session was resumed, and whether the server knew the client before it asked, and after.
fn show(client: &Client) -> (bool, String) {
    let mut tls = client.shake_hands().expect("a handshake");
    // The client sends its certificate while it reads this.
    tls.read_exact(&mut [0]).expect("what comes after the server asked");
    tls.write_all(b"!").expect("sent");
    let mut answer = String::new();
    tls.read_to_string(&mut answer).expect("an answer");
    let _ = tls.shutdown();
    (tls.ssl().session_reused(), answer)
}
