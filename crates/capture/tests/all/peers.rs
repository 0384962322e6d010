//! Captures of real clients and servers, which themselves say what was resumed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use rejoin_capture::{Analyser, Carrier, Class, Handshake, Limits};
use rejoin_testkit::certificates::Pair;
use rejoin_testkit::folder::Folder;
use rejoin_testkit::shipped::target;

/// Whether each connection was resumed, by its client's port and its server's name.
type Resumed = BTreeMap<(u16, String), bool>;

fn analyse(capture: &[u8]) -> Vec<Handshake> {
    let mut found = Vec::new();
    Analyser::new(Limits::default()).read(capture, |handshake| found.push(handshake)).unwrap();
    found
}

#[test]
#[ignore = "needs target/peers; make test-all"]
fn quic_by_aioquic_is_as_its_clients_say() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let folder = Folder::new();
    Pair::self_signed(&["first.example"]).write(&folder.path().join("server"));
    let (capture, script) = (folder.file("capture"), "crates/capture/tests/peers/quic.py");
    let output = Command::new("python3")
        .arg(project.join(script))
        .args([&capture, &folder.file("server.pem"), &folder.file("server.key")])
        .env("PYTHONPATH", target().join("peers/root"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Resumed = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let told: serde_json::Value = serde_json::from_str(line).unwrap();
            let port = u16::try_from(told["port"].as_u64().unwrap()).unwrap();
            let name = told["name"].as_str().unwrap().to_owned();
            ((port, name), told["resumed"].as_bool().unwrap())
        })
        .collect();
    let handshakes = analyse(&fs::read(capture).unwrap());
    let found: Resumed = handshakes
        .iter()
        .map(|handshake| {
            assert!(matches!(handshake.cls, Class::Full | Class::Resumed), "{handshake:?}");
            assert_eq!((handshake.carrier, handshake.completed), (Carrier::Quic, true));
            let name = handshake.sni.clone().unwrap();
            ((handshake.client_port, name), handshake.cls == Class::Resumed)
        })
        .collect();
    assert_eq!((found.len(), handshakes.len()), (told.len(), told.len()));
    assert_eq!(found, told);
    assert_eq!(told.values().filter(|resumed| **resumed).count(), 8);
}
