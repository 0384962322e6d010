//! The machines of all sites of a cluster, by their own reports, and what is wrong with each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rejoin_tickets::CLOCKS_APART_S;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::agent::unix_ms;
use crate::{
    ClusterName, ClusterSecret, Error, Link, Listed, MachineName, Machines, Report, SiteName, Sites,
};

/// The machines of a cluster.
#[derive(Debug, Default)]
pub struct Census {
    /// The machines, each once, by site and name.
    pub machines: Vec<Seen>,
    /// The values in all sites that are no report: see [`Listed::unopened`].
    pub unopened: usize,
    /// The sites that could not be read, each with the reason. `None` is the own site, or the only one.
    pub unread: Vec<(Option<SiteName>, Error)>,
}

/// A machine as it was seen last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its report.
    pub report: Report,
    /// The time since its site's Valkey got the report, in milliseconds.
    pub ago_ms: u64,
    /// The time by which its clock is ahead of this machine's, in milliseconds; negative if it is behind. An old report that
    /// was put back says the same as a clock that is behind.
    pub clock_ahead_ms: i64,
}

type ByName = BTreeMap<(Option<SiteName>, MachineName), Seen>;

/// Something that is wrong with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It has not reported for [`Seen::SILENT_AFTER`], so nothing else is known of it.
    Silent,
    /// Its clock differs from this machine's by more than servers' clocks may, or its report is an old one.
    Clock,
    /// Its ring is older than the cluster's.
    Behind,
    /// It does not reach the home of the ring.
    NoHome,
    /// Two agents report under its name.
    SharedName,
    /// Its Valkey answers, and refuses to store sessions or to find them.
    Refused,
}

impl Census {
    /// The time limit for each site.
    const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

    /// Asks the Valkeys of all sites, at once: the own one by this link, and the others by new ones.
    pub async fn take(
        name: &ClusterName,
        secret: &ClusterSecret,
        sites: &Sites,
        mut own: Link,
    ) -> Self {
        let machines = Arc::new(Machines::new(name, secret));
        let mut asked = JoinSet::new();
        for site in sites.others() {
            let (site, machines) = (site.clone(), Arc::clone(&machines));
            asked.spawn(async move {
                let listed = in_time(async {
                    let mut link = Link::connect(&site.servers).await?;
                    machines.read(&mut link).await
                });
                (listed.await, site.name)
            });
        }
        let (mut census, mut machines_of_all) = (Self::default(), ByName::default());
        let listed = in_time(machines.read(&mut own)).await;
        census.add(listed, None, &mut machines_of_all);
        while let Some(joined) = asked.join_next().await {
            let (listed, site) = joined.expect("it does not panic, and nobody ends it");
            census.add(listed, Some(site), &mut machines_of_all);
        }
        census.machines = machines_of_all.into_values().collect();
        census
    }

    fn add(
        &mut self,
        listed: Result<Listed, Error>,
        site: Option<SiteName>,
        machines: &mut ByName,
    ) {
        let Listed { reports, unopened } = match listed {
            Ok(listed) => listed,
            Err(error) => return self.unread.push((site, error)),
        };
        self.unopened += unopened;
        let now_ms = unix_ms();
        for (report, ago_ms) in reports {
            let seen = Seen::new(report, ago_ms, now_ms);
            let name = (seen.report.site.clone(), seen.report.machine.clone());
            // A report may have been copied to another site.
            let is_later = |of: &Seen| of.report.at_ms >= seen.report.at_ms;
            if !machines.get(&name).is_some_and(is_later) {
                machines.insert(name, seen);
            }
        }
    }
}

impl Seen {
    /// The time without a report after which a machine counts as silent: agents report every ten seconds.
    pub const SILENT_AFTER: Duration = Duration::from_secs(30);

    fn new(report: Report, ago_ms: u64, now_ms: u64) -> Self {
        let ahead_ms = i128::from(report.at_ms) + i128::from(ago_ms) - i128::from(now_ms);
        let clock_ahead_ms = i64::try_from(ahead_ms).unwrap_or(i64::MAX);
        Self { report, ago_ms, clock_ahead_ms }
    }

    /// Returns what is wrong with it in a cluster whose ring has this version.
    pub fn problems(&self, ring_version: u64) -> Vec<Problem> {
        if u128::from(self.ago_ms) > Self::SILENT_AFTER.as_millis() {
            return vec![Problem::Silent];
        }
        let Report { is_home_linked, is_name_shared, is_refused, .. } = self.report;
        let found = [
            (self.clock_ahead_ms.unsigned_abs() > CLOCKS_APART_S * 1_000, Problem::Clock),
            (self.lag(ring_version) > 0, Problem::Behind),
            (is_home_linked == Some(false), Problem::NoHome),
            (is_name_shared, Problem::SharedName),
            (is_refused, Problem::Refused),
        ];
        found.into_iter().filter_map(|(is_so, problem)| is_so.then_some(problem)).collect()
    }

    /// Returns the number of versions by which its ring is older than the cluster's, if that has this version.
    pub fn lag(&self, ring_version: u64) -> u64 {
        ring_version.saturating_sub(self.report.ring_version)
    }
}

async fn in_time(read: impl Future<Output = Result<Listed, Error>>) -> Result<Listed, Error> {
    timeout(Census::ANSWERS_WITHIN, read).await.unwrap_or(Err(Error::NoAnswer))
}
