//! GnuTLS's `gnutls-serv`, and `gnutls-cli --resume`, which connects twice, and says if the second time was a resumption.

use std::process::{Command, Stdio};

use rejoin_testkit::port;
use rejoin_testkit::process::{DEADLINE, Process, output, wait_until};

use super::{CLIENTS, Ground, NAME, Told, is_bound};

/// A version, and the options that both ends have.
const WAYS: [(&str, &[&str]); 6] = [
    ("TLS1.0", &[]),
    ("TLS1.1", &[]),
    ("TLS1.2", &[]),
    ("TLS1.3", &[]),
    ("DTLS1.0", &["--udp"]),
    ("DTLS1.2", &["--udp"]),
];

pub(super) fn visits(ground: &Ground) -> Option<Vec<Told>> {
    let mut told = Vec::new();
    for (version, options) in WAYS {
        let priority = format!("NORMAL:-VERS-ALL:+VERS-{version}");
        let server = port::reserve();
        let mut serve = Command::new("gnutls-serv");
        serve.args(["--echo", "--port", &server.to_string(), "--priority", &priority]);
        serve.args(["--x509certfile", &ground.certificate, "--x509keyfile", &ground.key]);
        serve.args(options).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _server = Process::try_start(&mut serve).ok()?;
        wait_until("gnutls-serv", || is_bound(server, !options.is_empty()));
        for _ in 0..CLIENTS {
            let mut call = Command::new("gnutls-cli");
            call.args(["--resume", "--waitresumption", "--insecure", "--sni-hostname", NAME]);
            call.args(["--port", &server.to_string(), "--priority", &priority]).args(options);
            let said = output(call.arg("127.0.0.1"), DEADLINE);
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            assert_eq!(said.matches("Handshake was completed").count(), 2, "{version}: {said}");
            let resumed = said.contains("*** This is a resumed session");
            told.extend([false, resumed].map(|resumed| Told { server, client: None, resumed }));
        }
    }
    Some(told)
}
