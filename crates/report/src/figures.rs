//! The tables of a page.

use std::fmt;

use crate::{Escaped, table};

/// A table that scrolls where it is too wide, below a heading of its own. The first cell of a row heads it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures<'a> {
    /// The heading.
    pub heading: &'a str,
    /// A paragraph below the heading, or nothing.
    pub about: &'a str,
    /// The places of columns that are text. The others are figures, and the first heads its row.
    pub text: &'a [usize],
    /// The heads of the columns.
    pub head: &'a [&'a str],
    /// The rows' cells.
    pub rows: &'a [Vec<String>],
}

impl fmt::Display for Figures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = Escaped(self.heading);
        writeln!(f, "<h2>{heading}</h2>")?;
        if !self.about.is_empty() {
            writeln!(f, "<p>{}</p>", Escaped(self.about))?;
        }
        write!(
            f,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{heading}\">\n<table>\n<thead><tr>"
        )?;
        for (at, head) in self.head.iter().enumerate() {
            let class = self.class(at);
            write!(f, "<th scope=\"col\"{class}>{}", Escaped(head))?;
        }
        f.write_str("</thead>\n<tbody>\n")?;
        for row in self.rows {
            for (at, cell) in row.iter().enumerate() {
                let (start, class) =
                    if at == 0 { ("<tr><th scope=\"row\"", "") } else { ("<td", self.class(at)) };
                write!(f, "{start}{class}>{}", Escaped(cell))?;
            }
            f.write_str("</tr>\n")?;
        }
        f.write_str("</tbody>\n</table>\n</div>\n")
    }
}

impl Figures<'_> {
    /// The first column is text in any page.
    fn class(&self, at: usize) -> &'static str {
        if at > 0 && self.text.contains(&at) { " class=\"text\"" } else { "" }
    }
}

/// A table with a title, for a terminal and for a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The title. What follows a colon stands below the heading of a page.
    pub title: String,
    /// The places of columns that are text.
    pub text: &'static [usize],
    /// The heads of the columns.
    pub head: Vec<String>,
    /// The rows' cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns the title and the table for a terminal.
    pub fn text(&self) -> String {
        format!("{}\n{}", self.title, table(self.text, &self.head, self.rows.clone()))
    }
}

/// The table for a page.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (heading, about) = self.title.split_once(": ").unwrap_or((&self.title, ""));
        let head: Vec<&str> = self.head.iter().map(String::as_str).collect();
        Figures { heading, about, text: self.text, head: &head, rows: &self.rows }.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_text() {
        let rows = [vec!["<a>".to_owned(), "1".to_owned()]];
        let figures = Figures {
            heading: "<h>",
            about: "",
            text: &[1],
            head: &["name", "count"],
            rows: &rows,
        };
        let html = figures.to_string();
        assert!(
            html.contains("<tr><th scope=\"row\">&lt;a&gt;<td class=\"text\">1</tr>"),
            "{html}"
        );
        assert!(html.contains("<h2>&lt;h&gt;</h2>"), "{html}");
        assert!(!html.contains("<p>"), "{html}");
    }

    #[test]
    fn a_table_is_for_terminals_and_for_pages() {
        let [title, head] = ["Table 1: bytes", "size"].map(str::to_owned);
        let table = Table { title, text: &[], head: vec![head], rows: vec![vec!["7".to_owned()]] };
        assert!(table.text().starts_with("Table 1: bytes\n size"), "{}", table.text());
        assert!(table.to_string().starts_with("<h2>Table 1</h2>\n<p>bytes</p>"), "{table}");
    }
}
