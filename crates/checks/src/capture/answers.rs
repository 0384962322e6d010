//! The handshakes that `rejoin capture --list --json` finds, compared with a second tool's answers.

use std::path::Path;

use serde_json::Value;

use super::{Effort, Found, rejoin};
use rejoin_testkit::capture_answers::{Comparison, answers, compare};
use rejoin_testkit::serve::scratch;

pub(crate) fn found(Effort { captures, .. }: Effort) -> Option<Found> {
    let Comparison { wanted, missing, .. } = comparison(captures)?;
    Some(share(wanted, missing, ""))
}

pub(crate) fn equal(Effort { captures, .. }: Effort) -> Option<Found> {
    let Comparison { wanted, missing, worst: (field, differing), .. } = comparison(captures)?;
    Some(share(wanted - missing, differing, field))
}

fn share(of: usize, without: usize, what: &str) -> Found {
    let percent = 100.0 * (of - without) as f64 / of.max(1) as f64;
    let figure = format!("{percent:.2} % ({} of {of}) {what}", of - without);
    Found { figure: figure.trim_end().to_owned(), holds: percent >= 99.7 }
}

fn comparison(captures: &Path) -> Option<Comparison> {
    let wanted = answers(captures)?;
    let files = captures.join("files");
    let list = rejoin(&["capture", "--list", "--json", files.to_str()?]);
    let list = String::from_utf8(list).ok()?;
    let found: Vec<Value> =
        list.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let compared = compare(&wanted.iter().collect::<Vec<_>>(), &found.iter().collect::<Vec<_>>());
    let report = scratch("check-capture").join("differences.txt");
    std::fs::write(report, &compared.report).ok()?;
    Some(compared)
}
