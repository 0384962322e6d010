//! Chromium, whose page connects again and again over TCP, and another over QUIC. The server, in Go, says what it resumed.

use std::process::Stdio;

use openssl::x509::X509;
use rejoin_testkit::process::Process;

use super::scripts::{read, stacks_of_go};
use super::{Ground, NAME, Told};
use crate::chromium;

pub(super) fn visits(ground: &Ground) -> Option<Vec<Told>> {
    let mut told = Vec::new();
    for over_quic in [false, true] {
        let mut server = stacks_of_go("page", ground)?;
        let mut server = Process::start(server.stdin(Stdio::null()).stdout(Stdio::piped()));
        let lines = server.lines();
        let port = lines.next_line()?.parse().ok()?;
        browse(ground, port, over_quic)?;
        server.kill();
        told.extend(lines.rest().iter().map(|line| read(line)));
    }
    Some(told)
}

/// Opens the page, and waits until it is done. `None` without Chromium.
fn browse(ground: &Ground, port: u16, over_quic: bool) -> Option<()> {
    let certificate = X509::from_der(&ground.pair.der).ok()?;
    let forced = format!("--origin-to-force-quic-on={NAME}:{port}");
    let more: &[&str] = if over_quic { &["--enable-quic", &forced] } else { &["--disable-quic"] };
    chromium::open((NAME, port, ""), &certificate, ground.folder.path(), more).map(drop)
}
