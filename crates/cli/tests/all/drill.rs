//! `rejoin cluster drill` where clients do not resume in the first place. In a cluster, `rejoin-capi` has its tests.

use rejoin_testkit::serve::Server;

use crate::program::{rejoin, text};

/// A drill whose fault is none, as JSON or as text.
fn drill(servers: &[&str], more: &[&str]) -> (i32, String, String) {
    let words = ["cluster", "drill", "--staging", "--run", "true", "--phase", "1500ms"];
    let output =
        rejoin(&[&words[..], &["--insecure", "--name", "localhost"], more, servers].concat());
    let code = output.status.code().expect("an exit code");
    (code, text(&output.stdout), text(&output.stderr))
}

#[test]
fn servers_that_never_resume_do_not_resume_as_before() {
    let servers = [0; 2].map(|_| Server::start(&["--resumption", "none"]));
    let servers: Vec<_> = servers.iter().map(|server| server.listening.as_str()).collect();
    let (code, said, told) = drill(&servers, &[]);
    assert_eq!(code, 1, "{said}{told}");
    assert!(
        said.contains("clients did not resume before the fault") && !said.contains("as before"),
        "{said}"
    );
    let parts =
        ["did not resume before the fault (0 %, and 80 % do in a cluster)", "rejoin doctor"];
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    let (code, said, _) = drill(&servers, &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, &report["resumed_again_s"]), (1, &serde_json::Value::Null), "{said}");
}
