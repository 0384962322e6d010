//! Chromium, whose page connects again and again over TCP, and another over QUIC. The server, in Go, says what it resumed.

use std::process::{Command, Stdio};
use std::time::Duration;

use openssl::base64::encode_block;
use openssl::sha::sha256;
use openssl::x509::X509;
use rejoin_testkit::process::{Process, output};

use super::scripts::{read, stacks_of_go};
use super::{Ground, NAME, Told};

const LONGEST: Duration = Duration::from_secs(120);

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
    let key = certificate.public_key().ok()?.public_key_to_der().ok()?;
    let place = format!("{NAME}:{port}");
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    browser.args(["--virtual-time-budget=20000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", ground.folder.file(&format!("browser-{port}"))));
    browser.arg(format!("--host-resolver-rules=MAP {NAME} 127.0.0.1"));
    let trusted = encode_block(&sha256(&key));
    browser.arg(format!("--ignore-certificate-errors-spki-list={trusted}"));
    match over_quic {
        true => browser.arg("--enable-quic").arg(format!("--origin-to-force-quic-on={place}")),
        false => browser.arg("--disable-quic"),
    };
    browser.arg(format!("https://{place}/")).env("HOME", ground.folder.path());
    if Command::new("chromium").arg("--version").output().is_err() {
        return None;
    }
    let said = output(&mut browser, LONGEST);
    let page = String::from_utf8_lossy(&said.stdout);
    assert!(page.contains("<title>done"), "{page} {}", String::from_utf8_lossy(&said.stderr));
    Some(())
}
