//! OCSP responses that servers staple: wget, which has GnuTLS verify them and never resumes by itself, says with Rejoin what
//! it says without. curl, which ignores them, leaves the sessions.

use std::process::Command;

use rejoin_testkit::manager::Managed;
use rejoin_testkit::process::Process;
use rejoin_testkit::shipped;
use rejoin_testkit::stacks::{Tls, started};
use rejoin_testkit::staples::{GOOD, REVOKED};

use super::pins::{CURL, WGET, visit};

/// A server's part in a test.
struct Case {
    /// The status of its certificate and the options for the response's times, if it staples one.
    staples: Option<(&'static str, &'static [&'static str])>,
    /// True if its certificate demands a stapled response (RFC 7633).
    demands: bool,
    /// wget's exit code, with Rejoin and without.
    code: i32,
    /// True if wget resumes what curl left.
    resumes: bool,
}

const CASES: [Case; 7] = [
    Case { staples: None, demands: false, code: 0, resumes: true },
    Case { staples: Some((GOOD, &["-ndays", "2"])), demands: false, code: 0, resumes: true },
    Case { staples: Some((REVOKED, &["-ndays", "2"])), demands: false, code: 5, resumes: false },
    // Newer responses may be there at any time (RFC 6960, section 4.2.2.1).
    Case { staples: Some((GOOD, &[])), demands: false, code: 0, resumes: false },
    Case { staples: Some((REVOKED, &[])), demands: false, code: 5, resumes: false },
    Case { staples: None, demands: true, code: 5, resumes: false },
    Case { staples: Some((GOOD, &["-ndays", "2"])), demands: true, code: 0, resumes: true },
];

#[test]
fn wget_sees_what_a_server_staples_also_when_curl_left_the_session() {
    let cases = CASES.iter().enumerate();
    let all = cases.flat_map(|(at, case)| Tls::ALL.map(|tls| (at, tls, case)));
    let wrong: Vec<_> = all.filter_map(|(at, tls, case)| wrong(at, tls, case)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns what wget says if it is not what the case says.
fn wrong(at: usize, tls: Tls, case: &Case) -> Option<String> {
    let managed = Managed::start(&format!("staples-{at}-{}", tls.number()));
    let (_server, port) = stapling(&managed, tls, case);
    let of = ("localhost", port);
    assert_eq!(visit(&managed, WGET, of, None, false).0, case.code, "case {at}");
    assert_eq!(visit(&managed, CURL, of, None, true).0, 0);
    let (code, told) = visit(&managed, WGET, of, None, true);
    let resumes = told.contains("through the manager: resumed");
    // What wget does not resume, curl does.
    if !case.resumes && case.code == 0 {
        let (_, told) = visit(&managed, CURL, of, None, true);
        assert!(told.contains("through the manager: resumed"), "case {at}: {told}");
    }
    if case.staples.is_some() {
        asks(&managed, of, case.code == 0);
    }
    let is_right = (code, resumes) == (case.code, case.resumes);
    let line = told.lines().find(|line| line.starts_with("rejoin: ")).unwrap_or_default();
    (!is_right).then(|| format!("case {at} over TLS {}: exit code {code}, {line}", tls.number()))
}

/// wget whose ClientHello has no extended master secrets (RFC 7627) sees the server of a full handshake, too.
#[test]
fn wget_sees_no_more_extensions_than_it_asks_for() {
    visit_with("less", Command::new("wget"), "NORMAL:%NO_SESSION_HASH");
}

/// wget of GnuTLS 3.8, which may ask for no stapled response and demand extended master secrets, as FIPS 140 does.
#[test]
#[ignore = "needs `make target/programs-13`"]
fn wget_of_a_newer_gnutls_sees_the_extension_that_it_demands() {
    let root = shipped::target().join("programs-13/root");
    let loaders = root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let loader =
        if cfg!(target_arch = "x86_64") { "ld-linux-x86-64.so.2" } else { "ld-linux-aarch64.so.1" };
    let mut command = Command::new(loaders.join(loader));
    command.arg("--library-path").arg(&loaders).arg(root.join("usr/bin/wget"));
    visit_with("more", command, "NORMAL:%NO_STATUS_REQUEST:%FORCE_SESSION_HASH");
}

/// Visits a server twice through the manager with these priorities.
fn visit_with(name: &str, mut wget: Command, priorities: &str) {
    let managed = Managed::start(&format!("staples-{name}"));
    let (_server, port) = stapling(&managed, Tls::V13, &CASES[1]);
    wget.args(["-q", "-O-", "--tries=1", &format!("--ciphers={priorities}")]);
    wget.arg(format!("--ca-certificate={}", managed.file("ca.pem")));
    wget.arg(format!("https://localhost:{port}/")).env("REJOIN_DEBUG", "1");
    wget.env("LD_PRELOAD", shipped::library("librejoin_preload.so"));
    wget.env("REJOIN_MANAGER", managed.socket());
    for how in ["in full", "resumed"] {
        let output = wget.output().expect("it is installed");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(&format!("through the manager: {how}")), "{told}");
        assert!(output.status.success(), "{told}");
    }
}

/// curl that asks for the response makes its connection itself, and says what it says without Rejoin.
fn asks(managed: &Managed, (host, port): (&str, u16), is_good: bool) {
    let mut command = Command::new("curl");
    command.args(["-sS", "--cert-status", "--cacert", &managed.file("ca.pem")]);
    command.arg(format!("https://{host}:{port}/"));
    let without = command.output().expect("it is installed");
    command.env("LD_PRELOAD", shipped::library("librejoin_preload.so"));
    let with = command.env("REJOIN_MANAGER", managed.socket()).output().expect("it is installed");
    assert_eq!(without.status.success(), is_good, "{without:?}");
    assert_eq!((with.status, with.stderr), (without.status, without.stderr));
}

/// OpenSSL's server, which staples what the case says.
fn stapling(managed: &Managed, tls: Tls, case: &Case) -> (Process, u16) {
    let pair = rcgen::KeyPair::generate().expect("a key");
    let (certificate, key) = managed.issue(&pair, (&["localhost"], "server"), |parameters| {
        if case.demands {
            // A list of one extension, `status_request` (RFC 7633, section 6).
            let oid = [1, 3, 6, 1, 5, 5, 7, 1, 24];
            let feature = rcgen::CustomExtension::from_oid_content(&oid, vec![48, 3, 2, 1, 5]);
            parameters.custom_extensions.push(feature);
        }
    });
    let mut server = Command::new("openssl");
    server.args(["s_server", "-www", "-accept", "127.0.0.1:0", "-cert", &certificate]);
    let version = if tls == Tls::V12 { "-tls1_2" } else { "-tls1_3" };
    server.args(["-key", &key, "-cert_chain", &managed.file("ca.pem"), version]);
    if let Some(says) = case.staples {
        server.args(["-status_file", &managed.staple(&certificate, says)]);
    }
    let port = |line: &str| line.strip_prefix("ACCEPT 127.0.0.1:")?.parse::<u16>().ok();
    started(&mut server, port).expect("openssl is installed")
}
