//! The verdicts of sslyze and testssl.sh on nginx with Rejoin, and on the same nginx without.
//!
//! The findings about resumption and vulnerabilities are compared word by word. Differences are
//! printed; the check holds if a session resumes where it did not, or a finding is less severe. Both connect to
//! 127.0.0.1 only.
//!
//! nginx has one worker: sslyze comes back so soon that with two the session it brings is sometimes
//! not yet stored by the other, with Rejoin and without.

use rejoin_testkit::serve::scratch;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

use super::{Effort, Found, without_rejoin};
use rejoin_testkit::site::Site;

const NGINX: &str = "\
daemon off; worker_processes 1; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 1024; }
http {
  include FOLDER/nginx-http.conf;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:own:1m; ssl_session_tickets @TICKETS@;
  server { listen 127.0.0.1:@PORT@ ssl; return 200 \"nginx\\n\"; }
}
";

/// A verdict: its badness, and its words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    badness: usize,
    words: String,
}

type Verdicts = BTreeMap<String, Verdict>;

pub(crate) fn sslyze(_: Effort) -> Option<Found> {
    let program = installed_sslyze()?;
    let judge = |site: &Site, _| verdicts_of_sslyze(&program, site);
    let found = ["on", "off"].map(|tickets| compare("sslyze", tickets, 1, judge));
    let figures: Vec<String> = found.iter().flatten().map(|found| found.figure.clone()).collect();
    let holds = found.iter().flatten().all(|found| found.holds);
    let [on, off] = figures.try_into().ok()?;
    Some(Found { figure: format!("tickets on, {on}; off, {off}"), holds })
}

pub(crate) fn testssl_on(effort: Effort) -> Option<Found> {
    compare("testssl", "on", testssl_rounds(effort), verdicts_of_testssl)
}

pub(crate) fn testssl_off(effort: Effort) -> Option<Found> {
    compare("testssl", "off", testssl_rounds(effort), verdicts_of_testssl)
}

/// Judges both servers at the same time, and takes the best of as many rounds for each.
fn compare(
    name: &str,
    tickets: &str,
    rounds: usize,
    judge: impl Fn(&Site, usize) -> Option<Verdicts> + Sync,
) -> Option<Found> {
    let [ours, own] = ["with", "without"].map(|rejoin| {
        let mut site = Site::new(&format!("{name}-{tickets}-{rejoin}"));
        if rejoin == "without" {
            without_rejoin(&site);
        }
        site.write("nginx.conf", &NGINX.replace("@TICKETS@", tickets));
        let configuration = site.shown("nginx.conf");
        site.start("nginx", &["-c", &configuration]).map(|()| site)
    });
    let (ours, own) = (ours?, own?);
    let mut best = [Verdicts::new(), Verdicts::new()];
    for round in 0..rounds {
        let found = thread::scope(|scope| {
            let ours = scope.spawn(|| judge(&ours, round));
            let own = judge(&own, round);
            [ours.join().expect("no panic"), own]
        });
        for (best, found) in best.iter_mut().zip(found) {
            improve(best, found?);
        }
    }
    let [ours, own] = best;
    let worse = differences(&ours, &own);
    let (all, differ) = (own.len(), worse.len());
    let figure =
        format!("{all} verdicts in {rounds} rounds, {differ} differ, {} worse", count(&worse));
    Some(Found { figure, holds: !own.is_empty() && count(&worse) == 0 })
}

fn improve(best: &mut Verdicts, found: Verdicts) {
    for (name, verdict) in found {
        let best = best.entry(name).or_insert_with(|| verdict.clone());
        if verdict.badness < best.badness {
            *best = verdict;
        }
    }
}

fn count(differences: &[bool]) -> usize {
    differences.iter().filter(|is_worse| **is_worse).count()
}

/// Prints the differences. Returns for each whether it is worse with Rejoin.
fn differences(ours: &Verdicts, own: &Verdicts) -> Vec<bool> {
    let names = ours.keys().chain(own.keys().filter(|name| !ours.contains_key(*name)));
    let differing = names.filter(|name| ours.get(*name) != own.get(*name));
    differing
        .map(|name| {
            let words = |of: &Verdicts| {
                of.get(name).map_or_else(|| "nothing".to_owned(), |of| of.words.clone())
            };
            println!("     {name}: {} (without: {})", words(ours), words(own));
            let badness = |of: &Verdicts| of.get(name).map(|verdict| verdict.badness);
            if could_not_connect(&words(own)) {
                return false;
            }
            badness(ours).zip(badness(own)).is_none_or(|(ours, own)| ours >= own)
        })
        .collect()
}

