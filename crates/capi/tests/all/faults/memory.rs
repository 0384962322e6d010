//! A mapping that is truncated, overwritten or removed while servers use it.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_store::Store;

use super::{clients, counters, file_of_cache, lines_of_ours, nginx, start_nginx, store, write_at};
use crate::compat::matrix::children;
use crate::ways::HAPROXY;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::site::Site;

fn cut(site: &Site, bytes: u64) {
    let file = File::options().write(true).open(file_of_cache(site)).expect("there");
    file.set_len(bytes).expect("cut");
}

/// Connects with both versions this often, and returns the workers that answered.
fn workers(site: &Site, connections: usize) -> HashSet<String> {
    let mut clients = clients(site);
    for client in &mut clients {
        let _resumed = (0..connections).filter(|_| client.connect()).count();
    }
    clients.into_iter().flat_map(|client| client.answers).collect()
}

#[test]
fn a_file_cut_short_under_running_workers() {
    let Some(site) = nginx("cut", "") else { return };
    let before = workers(&site, 12);
    assert_eq!(before.len(), 2, "all went to one worker");
    assert!(counters(&site).hits > 0);
    for bytes in [8192, 0] {
        cut(&site, bytes);
        assert_eq!(workers(&site, 20), before, "a worker died");
        let told = lines_of_ours(&site);
        assert_eq!(told.len(), 2, "one line for each worker: {told:?}");
        assert!(told.iter().all(|line| line.contains("cut short")), "{told:?}");
    }
    // A worker in the middle of an operation dies, and its master starts another.
    let victim = before.iter().next().expect("one");
    assert!(Command::new("kill").args(["-BUS", victim]).status().expect("it runs").success());
    let master = site.running[0].id().to_string();
    wait_until("another worker", || {
        let now = children(&master);
        now.len() == 2 && !now.contains(victim)
    });
    let after = workers(&site, 20);
    assert!(after.len() == 2 && !after.contains(victim), "{after:?}, not {victim}");
    assert_eq!(lines_of_ours(&site).len(), 3);
}

#[test]
fn a_file_scribbled_on_under_running_workers() {
    let Some(site) = nginx("scribbled", "") else { return };
    let before = workers(&site, 12);
    let (path, done) = (file_of_cache(&site), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| scribble(&path, &done));
        let serve = |mut client: rejoin_testkit::site::Client| {
            let until = Instant::now() + Duration::from_secs(3);
            let mut resumed = 0_u32;
            while Instant::now() < until {
                let start = Instant::now();
                resumed += u32::from(client.connect());
                assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
            }
            resumed
        };
        let served = clients(&site).map(|client| scope.spawn(move || serve(client)));
        let resumed = served.map(|served| served.join());
        done.store(true, Ordering::Relaxed);
        let resumed = resumed.map(|resumed| resumed.expect("all were served"));
        assert!(resumed.iter().all(|resumed| *resumed > 0), "{resumed:?}");
    });
    assert_eq!(workers(&site, 12), before, "a worker died");
    let told = lines_of_ours(&site);
    assert!((1..=2).contains(&told.len()), "one line for each worker: {told:?}");
    assert!(told.iter().all(|line| line.contains("made no sense")), "{told:?}");
}

/// The threads of one process would all die together.
#[test]
fn a_file_cut_short_under_running_threads() {
    let mut site = Site::new("fault-threads");
    let threads = HAPROXY.replace("nbthread 2", "nbthread 4");
    site.write("haproxy.cfg", &threads.replace("both.pem", "both.pem no-tls-tickets"));
    let configuration = site.shown("haproxy.cfg");
    if site.start("haproxy", &["-db", "-f", &configuration]).is_none() {
        return;
    }
    let mut four: Vec<_> = [clients(&site), clients(&site)].into_iter().flatten().collect();
    for bytes in [None, Some(8192), Some(0)] {
        bytes.inspect(|bytes| cut(&site, *bytes));
        thread::scope(|scope| {
            for client in &mut four {
                scope.spawn(|| (0..20).filter(|_| client.connect()).count());
            }
        });
    }
    let ended = site.running[0].try_wait().expect("our own child");
    assert!(ended.is_none(), "{ended:?}");
    let told = lines_of_ours(&site);
    assert!(told.len() == 1 && told[0].contains("cut short"), "{told:?}");
}

