//! The report for a terminal.

use rejoin_report::{printable, table};

use super::Report;
use super::cells::{HEAD, crossings, heading, letter, lost, remarks, rows};
use crate::findings::Finding;

/// The columns of the terminal.
const COLUMNS: usize = 80;
/// The indent of mends: the longest name of a server, and the space around it.
const INDENT: usize = 15;

pub(super) fn text(report: &Report) -> String {
    let facts = &report.facts;
    let mut parts = vec![wrapped(&format!("{}: {}", facts.target, report.verdict()), 0)];
    let addresses = facts.addresses.iter();
    let addresses = addresses.map(|at| format!("{} is {}", letter(facts, at.address), at.address));
    let addresses = addresses.collect::<Vec<_>>().join(", ");
    parts.push(wrapped(&format!("{addresses}; {} connections", facts.connections), 0));
    parts.push(String::new());
    parts.push(table(&[0, 1, 2, 3, 4, 5, 6, 7, 8], HEAD, rows(facts)));
    let crossings = crossings(facts);
    if !crossings.is_empty() {
        parts.push(String::new());
        parts.extend(crossings.iter().map(|line| wrapped(line, 1)));
    }
    parts.push(String::new());
    parts.extend(remarks(facts).iter().map(|remark| wrapped(remark, 1)));
    parts.extend(report.findings.iter().map(|finding| format!("\n{}", of(finding))));
    parts.join("\n")
}

fn of(finding: &Finding) -> String {
    let mut lines = vec![wrapped(&heading(finding), 0)];
    lines.extend(finding.seen.iter().map(|seen| wrapped(&printable(seen), 2)));
    lines.extend(finding.losses.iter().map(|loss| wrapped(&lost(loss), 2)));
    for (server, mend) in finding.mends.into_iter().flat_map(|mends| mends.each()) {
        let text = wrapped(mend, INDENT);
        lines.push(format!("  {server:width$}{}", text.trim_start(), width = INDENT - 2));
    }
    lines.join("\n")
}

/// Breaks a text into lines of at most 80 columns, each with this indent.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or("", String::as_str);
        let width = indent + line.chars().count() + 1 + word.chars().count();
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if width <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let indent = " ".repeat(indent);
    lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_80_columns_at_most() {
        let text = "word ".repeat(100);
        let lines = wrapped(text.trim(), 15);
        assert!(
            lines.lines().all(|line| line.len() <= COLUMNS && line.starts_with(&" ".repeat(15)))
        );
        assert_eq!(lines.split_whitespace().count(), 100);
    }
}
