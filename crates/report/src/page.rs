//! The frame of a page: one file that makes no requests.

use std::fmt::{self, Display};

use crate::escape::Escaped;

/// The style of every page.
pub const STYLE: &str = include_str!("page.css");

/// A page in one file, light or dark as its reader prefers, for screen and paper. Nothing in it can
/// reach the network: its own policy forbids it.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a, B> {
    /// Its title and first heading, escaped here.
    pub title: &'a str,
    /// Rules that follow the frame's own.
    pub style: &'a str,
    /// The script at its end; the page must be complete without it.
    pub script: &'a str,
    /// The content below the heading, as HTML.
    pub body: B,
}

impl<B: Display> Display for Page<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { style, script, body, .. } = self;
        let title = Escaped(self.title);
        write!(
            f,
            r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{STYLE}{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}</main>
"#
        )?;
        if !script.is_empty() {
            write!(f, "<script>\n{script}</script>\n")?;
        }
        f.write_str("</body>\n</html>\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_text() {
        let page = Page { title: "<b>", style: "", script: "", body: "<p>x</p>\n" }.to_string();
        assert!(page.contains("<h1>&lt;b&gt;</h1>\n<p>x</p>\n</main>"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }
}
