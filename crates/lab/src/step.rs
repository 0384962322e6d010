//! How far a measurement is.

/// What is on the way to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Parts of the measurement that are over.
    pub done: usize,
    /// How many there are.
    pub of: usize,
    /// What is measured now.
    pub what: String,
}
