//! The cells as tables of the document, and as counts.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::faults::{Fault, TABLES, Table};
use super::programs::{PROGRAMS, Program};
use super::visits::Unlike;
use super::{Cell, Verdict};
use crate::clients::document::Part;
use crate::stacks::Tls;

/// Cells by their verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub same: usize,
    pub direct: usize,
    pub unlike: usize,
    pub differ: usize,
}

impl Counts {
    pub fn of(cells: &[Cell]) -> Self {
        let mut counts = Self::default();
        for cell in cells {
            *match cell.verdict {
                Verdict::Same => &mut counts.same,
                Verdict::Direct => &mut counts.direct,
                Verdict::Unlike(_) => &mut counts.unlike,
                Verdict::Differs(_) => &mut counts.differ,
            } += 1;
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { same, direct, unlike, differ } = self;
        let all = same + direct + unlike + differ;
        write!(formatter, "{all} cells: {same} are the same, {direct} the same and direct, ")?;
        write!(formatter, "{unlike} the same for the program alone, {differ} differ")
    }
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Direct => "direct",
            Self::Unlike(Unlike::Twice) => "same a",
            Self::Unlike(Unlike::NoAlert) => "same b",
            Self::Unlike(Unlike::End) => "same c",
            Self::Unlike(Unlike::Held) => "same d",
            Self::Unlike(Unlike::Asked) | Self::Differs(_) => "**differs**",
        }
    }
}

/// Words of a document's row, by column.
type Row<'a> = BTreeMap<usize, [Option<&'a Verdict>; 2]>;

/// Returns the word of a cell that both versions of TLS have in common, or one for each.
fn word(verdicts: [Option<&Verdict>; 2]) -> String {
    match verdicts.map(|verdict| verdict.map(Verdict::word)) {
        [Some(one), Some(other)] if one != other => format!("1.2: {one}; 1.3: {other}"),
        [Some(word), _] | [None, Some(word)] => word.to_owned(),
        [None, None] => String::new(),
    }
}

/// Splits a word of the document by version of TLS.
fn by_version(word: &str) -> [&str; 2] {
    let both = word.strip_prefix("1.2: ").and_then(|word| word.split_once("; 1.3: "));
    both.map_or([word; 2], |(one, other)| [one, other])
}

/// Returns true if a cell is as the document says, or better.
fn is_promised(verdicts: [Option<&Verdict>; 2], documented: &str) -> bool {
    verdicts.iter().zip(by_version(documented)).all(|(verdict, documented)| {
        let Some(verdict) = verdict else { return true };
        let seen = verdict.word();
        // What is not documented must not differ.
        documented.is_empty() && !seen.contains("differs")
            || documented
                .split(" or ")
                .any(|word| seen == word || seen == "same" && word.starts_with(seen))
    })
}

fn row<'a>(cells: &'a [Cell], table: &Table, program: &Program) -> Row<'a> {
    let mut row = Row::new();
    let of = |cell: &&Cell| std::ptr::eq(cell.table, table) && std::ptr::eq(cell.program, program);
    for cell in cells.iter().filter(of) {
        let at = usize::from(cell.tls == Tls::V13);
        row.entry(cell.column).or_default()[at] = Some(&cell.verdict);
    }
    row
}

/// Writes the document's tables. Rows of programs that were not tried stay.
pub fn bless(cells: &[Cell]) {
    let document = Part::Faults.read();
    let (mut tables, mut words) = (String::new(), Vec::new());
    for table in TABLES {
        let known = known(&document, table);
        let _ = write!(tables, "\n{}:\n\n{}\n", table.title, head(table));
        for program in PROGRAMS {
            let row = row(cells, table, program);
            let before = known.get(program.name);
            let cell = |column| {
                let verdicts = row.get(&column).copied().unwrap_or_default();
                let chance = before.map(|words| &words[column]);
                let chance =
                    chance.filter(|word| word.contains(" or ") && is_promised(verdicts, word));
                chance.cloned().unwrap_or_else(|| word(verdicts))
            };
            let seen = (0..table.columns.len()).map(cell).collect();
            let seen = if row.is_empty() { known.get(program.name).cloned() } else { Some(seen) };
            let Some(seen) = seen else { continue };
            let _ = writeln!(tables, "| {} | {} |", program.name, seen.join(" | "));
            words.extend(seen);
        }
    }
    let is_tried = |line: &str| {
        cells.iter().any(|cell| line.starts_with(&format!("- {}: ", cell.program.name)))
    };
    let kept = document.lines().filter(|line| line.starts_with("- ") && !is_tried(line));
    let mut lines: Vec<_> = kept.map(|line| format!("{line}\n")).collect();
    lines.extend(cells.iter().filter_map(told));
    lines.sort();
    // Of both versions of TLS.
    lines.dedup();
    let counts = counted(&words);
    let heading = if lines.is_empty() { "" } else { "\nWhat differs:\n\n" };
    Part::Faults.write(&format!("{counts}.\n{tables}{heading}{}", lines.concat()));
}

