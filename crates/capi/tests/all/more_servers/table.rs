//! The second table of `docs/compat.md`, between two marks.

use std::fs;
use std::path::PathBuf;

use super::Seen;
use super::servers::Server;
use super::visits::{Both, Tally};

/// A server with some settings of Rejoin, and without it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) server: &'static Server,
    pub(crate) asks: bool,
    pub(crate) settings: &'static str,
    pub(crate) without: Seen,
    pub(crate) with: Seen,
}

const HEAD: [&str; 9] = [
    "server",
    "client certificates",
    "Rejoin's settings",
    "again",
    "second process",
    "restart",
    "another authority",
    "another certificate, or none",
    "why not",
];
const BEGIN: &str = "<!-- more servers -->";
const END: &str = "<!-- end of more servers -->";
/// The beginning of the line that is not compared.
const VERSIONS: &str = "Made with ";

impl Row {
    /// Returns the line of the table.
    pub(crate) fn line(&self) -> String {
        let settings = match self.settings {
            "" => "–".to_owned(),
            settings => format!("`{settings}`"),
        };
        let asked = if self.asks { "required" } else { "–" };
        let why = if self.gains() { "" } else { self.why() };
        let [again, second, restart, authority, others] = self.cells();
        let cells =
            [self.server.name, asked, &settings, &again, &second, &restart, &authority, &others];
        format!("| {} | {why} |", cells.join(" | "))
    }

    fn cells(&self) -> [String; 5] {
        let (without, with) = (&self.without, &self.with);
        let (authority, others) = match (without.asked, with.asked) {
            (Some(without), Some(with)) => {
                let [stranger, nobody] =
                    [cell(without.stranger, with.stranger), cell(without.nobody, with.nobody)];
                let both =
                    if stranger == nobody { nobody } else { format!("{stranger}; none: {nobody}") };
                (cell(without.distrusted, with.distrusted), both)
            }
            _ => ("–".to_owned(), "–".to_owned()),
        };
        [
            cell(without.again, with.again),
            either(without.second, with.second),
            either(without.restart, with.restart),
            authority,
            others,
        ]
    }

    fn why(&self) -> &'static str {
        self.server.why[usize::from(self.asks)]
    }

    /// Returns true if all sessions resume with Rejoin.
    fn gains(&self) -> bool {
        let with = &self.with;
        let all = [Some(with.again), with.second, with.restart];
        all.iter().flatten().flatten().all(|tally| tally.resumed == tally.visits)
    }

    /// Returns the cells that are worse with Rejoin than without it, and a missing reason.
    pub(crate) fn faults(&self) -> Vec<String> {
        let (without, with) = (&self.without, &self.with);
        let mut pairs = vec![("again", without.again, with.again)];
        let pair =
            |place, without: Option<Both>, with: Option<Both>| Some((place, without?, with?));
        pairs.extend(pair("second process", without.second, with.second));
        pairs.extend(pair("restart", without.restart, with.restart));
        // A session that resumes here is a client that was not checked again.
        let mut accepted = Vec::new();
        if let (Some(without), Some(with)) = (without.asked, with.asked) {
            accepted = vec![("another authority", without.distrusted, with.distrusted)];
            pairs.push(("another certificate", without.stranger, with.stranger));
            pairs.push(("no certificate", without.nobody, with.nobody));
        }
        let mut faults = Vec::new();
        let mut note = |is_so: bool, what: &str, where_: &str| {
            if is_so {
                faults.push(format!("{what} ({where_}): {}", self.line()));
            }
        };
        for (place, without, with) in pairs.iter().chain(&accepted) {
            let some = |is_so: fn(&Tally, &Tally) -> bool| {
                without.iter().zip(with).any(|(without, with)| is_so(without, with))
            };
            note(some(|without, with| with.refused > without.refused), "refuses more", place);
            note(some(|without, with| with.refused < without.refused), "accepts more", place);
            note(some(|without, with| with.resumed < without.resumed), "resumes less", place);
        }
        for (place, without, with) in &accepted {
            let more =
                without.iter().zip(with).any(|(without, with)| with.resumed > without.resumed);
            note(more, "accepts more", place);
        }
        note(!self.gains() && self.why().is_empty(), "no reason", "why not");
        faults
    }
}

/// Writes a cell: the outcome without and with Rejoin, for TLS 1.2 and TLS 1.3.
fn cell(without: Both, with: Both) -> String {
    let [tls12, tls13] = [0, 1].map(|at| format!("{} → {}", without[at].word(), with[at].word()));
    if tls12 == tls13 { tls12 } else { format!("1.2: {tls12}; 1.3: {tls13}") }
}

fn either(without: Option<Both>, with: Option<Both>) -> String {
    without.zip(with).map_or_else(|| "–".to_owned(), |(without, with)| cell(without, with))
}

pub(crate) fn write(rows: &[Row]) {
    let text = fs::read_to_string(path()).expect("the document");
    fs::write(path(), text.replace(part(&text), &made(rows))).expect("a file");
}

pub(crate) fn compare(rows: &[Row]) {
    let text = fs::read_to_string(path()).expect("the document");
    let made = made(rows);
    let (shown, made) = (compared(part(&text)), compared(&made));
    let difference = shown.iter().zip(&made).find(|(shown, made)| shown != made);
    assert!(
        difference.is_none() && shown.len() == made.len(),
        "docs/compat.md is not what servers do; REJOIN_BLESS=1 writes it anew\n{difference:#?}"
    );
}

/// Returns the part of the document between the marks, which the other test of the document keeps.
pub(crate) fn kept() -> String {
    part(&fs::read_to_string(path()).expect("the document")).to_owned()
}

fn part(text: &str) -> &str {
    let begin = text.find(BEGIN).expect("the mark of its beginning");
    let end = text.find(END).expect("the mark of its end");
    &text[begin..end + END.len()]
}

fn compared(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with(VERSIONS)).collect()
}

fn made(rows: &[Row]) -> String {
    let mut lines =
        vec![format!("| {} |", HEAD.join(" | ")), format!("|{}", "---|".repeat(HEAD.len()))];
    lines.extend(rows.iter().map(Row::line));
    let text = include_str!("more.md").replace("@TABLE@", &lines.join("\n"));
    let versions = format!("{VERSIONS}{}.", super::world::versions().join(", "));
    format!("{BEGIN}\n\n{}\n{END}", text.replace("@VERSIONS@", &versions))
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat.md")
}
