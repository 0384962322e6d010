//! Chromium without a window, which opens a page of a server on loopback.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use openssl::base64::encode_block;
use openssl::sha::sha256;
use openssl::x509::X509Ref;
use rejoin_testkit::process::output;

const LONGEST: Duration = Duration::from_secs(120);

/// Opens `https://NAME:PORT/PAGE` with a profile in a folder of its own, and returns the page as its script has left it. The
/// server's key is trusted. `None` without Chromium.
///
/// # Panics
/// If the page's title does not begin with `done` in the end.
pub(crate) fn open(
    (name, port, page): (&str, u16, &str),
    certificate: &X509Ref,
    folder: &Path,
    more: &[&str],
) -> Option<String> {
    let key = certificate.public_key().ok()?.public_key_to_der().ok()?;
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    browser.args(["--virtual-time-budget=20000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", folder.join(format!("browser-{port}")).display()));
    browser.arg(format!("--host-resolver-rules=MAP {name} 127.0.0.1"));
    let trusted = encode_block(&sha256(&key));
    browser.arg(format!("--ignore-certificate-errors-spki-list={trusted}"));
    browser.args(more).arg(format!("https://{name}:{port}/{page}")).env("HOME", folder);
    if Command::new("chromium").arg("--version").output().is_err() {
        return None;
    }
    let said = output(&mut browser, LONGEST);
    let page = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(page.contains("<title>done"), "{page} {}", String::from_utf8_lossy(&said.stderr));
    Some(page)
}
