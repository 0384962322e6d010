//! How results are shown: text that is safe anywhere, tables, pictures, and pages in one file.
//!
//! Pure functions of what they are given. What the results are, and where the text goes, is the
//! callers' affair.

#![forbid(unsafe_code)]

mod axis;
mod escape;
mod lines;
mod marks;
mod page;
mod terminal;

pub use axis::Axis;
pub use escape::Escaped;
pub use lines::{Line, Lines};
pub use marks::Mark;
pub use page::{Page, STYLE as PAGE_STYLE};
pub use terminal::{printable, table, trimmed};

/// Rules for the pictures of a page, which colours them where the page is dark.
pub const CHART_STYLE: &str = include_str!("chart.css");
