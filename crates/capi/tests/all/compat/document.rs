//! `docs/compat.md`: a text with tables in it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::servers::{SERVERS, Server, UNREACHED};
use crate::more_servers;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Module,
    Preload,
    Pair,
    Unreached,
}

/// A row of a table, which begins with a server's name.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) table: Table,
    pub(crate) name: &'static str,
    pub(crate) cells: Vec<String>,
}

impl Table {
    const ALL: [Self; 4] = [Self::Module, Self::Preload, Self::Pair, Self::Unreached];

    fn place(self) -> &'static str {
        match self {
            Self::Module => "@MODULE@",
            Self::Preload => "@PRELOAD@",
            Self::Pair => "@PAIR@",
            Self::Unreached => "@UNREACHED@",
        }
    }

    fn head(self) -> &'static [&'static str] {
        match self {
            Self::Module | Self::Preload => &[
                "server",
                "stateless tickets",
                "another process",
                "after a reload",
                "after a restart",
            ],
            Self::Pair => &["server", "stateless tickets", "at the other"],
            Self::Unreached => {
                &["program", "by", "the same process", "after a restart", "sessions stored"]
            }
        }
    }
}

pub(crate) struct Document {
    rows: Vec<Row>,
}

/// The beginning of the line that is not compared.
const VERSIONS: &str = "Made with ";

impl Document {
    pub(crate) fn new(mut rows: Vec<Row>) -> Self {
        let place = |row: &Row| all_servers().position(|server| server.name == row.name);
        // Stable: the rows of a server stay in their order.
        rows.sort_by_key(place);
        Self { rows }
    }

    pub(crate) fn write(&self) {
        let absent: Vec<_> = self.absent().map(|server| server.name).collect();
        assert!(absent.is_empty(), "install first, for the document has them: {absent:?}");
        fs::write(path(), self.text()).expect("a file");
    }

    pub(crate) fn compare(&self) {
        let shown = fs::read_to_string(path()).expect("the document");
        let (shown, made) = (self.compared(&shown), self.text());
        let made = self.compared(&made);
        let difference = shown.iter().zip(&made).find(|(shown, made)| shown != made);
        assert!(
            difference.is_none() && shown.len() == made.len(),
            "docs/compat.md is not what servers do; REJOIN_BLESS=1 writes it anew\n{difference:#?}"
        );
    }

    /// Returns the lines without the versions and the rows that were not measured.
    fn compared<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let is_absent = |line: &str| {
            self.absent().any(|server| line.starts_with(&format!("| {} |", server.name)))
        };
        text.lines().filter(|line| !line.starts_with(VERSIONS) && !is_absent(line)).collect()
    }

    fn absent(&self) -> impl Iterator<Item = &'static Server> {
        all_servers().filter(|server| self.rows.iter().all(|row| row.name != server.name))
    }

    fn text(&self) -> String {
        let text = include_str!("document.md").replace("@VERSIONS@", &versions());
        let text = text.replace("@MORE@", &more_servers::table::kept());
        Table::ALL.iter().fold(text, |text, table| text.replace(table.place(), &self.table(*table)))
    }

    fn table(&self, table: Table) -> String {
        let line = |cells: &[&str]| format!("| {} |", cells.join(" | "));
        let head = table.head();
        let mut lines = vec![line(head), format!("|{}", "---|".repeat(head.len()))];
        for row in self.rows.iter().filter(|row| row.table == table) {
            let cells = row.cells.iter().map(String::as_str);
            lines.push(line(&[row.name].into_iter().chain(cells).collect::<Vec<_>>()));
        }
        lines.join("\n")
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat.md")
}

fn all_servers() -> impl Iterator<Item = &'static Server> {
    SERVERS.iter().chain(&UNREACHED)
}

/// Returns the versions that the programs report.
fn versions() -> String {
    let mut versions: Vec<_> = all_servers().filter_map(version).collect();
    versions.dedup();
    format!("{VERSIONS}{}.", versions.join(", "))
}

fn version(server: &Server) -> Option<String> {
    let [program, arguments @ ..] = server.version else { return None };
    let said = Command::new(program).args(arguments).output().ok()?;
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let number = said.split(|at: char| !(at.is_ascii_digit() || at == '.'));
    let number =
        number.map(|number| number.trim_matches('.')).find(|number| number.contains('.'))?;
    Some(format!("{} {number}", server.software))
}
