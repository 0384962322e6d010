//! The table of figures of a page.

use std::fmt;

use crate::Escaped;

/// A table that scrolls where it is too wide, below a heading of its own. The first cell of a row heads it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures<'a> {
    /// A paragraph below the heading, or nothing.
    pub about: &'a str,
    /// The heads of the columns.
    pub head: &'a [&'a str],
    /// The rows' cells.
    pub rows: &'a [Vec<String>],
}

impl fmt::Display for Figures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<h2>Figures</h2>\n")?;
        if !self.about.is_empty() {
            writeln!(f, "<p>{}</p>", Escaped(self.about))?;
        }
        f.write_str(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures\">\n<table>\n<thead><tr>",
        )?;
        for head in self.head {
            write!(f, "<th scope=\"col\">{}", Escaped(head))?;
        }
        f.write_str("</thead>\n<tbody>\n")?;
        for row in self.rows {
            for (at, cell) in row.iter().enumerate() {
                let start = if at == 0 { "<tr><th scope=\"row\">" } else { "<td>" };
                write!(f, "{start}{}", Escaped(cell))?;
            }
            f.write_str("</tr>\n")?;
        }
        f.write_str("</tbody>\n</table>\n</div>\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_text() {
        let rows = [vec!["<a>".to_owned(), "1".to_owned()]];
        let html = Figures { about: "", head: &["name", "count"], rows: &rows }.to_string();
        assert!(html.contains("<tr><th scope=\"row\">&lt;a&gt;<td>1</tr>"), "{html}");
        assert!(!html.contains("<p>"), "{html}");
    }
}
