//! `rejoin run`, `stats` and `store`, with a real server that was not compiled with us.

use crate::program::{done, rejoin, text};
use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::{Process, wait_until};
use rejoin_testkit::serve::scratch;
use rejoin_testkit::shipped::rejoin_beside_libraries;
use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
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

/// The file of a share that gives up root must be its user's: a file that root wrote first would keep a key that was retired, and a
/// restart of the machine would bring that back.
#[test]
fn a_key_file_is_written_by_the_user_of_the_share() {
    const USER: u32 = 65_534;
    let (folder, files) = (Folder::new(), Folder::new());
    let inner = files.join("inner");
    std::fs::create_dir(&inner).expect("a folder");
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    mode(&inner, 0o700).and_then(|()| mode(&files, 0o755)).expect("ours");
    mode(&folder, 0o1777).expect("ours");
    let own = |path: &Path| chown(path, Some(USER), None);
    if own(&inner).is_err() {
        return eprintln!("skipped: a folder of another user (needs root)");
    }
    chown(&inner, Some(0), None).expect("root");
    let (caches, socket, ring) = (folder.file("."), folder.file("share.sock"), inner.join("ring"));
    let run = |complaints: &str| {
        let mut share = Command::new(crate::REJOIN);
        share.args(["share", "web", "--capacity", "1MiB", "--user", "nobody", "--folder", &caches]);
        share.args(["--socket", &socket, "--key-file"]).arg(&ring);
        share.stdout(Stdio::null());
        share.stderr(std::fs::File::create(folder.join(complaints)).expect("a file"));
        Process::start(&mut share)
    };
    let complaints = |name: &str| std::fs::read_to_string(folder.join(name)).expect("there");
    let refused = |name: &str, remedy: &str| {
        let ended = run(name).wait_for(Duration::from_secs(10));
        let told = complaints(name);
        assert!(!ended.success() && told.lines().count() == 1 && told.contains(remedy), "{told}");
        assert!(told.contains("cannot be written as user nobody"), "{told}");
    };
    let folder_remedy = "`install -d -o nobody -m 700 FOLDER`";
    refused("roots-folder", folder_remedy);
    assert!(!ring.exists(), "root has written it");
    // The file of an earlier version, which has the ring: nothing is to be written yet.
    std::fs::write(&ring, "").and_then(|()| mode(&ring, 0o600)).expect("a file");
    refused("roots-file", folder_remedy);
    own(&inner).expect("root");
    refused("roots-file-in-its-folder", &format!("`chown nobody {}`", ring.display()));
    std::fs::remove_file(&ring).expect("ours");

    let ids = |from: &[&str]| {
        let listed = done(&[&["keys", "list", "--json"], from].concat());
        let listed: Vec<Value> = serde_json::from_str(&listed).expect("JSON");
        listed.iter().map(|key| key["key"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    let of_cache = || ids(&["--folder", &caches, "web"]);
    let of_file = || ids(&["--ring", ring.to_str().expect("text")]);
    let mut share = run("its-folder");
    wait_until("the share", || UnixStream::connect(&socket).is_ok() && ring.exists());
    let first = of_cache();
    done(&["keys", "--folder", &caches, "rotate", "web"]);
    done(&["keys", "--folder", &caches, "retire", "web", &first[0]]);
    wait_until("the file to forget the key", || of_file() == of_cache());
    share.kill();
    // As a restart of the machine does.
    done(&["store", "remove", "web", "--folder", &caches]);
    let _share = run("again");
    let listed = || rejoin(&["keys", "--folder", &caches, "list", "web", "--json"]);
    wait_until("its keys", || text(&listed().stdout).contains("encrypting"));
    assert!(!of_cache().contains(&first[0]), "a retired key is back");
    assert_eq!([complaints("its-folder"), complaints("again")], ["", ""]);
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
