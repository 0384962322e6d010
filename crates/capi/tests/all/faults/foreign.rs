//! Servers that store values under indices of extra data that they never asked for.

use std::fs;
use std::process::Stdio;

use super::{clients, lines_of_ours};
use crate::ways::compile;
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::site::Site;

/// Runs the server, which stores under this many indices, and returns what its clients see.
fn seen(name: &str, indices: u32, with: bool) -> Vec<String> {
    let mut site = Site::new(&format!("fault-foreign-{name}-{with}"));
    if !with {
        site.environment = vec![("OPENSSL_CONF", "/dev/null".to_owned())];
    }
    let program = compile(&site, "squatter.c", "squatter", &["-lssl", "-lcrypto"]);
    let (port, pair) = (site.port.to_string(), site.shown("both.pem"));
    site.start(&program, &[&port, &pair, &indices.to_string()]).expect("compiled");
    let mut seen = Vec::new();
    for client in &mut clients(&site) {
        let resumed = [(); 6].map(|()| client.connect());
        assert!(!resumed[0], "{name}");
        seen.push(format!("{resumed:?} {:?}", client.answers));
    }
    assert_eq!(lines_of_ours(&site), [""; 0], "{name}");
    seen
}

/// FreeRADIUS 3.2 stores under indices up to 16 of an SSL. The module is loaded before a program can take an index.
#[test]
fn values_under_any_index_are_the_programs_and_its_clients_resume() {
    let with = seen("foreign", 40, true);
    assert_eq!(with, seen("foreign", 40, false));
    assert!(with.iter().all(|seen| seen.contains("true, true, true, true, true")), "{with:?}");
    assert!(with.iter().all(|seen| seen.matches("kept 80, found 0").count() == 6), "{with:?}");
}

/// The settings of a peer; `@METHOD@` is its own part.
const PEER: &str = "network={\nkey_mgmt=WPA-EAP\nidentity=\"somebody\"\nca_cert=\"FOLDER/cert.pem\"\n@METHOD@\n}\n";
const PEAP: &str = "eap=PEAP\npassword=\"hello\"\nphase2=\"auth=MSCHAPV2\"";
const TLS: &str = "eap=TLS\nclient_cert=\"FOLDER/cert.pem\"\nprivate_key=\"FOLDER/key.pem\"";

/// Runs FreeRADIUS, and returns what its peers see when they log in four times each. `None`: it is not installed.
pub(crate) fn seen_of_freeradius(version: &str, cache: &str, with: bool) -> Option<Vec<String>> {
    let mut site = Site::new(&format!("fault-radius-{version}-{cache}-{with}"));
    if !with {
        site.environment = vec![("OPENSSL_CONF", "/dev/null".to_owned())];
    }
    let settings = include_str!("radiusd.conf");
    let settings = settings.replace("@VERSION@", version).replace("@CACHE@", cache);
    site.write("radiusd.conf", &settings);
    site.write("dictionary", "");
    fs::create_dir(site.file("sessions")).expect("a folder");
    let log = fs::File::create(site.file("log")).expect("a file");
    let mut server = site.command("freeradius");
    server.args(["-f", "-l", "stdout", "-x", "-D", "/usr/share/freeradius", "-n", "radiusd", "-d"]);
    let server = Process::try_start(server.arg(&site.folder).stdout(Stdio::from(log)));
    let Ok(mut server) = server else {
        eprintln!("freeradius is not installed: nothing is tested with it");
        return None;
    };
    let is_ready = || fs::read_to_string(site.file("log")).unwrap_or_default().contains("Ready to");
    wait_until("FreeRADIUS is ready", || is_ready() || server.ended().is_some());
    let seen = [PEAP, TLS].map(|method| {
        site.write("peer.conf", &PEER.replace("@METHOD@", method));
        let port = site.port.to_string();
        let mut peer = site.command("eapol_test");
        peer.env_remove("OPENSSL_CONF");
        peer.args(["-a", "127.0.0.1", "-s", "secret", "-r", "3", "-c", "peer.conf", "-p", &port]);
        let told = peer.stdout(Stdio::piped()).output().expect("it is in the package eapoltest");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let of_interest = ["EAP-SUCCESS", "EAP-FAILURE", "- resumed="];
        let is_one = |line: &&str| of_interest.iter().any(|part| line.contains(part));
        told.lines().filter(is_one).map(|line| format!("{line}\n")).collect()
    });
    assert!(server.ended().is_none(), "FreeRADIUS has ended: {seen:?}");
    server.terminate();
    assert_eq!(lines_of_ours(&site), [""; 0]);
    Some(seen.into())
}

#[test]
#[ignore = "slow: needs FreeRADIUS; make test-all"]
fn freeradius_lets_its_peers_in_as_it_does_without() {
    for version in ["1.2", "1.3"] {
        for cache in ["yes", "no"] {
            let Some(with) = seen_of_freeradius(version, cache, true) else { return };
            let what = format!("TLS {version}, its own cache {cache}: {with:?}");
            assert!(with.iter().all(|seen| seen.matches("EAP-SUCCESS").count() == 4), "{what}");
            assert_eq!(Some(with), seen_of_freeradius(version, cache, false), "{what}");
        }
    }
}
