//! nginx under load and four kinds of events, by the test kit.

use super::{Effort, Found};
use rejoin_testkit::killing::{Kind, Soaked, soak};
use rejoin_testkit::site::Site;

/// Examples of each kind that are printed.
const EXAMPLES: usize = 5;

pub(crate) fn survived(Effort { soak_s, .. }: Effort) -> Option<Found> {
    let mut site = Site::new("soak");
    let soaked = soak(&mut site, soak_s)?;
    for (kind, after) in Kind::ALL.iter().zip(&soaked.after) {
        println!(
            "     {kind:?}: {} times; {} connections failed; clients resumed after {:.2} s at most",
            after.events,
            after.failed,
            after.resumption.as_secs_f64()
        );
    }
    let Soaked { unexplained, wrong, inconsistent, .. } = &soaked;
    let lists = [unexplained, wrong, inconsistent];
    for line in lists.into_iter().flat_map(|of| of.iter().take(EXAMPLES)) {
        println!("     {line}");
    }
    Some(Found { figure: figure(&soaked), holds: soaked.holds() })
}

fn figure(soaked: &Soaked) -> String {
    let longest = soaked.after.iter().map(|after| after.resumption).max().unwrap_or_default();
    format!(
        "{} connections, {} resumed; {} ended with their killed worker, {} idle ones by a worker that finished, {} \
         failed otherwise; {} wrong sessions; {} shards wrong; {:.2} s",
        soaked.connections,
        soaked.resumed,
        soaked.killed_with_worker,
        soaked.finished,
        soaked.unexplained.len(),
        soaked.wrong.len(),
        soaked.inconsistent.len(),
        longest.as_secs_f64()
    )
}
