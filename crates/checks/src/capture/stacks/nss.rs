//! NSS's `selfserv`, and `strsclnt`, which connects several times, and tells the hits of its cache.

use std::process::{Command, Stdio};

use rejoin_testkit::port;
use rejoin_testkit::process::{DEADLINE, Process, output, wait_until};

use super::{Ground, NAME, Told, is_bound};

const VERSIONS: [&str; 4] = ["tls1.0", "tls1.1", "tls1.2", "tls1.3"];
/// The connections of a client that resumes, and of one that does not.
const VISITS: usize = 8;
const FRESH_VISITS: usize = 3;

pub(super) fn visits(ground: &Ground) -> Option<Vec<Told>> {
    let database = database(ground)?;
    let mut told = Vec::new();
    for version in VERSIONS {
        // With tickets, and with session ids alone.
        for options in [&["-u"][..], &[]] {
            if options.is_empty() && version == "tls1.3" {
                continue;
            }
            let server = port::reserve();
            let mut serve = Command::new("selfserv");
            serve.args(["-d", &database, "-n", NAME, "-p", &server.to_string()]);
            serve.args(["-V", &format!("{version}:{version}")]).args(options);
            serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let _server = Process::try_start(&mut serve).ok()?;
            wait_until("selfserv", || is_bound(server, false));
            let of = |resumed| move |_| Told { server, client: None, resumed };
            let resumed = call(&database, server, version, VISITS, options);
            told.extend((0..VISITS - resumed).map(of(false)));
            told.extend((0..resumed).map(of(true)));
            let fresh = [options, &["-N"]].concat();
            let resumed = call(&database, server, version, FRESH_VISITS, &fresh);
            assert_eq!(resumed, 0, "{version}");
            told.extend((0..FRESH_VISITS).map(of(false)));
        }
    }
    Some(told)
}

/// Visits a server several times, one after the other. Returns the number of resumptions, which follow the full handshakes.
fn call(database: &str, server: u16, version: &str, visits: usize, options: &[&str]) -> usize {
    let mut call = Command::new("strsclnt");
    call.args(["-d", database, "-p", &server.to_string(), "-o", "-t", "1"]);
    call.args(["-c", &visits.to_string(), "-V", &format!("{version}:{version}")]);
    let said = output(call.args(options).arg("127.0.0.1"), DEADLINE);
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // Such as: strsclnt: 7 cache hits; 1 cache misses, 0 cache not reusable. It tells after the first, too.
    let hits = said.lines().filter_map(|line| {
        let (before, _) = line.split_once(" cache hits")?;
        before.rsplit(' ').next()?.parse().ok()
    });
    hits.max().unwrap_or_else(|| panic!("{version}: {said}"))
}

/// A database with the server's certificate and key.
fn database(ground: &Ground) -> Option<String> {
    let folder = ground.folder.file("nss");
    std::fs::create_dir_all(&folder).ok()?;
    let database = format!("sql:{folder}");
    let made = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success()).then_some(())
    };
    made(Command::new("certutil").args(["-N", "--empty-password", "-d", &database]))?;
    let import = ["-i", &ground.store, "-W", "rejoin", "-d", &database];
    made(Command::new("pk12util").args(import))?;
    Some(database)
}
