//! The sixteen rules: the manager's own tests, and rule 1 while the manager is killed.

use std::collections::BTreeSet;

use super::{Effort, Found};
use crate::frame::{cargo, test};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::programs::once::ask_at_once;

const RULES: u32 = 16;

pub(crate) fn all(_: Effort) -> Option<Found> {
    let (result, passed) = test("rejoin-manager", "rule")?;
    let listed = cargo("test")
        .args(["--package", "rejoin-manager", "--test", "all", "rule", "--", "--list"])
        .output();
    let listed = String::from_utf8(listed.ok()?.stdout).ok()?;
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let named: BTreeSet<u32> = names.flat_map(numbers).collect();
    let all_named = named.iter().copied().eq(1..=RULES);
    let figure = format!("{} of {RULES} rules are named; {result}", named.len());
    Some(Found { figure, holds: all_named && passed })
}

/// `…::rule_10_and_15_…`: 10 and 15.
fn numbers(test: &str) -> impl Iterator<Item = u32> {
    let words = test.split_once("rule_").map_or("", |(_, words)| words).split('_');
    words.take_while(|word| *word == "and" || word.len() == 2).filter_map(|word| word.parse().ok())
}

pub(crate) fn once(_: Effort) -> Option<Found> {
    let seen = ask_at_once(&mut Managed::start("check-once"));
    let figure = format!(
        "{} of {} tickets; {} of {} visits of {} programs resumed, {} broken off by the kill and made \
         again",
        seen.tickets - seen.different,
        seen.tickets,
        seen.resumed,
        seen.visits,
        seen.programs,
        seen.broken
    );
    Some(Found { figure, holds: seen.holds() })
}
