//! The table of programs in `docs/compat-clients.md`.

use std::collections::BTreeMap;
use std::fmt::Write;

use rejoin_testkit::clients::cases::{CASES, Way};
use rejoin_testkit::clients::document::{Part, is_blessed};
use rejoin_testkit::clients::matrix::Tried;

/// Compares the document with what was seen; `REJOIN_BLESS=1` writes it anew. What was not seen here, for
/// want of a program, is not compared.
pub(crate) fn check(results: &[Tried]) {
    let seen = rows(results);
    let written = written(&seen);
    if is_blessed() {
        return Part::Tasks.write(&written);
    }
    let table = Part::Tasks.read();
    let known: Vec<&str> = table.lines().collect();
    let missing: Vec<_> = written.lines().filter(|line| !known.contains(line)).collect();
    let how = "REJOIN_BLESS=1 writes it anew";
    assert!(
        missing.is_empty(),
        "docs/compat-clients.md is not what programs do; {how}\n{missing:#?}"
    );
}

/// A program's task and its result with each server.
type Rows = BTreeMap<usize, BTreeMap<&'static str, bool>>;

fn rows(results: &[Tried]) -> Rows {
    let mut rows = Rows::new();
    for tried in results {
        let at = CASES.iter().position(|case| std::ptr::eq(case, tried.case)).expect("a case");
        // Of both versions of TLS.
        *rows.entry(at).or_default().entry(tried.server).or_insert(true) &= tried.holds();
    }
    rows
}

fn written(rows: &Rows) -> String {
    let mut text =
        "| program | | connection | nginx | OpenSSL | rustls |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for (at, servers) in rows {
        let case = &CASES[*at];
        let way = match case.way {
            Way::Manager => "manager",
            Way::Directly(_) => "direct",
        };
        let cell = |server| match servers.get(server) {
            Some(true) => "same",
            Some(false) => "differs",
            None => "",
        };
        let cells = ["nginx", "OpenSSL", "rustls"].map(cell).join(" | ");
        let _ = writeln!(text, "| {} | {} | {way} | {cells} |", case.program, case.what);
    }
    text
}