/// True if a judge did not reach the server: then there is nothing to compare with.
fn could_not_connect(words: &str) -> bool {
    let words = words.to_lowercase();
    let failed = ["couldn't", "could not", "cannot", "fail", "problem"];
    words.contains("connect") && failed.iter().any(|word| words.contains(word))
}

/// Installs sslyze into an environment of its own, below the target folder.
fn installed_sslyze() -> Option<PathBuf> {
    let environment = scratch("check-servers").join("sslyze");
    let program = environment.join("bin/sslyze");
    if !program.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "sslyze"]))?;
    }
    Some(program)
}

fn run(command: &mut Command) -> Option<()> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    if !output.status.success() {
        eprintln!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success().then_some(())
}

const SSLYZE_ASKS: [&str; 14] = [
    "--resum",
    "--heartbleed",
    "--robot",
    "--openssl_ccs",
    "--reneg",
    "--compression",
    "--fallback",
    "--early_data",
    "--ems",
    "--sslv3",
    "--tlsv1",
    "--tlsv1_1",
    "--tlsv1_2",
    "--tlsv1_3",
];

fn verdicts_of_sslyze(program: &Path, site: &Site) -> Option<Verdicts> {
    let answer = site.file("sslyze.json");
    let mut sslyze = Command::new(program);
    sslyze.args(["--quiet", "--mozilla_config", "disable", "--json_out"]).arg(&answer);
    run(sslyze.args(SSLYZE_ASKS).arg(site.address().to_string()))?;
    let answer: Value = serde_json::from_slice(&fs::read(answer).ok()?).ok()?;
    let mut verdicts = Verdicts::new();
    for (check, found) in answer["server_scan_results"][0]["scan_result"].as_object()? {
        for (name, value) in found["result"].as_object().into_iter().flatten() {
            if value.is_array() {
                continue;
            }
            let words = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let badness = RESUMPTION.iter().position(|known| *known == words).unwrap_or(0);
            verdicts.insert(format!("{check}.{name}"), Verdict { badness, words });
        }
    }
    Some(verdicts)
}

/// The words of both judges for resumption, best first.
const RESUMPTION: [&str; 6] = [
    "FULLY_SUPPORTED",
    "supported",
    "PARTIALLY_SUPPORTED",
    "NOT_SUPPORTED",
    "not supported",
    "no -- no lifetime advertised",
];
const SEVERITIES: [&str; 7] = ["OK", "INFO", "LOW", "MEDIUM", "WARN", "HIGH", "CRITICAL"];
/// Findings that are not the server's: the certificates, the judge's own engine, and the time that it took.
const NOT_COMPARED: [&str; 3] = ["cert", "engine_problem", "scanTime"];

/// Rounds of testssl.sh. Its client leaves at the end of the handshake, by chance with or without a TLS 1.3 ticket;
/// without one it reports that nothing resumes, with Rejoin and without.
fn testssl_rounds(effort: Effort) -> usize {
    if effort.quick { 3 } else { 10 }
}

/// Protocols, the server's defaults (resumption is among them) and vulnerabilities; in later rounds the
/// defaults.
fn verdicts_of_testssl(site: &Site, round: usize) -> Option<Verdicts> {
    let asks: &[&str] = if round == 0 { &["-p", "-S", "-U"] } else { &["-S"] };
    Some(asked_testssl(site, asks)?.into_iter().collect())
}

fn asked_testssl(site: &Site, asks: &[&str]) -> Option<Vec<(String, Verdict)>> {
    let answer = site.file("testssl.json");
    // It does not overwrite files.
    let _ = fs::remove_file(&answer);
    let output = Command::new("testssl")
        .args(["--quiet", "--warnings", "off", "--nodns", "none", "--color", "0"])
        .args(asks)
        .arg("--jsonfile")
        .args([answer.as_os_str(), site.address().to_string().as_ref()])
        .stdin(Stdio::null())
        .output();
    if output.is_err() {
        eprintln!("testssl.sh is not installed");
        return None;
    }
    let answer: Value = serde_json::from_slice(&fs::read(answer).ok()?).ok()?;
    Some(answer.as_array()?.iter().filter_map(verdict_of_testssl).collect())
}

fn verdict_of_testssl(found: &Value) -> Option<(String, Verdict)> {
    let [name, severity, words] = ["id", "severity", "finding"].map(|key| found[key].as_str());
    let (name, severity, words) = (name?, severity?, words?);
    let badness = match RESUMPTION.iter().position(|known| *known == words) {
        Some(place) => place,
        None => SEVERITIES.iter().position(|known| *known == severity)?,
    };
    let compared = !NOT_COMPARED.iter().any(|not| name.starts_with(not));
    let words = format!("{severity}, {words}");
    compared.then(|| (name.to_owned(), Verdict { badness, words }))
}
