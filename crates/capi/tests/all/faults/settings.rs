//! Settings with which no cache is made: one line is logged, and the server runs without Rejoin.

use super::{file_of_cache, lines_of_ours, start_s_server};
use rejoin_testkit::site::{Site, Versions};

/// Asserts that the server serves, logs one line with `complaint`, and makes no cache.
fn goes_on_without(site: &mut Site, before: &[&str], complaint: &str) {
    std::fs::write(site.file("stderr"), "").expect("a file");
    if start_s_server(site, before).is_none() {
        return;
    }
    site.client(Versions::Tls12).connect();
    site.client(Versions::Tls13).connect();
    site.stop();
    let told = lines_of_ours(site);
    assert!(told.len() == 1 && told[0].contains(complaint), "{before:?} {complaint}: {told:?}");
    assert!(!file_of_cache(site).exists(), "{before:?} {complaint}: a cache was made");
}

#[test]
fn what_the_file_says_wrong() {
    let mut site = Site::new("fault-settings");
    for (setting, complaint) in [
        ("capacity = 0", "give at least"),
        ("capacity = -1MiB", "capacity = -1MiB"),
        ("capacity =", "capacity = "),
        ("capacity = 1000000GiB", "it must be between"),
        ("capacity = 99999999999GiB", "capacity = 99999999999GiB"),
        ("capacity = 99999999999999999999", "capacity = 99999999999999999999"),
        ("cache =", "no name of a cache"),
        ("cache = ../../etc/passwd", "no name of a cache"),
        ("cache = .hidden", "no name of a cache"),
        ("folder =", "cannot open the folder"),
        ("folder = FOLDER/cert.pem", "Not a directory"),
        ("stateful = perhaps", "no or yes"),
        ("policy =", "predictive or lru"),
    ] {
        site.configure(&setting.replace("FOLDER", &site.folder.display().to_string()));
        goes_on_without(&mut site, &["env"], complaint);
    }
    let long = "n".repeat(65);
    site.configure(&format!("cache = {long}"));
    goes_on_without(&mut site, &["env"], "no name of a cache");
}

#[test]
fn what_the_environment_says_wrong() {
    let mut site = Site::new("fault-environment");
    for (variable, complaint) in [
        ("REJOIN_CAPACITY=0", "give at least"),
        ("REJOIN_CAPACITY=", "capacity = "),
        ("REJOIN_CACHE=a/b", "no name of a cache"),
        ("REJOIN_CACHE=", "no name of a cache"),
        ("REJOIN_FOLDER=/proc/self/nowhere", "/proc/self/nowhere"),
        ("REJOIN_POLICY=PREDICTIVE", "predictive or lru"),
    ] {
        goes_on_without(&mut site, &["env", variable], complaint);
    }
    for variable in ["CAPACITY", "CACHE", "FOLDER", "POLICY", "STATEFUL"] {
        let script = format!(r#"export REJOIN_{variable}="$(printf '\377')"; exec "$@""#);
        goes_on_without(&mut site, &["sh", "-c", &script, "sh"], "\u{fffd}");
    }
}

#[test]
fn a_cache_that_nobody_has_made() {
    let mut site = Site::new("fault-none");
    let file = site.file("openssl.cnf");
    let text = std::fs::read_to_string(&file).expect("there").replace("capacity = 1MiB", "");
    std::fs::write(&file, text).expect("a file");
    goes_on_without(&mut site, &["env"], "no cache test-fault-none");
}

/// A line that cannot be written must not stop the server.
#[test]
fn a_log_that_takes_nothing() {
    let mut site = Site::new("fault-log");
    site.configure("capacity = lots");
    for redirected in [r#"exec "$@" 2>/dev/full"#, r#"exec "$@" 2>&-"#] {
        if start_s_server(&mut site, &["sh", "-c", redirected, "sh"]).is_some() {
            site.client(Versions::Tls12).connect();
        }
        site.stop();
    }
}
