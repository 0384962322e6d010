//! The sessions that Java shares with curl.

use rejoin_testkit::shipped::library;
use std::process::{Command, Stdio};

use rejoin_manager::client::Manager;

use super::{Effort, Found};
use rejoin_testkit::jvm::{Believes, Jvm};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::stacks::{Stack, Tls};

/// Runs curl, Java's two clients and curl again: one full handshake for each version of TLS.
pub(crate) fn shares(_: Effort) -> Option<Found> {
    let (mut full, mut resumed) = (0, 0);
    for tls in Tls::ALL {
        let managed = Managed::start(&format!("check-java-{}", tls.number()));
        let jvm = Jvm::new(&managed, "check-java")?;
        let server = Stack::Nginx.start(&managed, tls)?;
        let url = format!("https://localhost:{}/", server.port);
        let curl = || {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--cacert", &managed.file("ca.pem"), &url]).stdout(Stdio::null());
            curl.env("LD_PRELOAD", library("librejoin_preload.so"));
            curl.env("REJOIN_MANAGER", managed.socket());
            curl.status().is_ok_and(|done| done.success())
        };
        let client = || jvm.ask(true, Believes::TheAuthority, &[&url]).1;
        let connection = || jvm.fetch(true, Believes::TheAuthority, &url).1;
        if !(curl() && client() && connection() && curl()) {
            return Some(Found { figure: "a program failed".to_owned(), holds: false });
        }
        let counted = Manager::at(managed.socket()).stats().ok()?.handshakes;
        full += counted.full;
        resumed += counted.resumed;
    }
    let figure =
        format!("{full} full, {resumed} resumed, of HttpClient, HttpsURLConnection and curl");
    Some(Found { figure, holds: (full, resumed) == (2, 6) })
}
