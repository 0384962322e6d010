//! Workers of nginx killed under load, by the test kit.

use super::{Effort, Found};
use rejoin_testkit::killing::{Outcome, kill_workers};
use rejoin_testkit::site::Site;

/// Examples of each kind that are printed.
const EXAMPLES: usize = 5;

pub(crate) fn survived(Effort { soak_s, .. }: Effort) -> Option<Found> {
    let mut site = Site::new("kills");
    let outcome = kill_workers(&mut site, soak_s)?;
    let Outcome { unexplained, wrong, inconsistent, .. } = &outcome;
    for line in
        [unexplained, wrong, inconsistent].into_iter().flat_map(|of| of.iter().take(EXAMPLES))
    {
        println!("     {line}");
    }
    Some(Found { figure: figure(&outcome), holds: outcome.holds() })
}

fn figure(outcome: &Outcome) -> String {
    let (before, after) = outcome.master_kib;
    let emptied = outcome.facts.as_ref().map_or(0, |facts| facts.emptied);
    format!(
        "{} kills, {} connections, {} resumed; {} ended with their worker, {} went on beside a kill, \
         {} failed otherwise; {} wrong sessions; master {before} to {after} KiB; {} shards wrong, \
         {emptied} emptied",
        outcome.kills,
        outcome.connections,
        outcome.resumed,
        outcome.killed_with_worker,
        outcome.survived,
        outcome.unexplained.len(),
        outcome.wrong.len(),
        outcome.inconsistent.len(),
    )
}
