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

/// `curl --tls-earlydata` of Debian 13, which keeps sessions while it runs. `None` without `target/programs-13`.
pub(super) fn curl(_: Effort) -> Option<Found> {
    const URLS: usize = 10;
    let seen = [Rejoin::Once, Rejoin::Absent].map(|rejoin| {
        let server = Server::start(Kind::Nginx, rejoin, &format!("curl-{rejoin:?}"))?;
        let [loader, words @ ..] = newer("programs-13", "bin/curl")?;
        let mut curl = Command::new(loader);
        curl.args(words).args([
            "--silent",
            "--show-error",
            "--insecure",
            "--ipv4",
            "--http1.1",
            "--tls-earlydata",
        ]);
        curl.args(["--header", "Connection: close"]);
        let path = |number| format!("/curl-{number}");
        let urls = (0..URLS)
            .map(|number| format!("https://localhost:{}{}", server.site.port, path(number)));
        let output = curl.args(urls).output().ok()?;
        let answers = String::from_utf8_lossy(&output.stdout).matches("ok").count();
        let seen = server.seen();
        let all: Vec<_> = (0..URLS).map(|number| seen(&path(number))).collect();
        let early = all.iter().filter(|requests| requests.early > 0).count();
        let once = all.iter().filter(|requests| requests.all == 1).count();
        Some((answers, early, once, String::from_utf8_lossy(&output.stderr).into_owned()))
    });
    let [Some((answers, early, once, told)), Some((plain_answers, plain_early, ..))] = seen else {
        return None;
    };
    let figure = format!(
        "{answers} of {URLS} answered, {early} as early data, {once} asked once; without Rejoin {plain_answers}, \
         {plain_early} {told}"
    );
    let holds = answers == URLS && once == URLS && early > 0 && early >= plain_early;
    Some(Found { figure, holds })
}

/// Chromium, whose page asks for one path after the other. `None` without it.
pub(super) fn browser(_: Effort) -> Option<Found> {
    const PATHS: usize = 10;
    let seen = [Rejoin::Once, Rejoin::Absent].map(|rejoin| {
        let server = Server::start(Kind::Nginx, rejoin, &format!("browser-{rejoin:?}"))?;
        let Site { folder, port, .. } = &server.site;
        let certificate = X509::from_pem(&fs::read(server.site.file("both.pem")).ok()?).ok()?;
        let more = ["--disable-quic", "--enable-features=EnableTLS13EarlyData"];
        chromium::open(("localhost", *port, "page"), &certificate, folder, &more)?;
        let seen = server.seen();
        let all: Vec<_> = (0..PATHS).map(|number| seen(&format!("/browser/{number}"))).collect();
        let early = all.iter().filter(|requests| requests.early > 0).count();
        Some((all.iter().filter(|requests| requests.all == 1).count(), early))
    });
    let [Some((once, early)), Some((plain_once, plain_early))] = seen else { return None };
    let figure = format!(
        "{once} of {PATHS} asked once, {early} as early data; without Rejoin {plain_once}, {plain_early}"
    );
    let holds = once == PATHS && plain_once == PATHS && plain_early > 0 && early >= plain_early;
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
