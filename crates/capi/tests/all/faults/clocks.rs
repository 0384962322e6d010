//! Steps of the wall clock. The lifetime of OpenSSL's sessions depends on it, that of the cache's on the time since
//! boot: a session is resumed only while neither lifetime is over.

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{clients, counters, lines_of_ours, start_nginx, start_s_server};
use rejoin_testkit::site::Site;

/// Returns the words before a server's command, for a wall clock of its own by Debian's package `faketime`. The time
/// since boot is left alone.
fn with_clock(site: &Site) -> Option<[String; 5]> {
    let library = format!("/usr/lib/{ARCH}-linux-gnu/faketime/libfaketime.so.1");
    if !Path::new(&library).exists() {
        eprintln!("skipped: steps of the clock (needs libfaketime)");
        return None;
    }
    step(site, "+0");
    Some([
        "env".to_owned(),
        format!("LD_PRELOAD={library}"),
        format!("FAKETIME_TIMESTAMP_FILE={}", site.shown("clock")),
        "FAKETIME_NO_CACHE=1".to_owned(),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
    ])
}

fn step(site: &Site, offset: &str) {
    fs::write(site.file("clock"), offset).expect("a file");
}

/// Stops the server, and removes the files that the library leaves.
fn stop(site: &mut Site) {
    let process = site.running[0].id();
    site.stop();
    for file in [format!("faketime_shm_{process}"), format!("sem.faketime_sem_{process}")] {
        let _ = fs::remove_file(Path::new("/dev/shm").join(file));
    }
}

#[test]
fn the_wall_clock_steps_while_a_server_runs() {
    let mut site = Site::new("fault-clock");
    let Some(before) = with_clock(&site) else { return };
    let before = before.each_ref().map(String::as_str);
    start_s_server(&mut site, &before).expect("openssl is installed");
    let mut clients = clients(&site);
    for client in &mut clients {
        client.connect();
    }
    // OpenSSL's own lifetime is two hours. It may do what it likes with sessions from the future.
    let [must, must_not, may] = [Some(true), Some(false), None];
    let steps = [
        ("+1h", must),
        ("+1d", must_not),
        ("-1d", may),
        ("+1y", must_not),
        ("-1y", may),
        ("+0", may),
    ];
    for (offset, expected) in steps {
        step(&site, offset);
        for client in &mut clients {
            let resumed = client.connect();
            assert!(expected.is_none_or(|expected| expected == resumed), "{offset}: {resumed}");
            assert!(client.connect(), "{offset}: new sessions are of no use");
        }
    }
    stop(&mut site);
    assert_eq!(lines_of_ours(&site), [""; 0]);
    assert!(super::store(&site).check().iter().all(Result::is_ok));
}

/// A clock that is set back makes no session younger.
#[test]
fn a_session_whose_time_is_over_stays_so_when_the_clock_is_set_back() {
    let mut site = Site::new("fault-back");
    let Some(before) = with_clock(&site) else { return };
    site.write("nginx.conf", &super::NGINX.replace("@MORE@", "ssl_session_timeout 1s;"));
    let configuration = site.shown("nginx.conf");
    let words: Vec<&str> = before[1..].iter().map(String::as_str).collect();
    if !Path::new("/usr/sbin/nginx").exists() {
        return start_nginx(&mut site).unwrap_or_default();
    }
    site.start("env", &[&words[..], &["nginx", "-c", &configuration]].concat()).expect("it starts");
    let mut clients = clients(&site);
    for client in &mut clients {
        // A busy machine may take longer than the second that a session lives.
        assert!((0..20).any(|_| client.connect()));
    }
    step(&site, "-1d");
    thread::sleep(Duration::from_millis(2_100));
    for client in &mut clients {
        assert!(!client.connect(), "its time was over");
    }
    stop(&mut site);
    // A client of TLS 1.3 knows its ticket's lifetime, and may not offer it.
    assert!((1..=2).contains(&counters(&site).expired));
}
