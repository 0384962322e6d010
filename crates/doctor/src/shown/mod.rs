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
    /// True if sessions resume: over each version that an address speaks, by one way at least, always. `None`: that is not
    /// known.
    pub resumes: Option<bool>,
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
        let is_in_the_way = findings.iter().any(Finding::is_in_the_way);
        let resumes = if is_in_the_way { Some(false) } else { facts.all_resume().then_some(true) };
        Self { resumes, facts, findings }
    }

    /// Returns the verdict in a few words.
    pub fn verdict(&self) -> String {
        let in_the_way = self.findings.iter().filter(|finding| finding.is_in_the_way()).count();
        match (self.resumes, in_the_way) {
            (Some(true), _) => "sessions resume".to_owned(),
            (None, _) => "whether sessions resume is not known".to_owned(),
            (_, 1) => "1 thing stands in the way of resumption".to_owned(),
            (_, count) => format!("{count} things stand in the way of resumption"),
        }
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
