//! A cache that was made with other settings, or by another version: a server with a capacity of its own puts a new one
//! in its place, and nobody has to remove anything.

use std::path::Path;
use std::process::Command;

use rejoin_store::Store;
use rejoin_testkit::port::reserve;
use rejoin_testkit::site::{Client, Site, Versions};

use crate::faults::{file_of_cache, lines_of_ours, start_s_server, store, write_at};

fn resumed(client: &mut Client, times: usize) -> Vec<bool> {
    (0..times).map(|_| client.connect()).collect()
}

/// Starts a server with stateless tickets.
fn start(site: &mut Site, before: &[&str]) {
    let (port, pair) = (site.address().to_string(), site.shown("both.pem"));
    let server = ["openssl", "s_server", "-accept", &port, "-www", "-cert", &pair, "-key", &pair];
    let words = [before, &server].concat();
    site.start(words[0], &words[1..]).expect("installed");
}

#[test]
fn a_larger_capacity_takes_effect_and_old_processes_finish_on_their_cache() {
    let mut site = Site::new("replaced-capacity");
    start(&mut site, &["env"]);
    let mut before = [Versions::Tls12, Versions::Tls13].map(|versions| site.client(versions));
    before.iter_mut().for_each(|client| assert_eq!(resumed(client, 2), [false, true]));
    let old = store(&site);
    // Another server, of the same cache.
    site.port = reserve();
    start(&mut site, &["env", "REJOIN_CAPACITY=2MiB"]);
    let mut after = [Versions::Tls12, Versions::Tls13].map(|versions| site.client(versions));
    after.iter_mut().for_each(|client| assert_eq!(resumed(client, 2), [false, true]));
    let told = lines_of_ours(&site);
    let expected = format!(
        "rejoin: cache {} had another capacity, 1048576 bytes and not 2097152 bytes: a new one takes its place, and \
         running processes finish on the old one",
        site.cache
    );
    assert_eq!(told, [expected]);
    assert!(!old.facts().is_named && store(&site).facts().bytes > old.facts().bytes);
    // The old process goes on, and its tickets open in the new one, which has its ticket keys.
    before.iter_mut().for_each(|client| assert_eq!(resumed(client, 2), [true; 2]));
    for client in &mut before {
        client.address = site.address();
        assert_eq!(resumed(client, 2), [true; 2]);
    }
    site.stop();
    start(&mut site, &["env", "REJOIN_CAPACITY=2MiB"]);
    before.iter_mut().for_each(|client| assert!(client.connect(), "after a restart"));
    assert_eq!(lines_of_ours(&site).len(), 1, "it is there now");
}

#[test]
fn a_cache_of_another_version_is_replaced() {
    let mut site = Site::new("replaced-version");
    start_s_server(&mut site, &["env"]).expect("installed");
    site.stop();
    // Bytes 8 to 11 are the version.
    write_at(&file_of_cache(&site), &[99], 8);
    start_s_server(&mut site, &["env"]).expect("installed");
    assert_eq!(resumed(&mut site.client(Versions::Tls12), 3), [false, true, true]);
    let told = lines_of_ours(&site);
    assert!(told.len() == 1 && told[0].contains("was made by another version: a new"), "{told:?}");
    assert!(Store::open(Path::new(Store::FOLDER), &site.cache(), None).is_ok());
}

#[test]
fn a_folder_without_room_for_both_keeps_the_new_one() {
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|of| of.success()) {
        return eprintln!("skipped: a small folder (needs unshare, and the right to mount)");
    }
    let mut site = Site::new("replaced-room");
    site.write(
        "inherits.py",
        "import os, socket\n\
         one = socket.create_server(('127.0.0.1', 0))\n\
         one.set_inheritable(True)\n\
         os.execvp('openssl', ['openssl', 'rand', '-out', '/dev/null', '1'])\n",
    );
    let script = "mount -t tmpfs -o size=1800k tmpfs /dev/shm && openssl rand 1 > /dev/null && \
                  python3 -c 'import ssl; ssl.create_default_context()' && \
                  ls /dev/shm > helper && \
                  python3 -c 'import ssl; ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)' && \
                  ls /dev/shm > made && rm /dev/shm/* && python3 inherits.py && \
                  ls /dev/shm >> made && REJOIN_CAPACITY=1200KiB exec \"$@\"";
    start_s_server(&mut site, &["unshare", "--mount", "--", "sh", "-c", script, "sh"])
        .expect("installed");
    let [helper, made] = ["helper", "made"].map(|of| std::fs::read_to_string(site.file(of)));
    assert_eq!(helper.expect("text"), "", "a program that serves nobody makes a cache");
    let made = made.expect("text");
    let own = site.cache().file_name();
    let why =
        "root makes the cache with a context that may serve, or with a socket that it inherits";
    assert_eq!(made, format!("{own}\n{own}\n"), "{why}");
    assert_eq!(resumed(&mut site.client(Versions::Tls12), 2), [false, true]);
    let told = lines_of_ours(&site);
    assert!(told.len() == 1 && told[0].contains("had another capacity"), "{told:?}");
}
