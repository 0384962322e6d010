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
        ("capacity = 1000000GiB", "no cache can be that large"),
        ("capacity = 99999999999GiB", "capacity = 99999999999GiB"),
        ("capacity = 99999999999999999999", "capacity = 99999999999999999999"),
        ("cache =", "no name of a cache"),
        ("cache = ../../etc/passwd", "no name of a cache"),
        ("cache = .hidden", "no name of a cache"),
        ("folder =", "give an absolute path"),
        ("folder = FOLDER/cert.pem", "Not a directory"),
        ("stateful = perhaps", "no or yes"),
        ("policy =", "predictive or lru"),
        ("log = debug", "all or errors"),
        ("capasity = 1MiB", "capasity: no such setting; did you mean capacity?"),
        ("rotate_evry = 1h", "rotate_evry: no such setting; did you mean rotate_every?"),
        ("Policy = lru", "Policy: no such setting; did you mean policy?"),
        ("frobnicate = 1", "frobnicate: no such setting; there are cache, capacity, "),
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
        ("REJOIN_CAPASITY=1MiB", "REJOIN_CAPASITY: no such setting; did you mean REJOIN_CAPACITY?"),
        ("REJOIN_KEYFILE=/k", "REJOIN_KEYFILE: no such setting; did you mean REJOIN_KEY_FILE?"),
    ] {
        goes_on_without(&mut site, &["env", variable], complaint);
    }
    for variable in ["CAPACITY", "CACHE", "FOLDER", "POLICY", "STATEFUL"] {
        let script = format!(r#"export REJOIN_{variable}="$(printf '\377')"; exec "$@""#);
        goes_on_without(&mut site, &["sh", "-c", &script, "sh"], "\u{fffd}");
    }
}

/// Kubernetes names variables after services, and a service may be called "rejoin".
#[test]
fn variables_of_others_are_one_line_and_nothing_else() {
    let mut site = Site::new("fault-strangers");
    let strangers = ["REJOIN_SERVICE_HOST=10.0.0.1", "REJOIN_PORT=tcp://10.0.0.1:443"];
    start_s_server(&mut site, &[&["env"][..], &strangers].concat()).expect("installed");
    let mut client = site.client(Versions::Tls12);
    assert_eq!([client.connect(), client.connect()], [false, true]);
    site.stop();
    let told = lines_of_ours(&site);
    let expected = "rejoin: REJOIN_PORT, REJOIN_SERVICE_HOST: no settings of Rejoin's, and ignored";
    assert_eq!(told, [expected]);
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
