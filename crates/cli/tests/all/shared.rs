//! `rejoin run`, `stats` and `store`, with a real server that was not compiled with us.

use crate::program::{rejoin, text};
use rejoin_testkit::process::wait_until;
use rejoin_testkit::serve::scratch;
use rejoin_testkit::shipped::rejoin_beside_libraries;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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

/// Others have neither the keys nor the sessions of a cache that has lost its name.
#[test]
fn a_share_ends_with_its_cache() {
    let folder = scratch("share-lost");
    let socket = folder.join("share.sock");
    let caches = folder.to_str().expect("a path");
    let mut share = Command::new(crate::REJOIN);
    share.args(["share", "web", "--capacity", "1MiB", "--folder", caches, "--socket"]).arg(&socket);
    let share = share.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
    wait_until("the share", || UnixStream::connect(&socket).is_ok());
    let removed = rejoin(&["store", "remove", "web", "--json", "--folder", caches]);
    assert_eq!(text(&removed.stdout), "{\"removed\":\"web\"}\n");
    let output = share.wait_with_output().expect("it ends");
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("was removed or replaced"), "{told}");
}

#[test]
fn a_cache_that_cannot_be_opened_is_listed() {
    let folder = scratch("store-list");
    std::fs::write(folder.join("rejoin-odd"), "no cache").expect("a file");
    let caches = folder.to_str().expect("a path");
    let listed = rejoin(&["store", "list", "--json", "--folder", caches]);
    let listed: Vec<Value> = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["name"], "odd");
    assert!(listed[0]["problem"].as_str().is_some_and(|problem| !problem.is_empty()), "{listed:?}");
}

/// A login would end at a file that is missing.
#[test]
fn a_profile_that_reads_our_file_still_can() {
    const USER: u32 = 1234;
    let home = scratch("disable-clients");
    let config = home.join(".config");
    let written =
        "# Written by `rejoin enable clients`. `rejoin disable clients` removes it.\nexport A=1\n";
    let [services, shells] = ["environment.d/60-rejoin.conf", "rejoin/profile.sh"].map(|file| {
        let file = config.join(file);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(&file, written).expect("a file");
        file
    });
    let own = |path: &Path| chown(path, Some(USER), None);
    let folders = [&home, &config, &config.join("environment.d"), &config.join("rejoin")];
    if folders.into_iter().chain([&services, &shells]).any(|path| own(path).is_err()) {
        return eprintln!("skipped: files of another user (needs root)");
    }
    let profile = home.join(".profile");
    std::fs::write(&profile, format!(". {}\n", shells.display())).expect("a file");
    let disable = || {
        let mut command = Command::new(crate::REJOIN);
        command.args(["disable", "clients"]).env("HOME", &home).uid(USER).output()
    };
    let Ok(output) = disable() else {
        return eprintln!("skipped: the program is in a folder that other users may not enter");
    };
    assert!(text(&output.stdout).contains("take that line out"), "{output:?}");
    assert!(!services.exists());
    let mut login = Command::new("sh");
    login.args(["-c", ". \"$1\"; echo ${A-}goes on", "sh"]).arg(&profile);
    let login = login.output().expect("a shell");
    assert_eq!((text(&login.stdout), text(&login.stderr)), ("goes on\n".into(), String::new()));
    std::fs::write(&profile, "").expect("a file");
    disable().expect("it runs");
    assert!(!shells.exists());
}
