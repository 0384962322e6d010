//! `docs/client-certificates.md`: a text, and a table for each group of situations.

use std::fs;
use std::path::PathBuf;

use super::situations::Group;

/// A situation, its group and its place there, its cells, one for each way, and what the client sees after others.
pub(crate) struct Row {
    pub(crate) place: [usize; 2],
    pub(crate) name: &'static str,
    pub(crate) new: String,
    pub(crate) cells: [String; 4],
    pub(crate) after: [String; 4],
}

pub(crate) struct Page<'a> {
    groups: &'a [Group],
    rows: Vec<Row>,
}

const HEAD: &str = "\
| changed | a new client | 1.2, tickets | 1.2, cache | 1.3, tickets | 1.3, cache | another client comes in between |
|---|---|---|---|---|---|---|";

impl<'a> Page<'a> {
    pub(crate) fn new(groups: &'a [Group], mut rows: Vec<Row>) -> Self {
        rows.sort_by_key(|row| row.place);
        Self { groups, rows }
    }

    pub(crate) fn write_or_compare(&self) {
        let text = self.text();
        if std::env::var_os("REJOIN_BLESS").is_some() {
            return fs::write(path(), text).expect("a file");
        }
        let shown = fs::read_to_string(path()).expect("the page");
        let differs = shown.lines().zip(text.lines()).find(|(shown, made)| shown != made);
        assert!(
            shown == text,
            "docs/client-certificates.md is not what happens; REJOIN_BLESS=1 writes it anew\n{differs:#?}"
        );
    }

    fn text(&self) -> String {
        let tables = self.groups.iter().enumerate().map(|(at, group)| self.table(at, group));
        include_str!("page.md").replace("@TABLES@", &tables.collect::<Vec<_>>().join("\n\n"))
    }

    fn table(&self, at: usize, group: &Group) -> String {
        let rows = self.rows.iter().filter(|row| row.place[0] == at);
        let line = |Row { name, new, cells, after, .. }: &Row| {
            format!("| {name} | {new} | {} | {} |", cells.join(" | "), joined(after))
        };
        let lines: Vec<_> = rows.map(line).collect();
        format!("## {}\n\n{}\n\n{HEAD}\n{}", group.name, group.text, lines.join("\n"))
    }
}

/// Returns cells as one: the same word once, or one for tickets and one for the cache, or all.
fn joined(cells: &[String; 4]) -> String {
    let [tickets, cache, ..] = cells;
    match cells {
        [_, second, third, fourth] if [second, third, fourth].iter().all(|it| *it == tickets) => {
            tickets.clone()
        }
        [_, _, third, fourth] if third == tickets && fourth == cache => {
            format!("{tickets} / {cache}")
        }
        cells => cells.join(" / "),
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/client-certificates.md")
}