/// Measures how often a worker dies when the file is truncated in the middle of an operation.
#[test]
#[ignore = "a figure, not a promise"]
fn cuts_under_load() {
    const CUTS: usize = 40;
    let Some(mut site) = nginx("cuts", "") else { return };
    for _ in 0..CUTS {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for mut client in [clients(&site), clients(&site)].into_iter().flatten() {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let _ = client.try_connect();
                    }
                });
            }
            thread::sleep(Duration::from_millis(300));
            cut(&site, 0);
            thread::sleep(Duration::from_millis(200));
            done.store(true, Ordering::Relaxed);
        });
        site.stop();
        Store::remove(Path::new(Store::FOLDER), &site.cache()).expect("removed");
        start_nginx(&mut site).expect("installed");
    }
    let log = std::fs::read_to_string(site.file("error.log")).expect("there");
    let deaths = log.matches("exited on signal 7").count();
    eprintln!("{deaths} deaths by SIGBUS in {CUTS} cuts under load");
}

/// A changed bit of a session itself damages no list and no lock.
#[test]
fn a_session_that_is_not_what_it_was_is_none() {
    let Some(site) = nginx("changed", "") else { return };
    let path = file_of_cache(&site);
    for client in &mut clients(&site) {
        client.connect();
        assert!(client.connect());
        let (before, mut changed) = (std::fs::read(&path).expect("there"), 0);
        for at in sessions_in(&before) {
            write_at(&path, &[before[at + 60] ^ 1], at as u64 + 60);
            changed += 1;
        }
        assert!(changed > 0, "no session was found in the file");
        assert!(!client.connect(), "a changed session was resumed");
        assert!(client.connect());
    }
    assert_eq!(store(&site).cache().counters().misses, 0);
}

/// Returns the places where sessions begin in OpenSSL's encoding: a sequence with the integer 1 and the TLS version.
fn sessions_in(bytes: &[u8]) -> Vec<usize> {
    let version = [2, 1, 1, 2, 2, 3];
    let places = bytes.windows(version.len()).enumerate();
    places.filter(|(_, window)| *window == version).map(|(at, _)| at).collect()
}

/// Writes random bytes, few and many, in every part of the file.
fn scribble(path: &Path, done: &AtomicBool) {
    let length = path.metadata().expect("there").len();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    while !done.load(Ordering::Relaxed) {
        let bytes: Vec<u8> = (0..1 << (random() % 8)).map(|_| random() as u8).collect();
        // The first pages, then anywhere.
        let within = if random() % 4 == 0 { 16_384 } else { length };
        write_at(path, &bytes, random() % (within - 128));
        thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_cache_removed_under_running_workers_and_made_anew() {
    let Some(mut site) = nginx("removed", "") else { return };
    let mut clients = clients(&site);
    for client in &mut clients {
        client.connect();
        assert!(client.connect());
    }
    let old = store(&site);
    assert!(Store::remove(Path::new(Store::FOLDER), &site.cache()).expect("removed"));
    for client in &mut clients {
        assert!(!client.connect(), "its session was wiped");
        (0..6).for_each(|_| assert!(client.connect(), "the workers go on with what they have"));
    }
    assert!(!old.facts().is_named && old.check().iter().all(Result::is_ok));
    site.stop();
    start_nginx(&mut site).expect("installed");
    for client in &mut clients {
        assert!(!client.connect(), "a new cache");
        (0..6).for_each(|_| assert!(client.connect()));
    }
    assert_ne!(store(&site).key_id(), old.key_id());
    assert_eq!(lines_of_ours(&site), [""; 0]);
}
