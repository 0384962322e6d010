//! A server that stores values under indices of extra data that it never asked for.

use super::{clients, lines_of_ours};
use crate::ways::compile;
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

/// FreeRADIUS 3.2 stores under index 1 of an SSL. The module is loaded before a program can take an index.
#[test]
fn values_under_low_indices_are_the_programs_and_its_clients_resume() {
    let with = seen("low", 12, true);
    assert_eq!(with, seen("low", 12, false));
    assert!(with.iter().all(|seen| seen.contains("true, true, true, true, true")), "{with:?}");
    assert!(with.iter().all(|seen| seen.matches("kept 24").count() == 6), "{with:?}");
}

/// No pointer is followed that is not ours, nor is it replaced, dropped, or returned to the program as another.
#[test]
fn values_under_our_own_indices_are_the_programs_too() {
    let with = seen("ours", 40, true);
    assert!(with.iter().all(|seen| seen.matches("kept 80").count() == 6), "{with:?}");
}
