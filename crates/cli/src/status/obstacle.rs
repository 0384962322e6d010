//! An obstacle, and its mend.

use std::fmt;

/// A reason for which nothing is attached, or for which less resumes than could.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Obstacle {
    why: String,
    /// The line that mends it.
    pub(crate) mend: String,
}

impl Obstacle {
    pub(super) fn new(why: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { why: why.into(), mend: mend.into() }
    }
}

/// Writes the reason alone.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}
