//! Programs that send early data: the first time it is accepted, with Rejoin and without; the second time, with the same
//! session, without Rejoin alone.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use openssl::x509::X509;
use rejoin_testkit::shipped::target;
use rejoin_testkit::site::Site;

use super::servers::{Kind, Rejoin, Server};
use super::{Effort, Found};
use crate::chromium;

const TIMES: usize = 20;

/// `openssl s_client -sess_in FILE -early_data FILE`, twice with the same file.
pub(super) fn s_client(effort: Effort) -> Option<Found> {
    let times = if effort.quick { TIMES / 4 } else { TIMES };
    let counts = [Rejoin::Once, Rejoin::Absent].map(|rejoin| {
        let server = Server::start(Kind::Nginx, rejoin, &format!("s_client-{rejoin:?}"))?;
        let mut accepted = [0; 2];
        for _ in 0..times {
            server.site.s_client("/s_client", &["-sess_out", "session"]);
            for accepted in &mut accepted {
                let arguments = ["-sess_in", "session", "-early_data", "request"];
                let told = server.site.s_client("/s_client", &arguments);
                *accepted += usize::from(told.contains("Early data was accepted"));
            }
        }
        Some(accepted)
    });
    let [Some([first, again]), Some([plain, plain_again])] = counts else { return None };
    let figure = format!(
        "{first} of {times} accepted, {again} the second time; without Rejoin {plain} and {plain_again}"
    );
    let holds = first == times && again == 0 && plain > 0 && plain_again > 0;
    Some(Found { figure, holds })
}

/// `curl --tls-earlydata` of Debian 13, which keeps sessions while it runs. It counts what it sent as early data, below zero
/// where a server rejected it. `None` without `target/programs-13`.
pub(super) fn curl(_: Effort) -> Option<Found> {
    const URLS: usize = 10;
    let seen = [Rejoin::Once, Rejoin::Absent].map(|rejoin| {
        let server = Server::logging(rejoin, &format!("curl-{rejoin:?}"))?;
        let [loader, words @ ..] = newer("programs-13", "bin/curl")?;
        let mut curl = Command::new(loader);
        curl.args(words).args(["--silent", "--show-error", "--insecure", "--ipv4", "--http1.1"]);
        curl.args(["--tls-earlydata", "--header", "Connection: close"]);
        curl.args(["--write-out", "\nearly %{tls_earlydata}\n"]);
        let path = |number| format!("/curl-{number}");
        let urls = (0..URLS)
            .map(|number| format!("https://localhost:{}{}", server.site.port, path(number)));
        let output = curl.args(urls).output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let sent = told.lines().filter_map(|line| line.strip_prefix("early ")?.parse::<i64>().ok());
        let rejected = sent.filter(|bytes| *bytes < 0).count();
        let seen = server.seen();
        let once = (0..URLS).filter(|number| seen(&path(*number)).all == 1).count();
        Some(Sent { all: URLS, once, accepted: server.read_early(), rejected })
    });
    compared(seen)
}

/// Chromium, whose page asks for one path after the other. Its log has an error for early data that a server rejected. `None`
/// without it.
pub(super) fn browser(_: Effort) -> Option<Found> {
    const PATHS: usize = 10;
    let seen = [Rejoin::Once, Rejoin::Absent].map(|rejoin| {
        let server = Server::logging(rejoin, &format!("browser-{rejoin:?}"))?;
        let Site { folder, port, .. } = &server.site;
        let certificate = X509::from_pem(&fs::read(server.site.file("both.pem")).ok()?).ok()?;
        let log = server.site.file("network.json");
        let log_to = format!("--log-net-log={}", log.display());
        let more = ["--disable-quic", "--enable-features=EnableTLS13EarlyData", &log_to];
        chromium::open(("localhost", *port, "page"), &certificate, folder, &more)?;
        let log = fs::read_to_string(log).expect("Chromium logs");
        assert!(log.contains("\"SSL_CONNECT\""), "a log of connections");
        let seen = server.seen();
        let is_once = |number: &usize| seen(&format!("/browser/{number}")).all == 1;
        let once = (0..PATHS).filter(is_once).count();
        let rejected = log.matches(REJECTED).count();
        Some(Sent { all: PATHS, once, accepted: server.read_early(), rejected })
    });
    compared(seen)
}

/// Chromium's `ERR_EARLY_DATA_REJECTED`, in its log.
const REJECTED: &str = "\"net_error\":-178";

/// The requests of a program that sends early data where it has a session for it. How often it has one depends on whether it
/// read the last ticket before it closed, with Rejoin and without.
struct Sent {
    all: usize,
    /// Those that the server's application saw once.
    once: usize,
    /// Connections whose early data the server read.
    accepted: usize,
    /// The program's own count.
    rejected: usize,
}

/// Compares a program's requests with Rejoin and without: some are early, none is rejected, and each is asked once.
fn compared(seen: [Option<Sent>; 2]) -> Option<Found> {
    let [Some(with), Some(without)] = seen else { return None };
    let shown = |sent: &Sent| {
        let Sent { all, once, accepted, rejected } = sent;
        format!("{once} of {all} asked once, {accepted} as early data, {rejected} rejected")
    };
    let figure = format!("{}; without Rejoin {}", shown(&with), shown(&without));
    let all_once = [&with, &without].into_iter().all(|sent| sent.once == sent.all);
    let holds = all_once && with.accepted > 0 && without.accepted > 0 && with.rejected == 0;
    Some(Found { figure, holds })
}

/// The words that start a program of a folder such as `make target/programs-13` makes, with its own loader. `None` if it
/// is not there.
pub(super) fn newer(folder: &str, program: &str) -> Option<[String; 4]> {
    let usr = target().join(folder).join("root/usr");
    let libraries = folder_like(&usr.join("lib"), "-linux-gnu")?;
    let loader = folder_like(&libraries, "ld-linux")?;
    let program = usr.join(program);
    let shown = |path: PathBuf| path.display().to_string();
    let is_there = program.exists();
    is_there.then(|| [shown(loader), "--library-path".to_owned(), shown(libraries), shown(program)])
}

fn folder_like(folder: &std::path::Path, part: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(part)))
}
