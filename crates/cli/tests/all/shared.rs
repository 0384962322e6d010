//! `rejoin run`, `stats` and `store`, with a real server that was not compiled with us.

use crate::program::{rejoin, text};
use rejoin_testkit::serve::scratch;
use rejoin_testkit::shipped::rejoin_beside_libraries;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Returns the output of `openssl s_client` for a connection with the session of the one before.
fn visit(address: &str, session: &PathBuf, first: bool) -> String {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", address, "-tls1_2", "-sess_out"]).arg(session);
    if !first {
        client.arg("-sess_in").arg(session);
    }
    text(&client.stdin(Stdio::null()).output().expect("OpenSSL is installed").stdout)
}

#[test]
fn a_server_that_knows_nothing_of_us_shares_what_we_can_look_at() {
    let folder = scratch("shared");
    let pair = rejoin_serve::Identity::made(rejoin_serve::KeyType::P256).expect("a pair");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|file| folder.join(file));
    pair.write(&certificate, &key).expect("files");
    let name = format!("test-cli-{}", std::process::id());
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a free port").to_string();
    // Installed, the program lies beside the libraries.
    let mut server = Command::new(rejoin_beside_libraries())
        .args(["run", "--cache", &name, "--capacity", "1MiB", "--", "openssl", "s_server", "-www"])
        .args(["-accept", &address, "-no_ticket", "-cert"])
        .arg(&certificate)
        .arg("-key")
        .arg(&key)
        .env("XDG_RUNTIME_DIR", &folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let until = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(&address).is_err() && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
    let session = folder.join("session.pem");
    assert!(visit(&address, &session, true).contains("\nNew,"));
    let again = visit(&address, &session, false);
    server.kill().expect("our own child");
    server.wait().expect("our own child");
    assert!(again.contains("\nReused,"), "{again}");

    let stats: Value =
        serde_json::from_slice(&rejoin(&["stats", &name, "--json"]).stdout).expect("JSON");
    let counted = ["sessions", "hits", "misses"].map(|count| stats[count].as_u64());
    assert_eq!(counted, [Some(1), Some(1), Some(0)], "{stats}");
    assert!(text(&rejoin(&["store", "list"]).stdout).contains(&name));
    let checked = rejoin(&["store", "check", &name, "--json"]);
    assert!(checked.status.success() && text(&checked.stdout).contains("\"sessions\":1"));
    let listed: Vec<Value> =
        serde_json::from_slice(&rejoin(&["store", "list", "--json"]).stdout).expect("JSON");
    assert!(
        listed.iter().any(|cache| cache["name"] == *name && cache["sessions"] == 1),
        "{listed:?}"
    );
    let reset = rejoin(&["stats", &name, "--reset", "both", "--json"]);
    assert_eq!(text(&reset.stdout), "{\"reset\":\"both\"}\n");
    let shown = text(&rejoin(&["stats", &name]).stdout);
    assert!(shown.contains("\n0 of "), "{shown}");
    assert!(rejoin(&["store", "remove", &name]).status.success());
    for arguments in [["store", "remove", &name], ["store", "check", &name]] {
        let output = rejoin(&arguments);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{told}");
    }
}
