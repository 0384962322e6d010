//! How results are shown: text that is safe anywhere, tables, and pages in one file.
//!
//! Pure functions of what they are given. What the results are, and where the text goes, is the
//! callers' affair.

#![forbid(unsafe_code)]

mod escape;
mod page;
mod terminal;

pub use escape::Escaped;
pub use page::Page;
pub use terminal::{printable, table, trimmed};
