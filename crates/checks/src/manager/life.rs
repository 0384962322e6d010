//! The life of the manager, its limits, and programs that may not go everywhere: the tests.

use super::{Effort, Found};
use crate::frame::test;

/// The end of a manager, its reload and its successor, while programs download.
pub(crate) fn ends(_: Effort) -> Option<Found> {
    tests("rejoin-cli", "clients::life")
}

/// Users at their limits.
pub(crate) fn limits(_: Effort) -> Option<Found> {
    tests("rejoin-manager", "limits::")
}

/// Network namespaces and seccomp filters.
pub(crate) fn sandboxes(_: Effort) -> Option<Found> {
    tests("rejoin-manager", "sandboxes::")
}

fn tests(package: &str, name: &str) -> Option<Found> {
    let (figure, holds) = test(package, name)?;
    Some(Found { figure, holds })
}
