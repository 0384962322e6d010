//! The report: facts and findings, as text for a terminal, as JSON (by serde), and as a page.

mod cells;
mod page;
mod terminal;

use serde::Serialize;

use crate::facts::Facts;
use crate::findings::{Finding, findings};

/// Facts and what follows from them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// True if nothing stands in the way of resumption, as far as was examined.
    pub resumes: bool,
    /// The facts.
    #[serde(flatten)]
    pub facts: Facts,
    /// The findings, the heaviest first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Concludes from facts.
    pub fn new(facts: Facts) -> Self {
        let findings = findings(&facts);
        let resumes = !findings.iter().any(Finding::is_in_the_way);
        Self { resumes, facts, findings }
    }

    /// Returns the number of findings that stand in the way of resumption.
    pub fn in_the_way(&self) -> usize {
        self.findings.iter().filter(|finding| finding.is_in_the_way()).count()
    }

    /// Returns the report for a terminal of 80 columns.
    pub fn text(&self) -> String {
        terminal::text(self)
    }

    /// Returns the report as a page in one file.
    pub fn html(&self) -> String {
        page::html(self)
    }
}
