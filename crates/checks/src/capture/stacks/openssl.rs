//! OpenSSL's `s_server` and `s_client`, which says `New` or `Reused`.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::stacks::started;

use super::{CLIENTS, Ground, NAME, Told, VISITS};

/// A way to speak TLS.
struct Way {
    both: &'static [&'static str],
    server: &'static [&'static str],
    /// True if the client has a certificate.
    certified: bool,
}

const fn way(both: &'static [&'static str], server: &'static [&'static str]) -> Way {
    Way { both, server, certified: false }
}

const OLD: &str = "ALL:@SECLEVEL=0";
const WAYS: [Way; 10] = [
    way(&["-tls1", "-cipher", OLD], &[]),
    way(&["-tls1_1", "-cipher", OLD], &[]),
    way(&["-tls1_2"], &[]),
    way(&["-tls1_2"], &["-no_ticket"]),
    Way { both: &["-tls1_2"], server: &["-verify", "1"], certified: true },
    way(&["-tls1_3"], &[]),
    // The client's key share is of another group.
    way(&["-tls1_3"], &["-groups", "P-384"]),
    way(&["-dtls1", "-cipher", OLD], &[]),
    way(&["-dtls1_2"], &[]),
    way(&["-dtls1_2"], &["-no_ticket", "-mtu", "300"]),
];

pub(super) fn visits(ground: &Ground) -> Option<Vec<Told>> {
    let mut told = Vec::new();
    for (number, way) in WAYS.iter().enumerate() {
        let mut server = Command::new("openssl");
        server.args(["s_server", "-accept", "127.0.0.1:0"]);
        server.args(["-cert", &ground.certificate, "-key", &ground.key]);
        server.args(way.both).args(way.server);
        let port = |line: &str| line.strip_prefix("ACCEPT 127.0.0.1:")?.parse().ok();
        let (_server, server) = started(&mut server, port)?;
        for client in 0..CLIENTS {
            let mut session = None;
            for visit in 0..VISITS {
                let next = ground.folder.file(&format!("session-{number}-{client}-{visit}"));
                let resumed = call(ground, way, server, session.as_deref(), &next);
                told.push(Told { server, client: None, resumed });
                session = fs::exists(&next).expect("a folder").then_some(next).or(session);
            }
        }
    }
    Some(told)
}

/// Visits a server, with a session of this file. Returns true if it was resumed. The session that the server gives is in
/// the file `next`.
fn call(ground: &Ground, way: &Way, server: u16, session: Option<&str>, next: &str) -> bool {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &format!("127.0.0.1:{server}"), "-servername", NAME]);
    command.args(way.both).args(["-sess_out", next]);
    if let Some(session) = session {
        command.args(["-sess_in", session]);
    }
    if way.certified {
        command.args(["-cert", &ground.certificate, "-key", &ground.key]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = Process::start(&mut command);
    if session.is_none() || way.both.contains(&"-tls1_3") {
        // In TLS 1.3 the session comes behind the handshake.
        wait_until("a session", || {
            fs::read_to_string(next).is_ok_and(|session| session.contains("-----END"))
        });
    }
    drop(client.stdin.take());
    let mut said = String::new();
    client.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    client.wait();
    let resumed = said.contains("Reused, ");
    assert!(resumed || said.contains("New, "), "{said}");
    resumed
}