/// The words of a document's table, by program.
fn known<'a>(document: &'a str, table: &Table) -> BTreeMap<&'a str, Vec<String>> {
    let part = document.split(&format!("\n{}:\n", table.title)).nth(1).unwrap_or_default();
    let lines = part.trim_start().lines().take_while(|line| line.starts_with('|'));
    let rows =
        lines.filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|')?.split_once(" |"));
    let words = |cells: &str| cells.split('|').map(|word| word.trim().to_owned()).collect();
    let rows = rows.map(|(program, cells)| (program, words(cells)));
    rows.filter(|(_, cells): &(_, Vec<_>)| cells.len() == table.columns.len()).collect()
}

/// Counts the cells of both versions of TLS.
fn counted(words: &[String]) -> Counts {
    let mut counts = Counts::default();
    for word in words.iter().filter(|word| !word.is_empty()) {
        let both: Vec<_> = word.split("; ").collect();
        for word in &both {
            let word = word.trim_start_matches("1.2: ").trim_start_matches("1.3: ");
            // The better one is first.
            let worst = word.split(" or ").last().unwrap_or(word);
            *match worst {
                "same" => &mut counts.same,
                "direct" => &mut counts.direct,
                word if word.starts_with("same ") => &mut counts.unlike,
                _ => &mut counts.differ,
            } += 2 / both.len();
        }
    }
    counts
}

fn head(table: &Table) -> String {
    let names = table.columns.iter().map(|(name, _)| format!(" {name} |"));
    format!("| program |{}\n|---|{}", names.collect::<String>(), "---|".repeat(table.columns.len()))
}

/// The line that says how a cell differs, and why.
fn told(cell: &Cell) -> Option<String> {
    let Verdict::Differs(difference) = &cell.verdict else { return None };
    let (column, _) = cell.table.columns[cell.column];
    let shown: String = difference.chars().take(160).collect();
    let shown = shown.replace(['\n', '|'], " ");
    Some(format!("- {}: {column}: {}.\n", cell.program.name, shown.trim()))
}

/// A cell of a table for both versions of TLS that is worse than the document says: what is the same there differs, goes
/// another way, or looks otherwise to the server.
#[derive(Debug)]
pub struct Worse {
    program: &'static Program,
    table: &'static Table,
    column: usize,
    seen: String,
    documented: String,
}

impl Worse {
    /// Returns true if it is a cell of this program, table and fault.
    pub fn is(&self, program: &Program, table: &Table, fault: Fault) -> bool {
        std::ptr::eq(self.program, program)
            && std::ptr::eq(self.table, table)
            && self.table.columns[self.column].1 == fault
    }
}

impl fmt::Display for Worse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (column, _) = self.table.columns[self.column];
        let Self { program, seen, documented, .. } = self;
        write!(formatter, "{}, {column}: {seen}, documented: {documented:?}", program.name)
    }
}

/// Finds the cells that are worse than the document says.
pub fn worse(cells: &[Cell]) -> Vec<Worse> {
    let document = Part::Faults.read();
    let mut worse = Vec::new();
    for table in TABLES {
        let all = known(&document, table);
        for program in PROGRAMS {
            let words = all.get(program.name);
            for (column, verdicts) in row(cells, table, program) {
                let documented = words.map_or("", |words| &words[column]).to_owned();
                if !is_promised(verdicts, &documented) {
                    let seen = word(verdicts);
                    worse.push(Worse { program, table, column, seen, documented });
                }
            }
        }
    }
    worse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_promised_for_each_version_and_may_be_chance() {
        use Verdict::{Differs, Direct, Same};
        let end = Verdict::Unlike(Unlike::End);
        let differs = Differs(String::new());
        let is = |one, other, documented| is_promised([Some(one), Some(other)], documented);
        assert!(is(&Same, &end, "same c"));
        assert!(is(&Same, &Direct, "1.2: same; 1.3: direct"));
        assert!(!is(&Direct, &Same, "1.2: same; 1.3: direct"));
        assert!(!is(&Direct, &Direct, "same c"));
        assert!(is(&Direct, &end, "direct or same c"));
        assert!(!is(&end, &end, "1.2: direct or same c; 1.3: direct"));
        assert!(!is(&Same, &differs, "same") && !is(&differs, &Same, ""));
        assert!(is(&end, &Direct, ""));
    }
}
