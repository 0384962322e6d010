//! The presentation of results: tables, charts and pages in one file, text that is safe anywhere, and statistics.
//!
//! All functions are pure. The callers choose the results and decide where the text goes.

#![forbid(unsafe_code)]

mod axis;
mod bars;
mod escape;
mod figures;
mod lines;
mod marks;
mod page;
mod statistics;
mod terminal;

pub use axis::Axis;
pub use bars::{Bar, Bars, Part};
pub use escape::Escaped;
pub use figures::{Figures, Table};
pub use lines::{Line, Lines};
pub use marks::Mark;
pub use page::{Page, STYLE as PAGE_STYLE};
pub use statistics::{distinct, median, median_time};
pub use terminal::{printable, table, trimmed};

/// Rules for pages with [`Lines`], which colour them where the page is dark.
pub const CHART_STYLE: &str = include_str!("chart.css");
/// Rules for pages with [`Bars`]: several pictures beside each other, and the key to their colours.
pub const BAR_STYLE: &str = include_str!("bars.css");
