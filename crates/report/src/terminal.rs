//! Tables and text for a terminal.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

/// The only line, below the heads.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Returns a table with a line below its heads. The columns at the places `text` are text, the others figures.
pub fn table(
    text: &[usize],
    head: impl IntoIterator<Item = impl Into<String>>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    let head: Vec<String> = head.into_iter().map(Into::into).collect();
    table.load_style(STYLE).set_header(head);
    for row in rows {
        table.add_row(row);
    }
    for (_, figures) in table.column_iter_mut().enumerate().filter(|(at, _)| !text.contains(at)) {
        figures.set_cell_alignment(CellAlignment::Right);
    }
    trimmed(&table.to_string())
}

/// Removes padding at the ends of lines.
pub fn trimmed(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Replaces characters that command the terminal or disguise a text: control characters, marks of direction,
/// separators and characters without width.
pub fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => false,
        c => !c.is_control(),
    };
    text.chars().map(|c| if shown(c) { c } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_right() {
        let rows = [vec!["lru".to_owned(), "7".to_owned()]];
        let lines = table(&[0], ["policy", "sessions"], rows);
        assert_eq!(lines.lines().last().map(|line| line.ends_with('7')), Some(true), "{lines}");
    }

    #[test]
    fn nothing_commands_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(printable("moc.\u{202e}elpmaxe"), "moc.\u{fffd}elpmaxe");
    }
}
