//! The lookups for which Valkey is asked: it is not where the id says that no machine of the cluster made the session.

use std::thread;
use std::time::Duration;

use openssl::ssl::SslSession;
use rejoin_testkit::machines::{Cluster, Plan};
use rejoin_testkit::site::{Client, Versions};

use super::sites::{STORED, mint};
use super::{Effort, Found};

pub(crate) const PROMISE: &str = "lookups that ask Valkey, for sessions from here (none), elsewhere (all) and another cluster (none)";

const PLAN: Plan = Plan { machines: 3, capacity: "4MiB", ..Plan::of_sessions("check-lookups") };

/// Sessions of four places, each presented once to the first machine: its own, another machine's, those of a machine whose
/// agent has ended, which nobody has, and those of a machine of no cluster.
pub(crate) fn asked(effort: Effort) -> Option<Found> {
    let each = if effort.quick { 50 } else { 500 };
    let mut cluster = Cluster::start(PLAN)?;
    let strange =
        Cluster::start(Plan { name: "check-strange", machines: 1, agents: false, ..PLAN })?;
    let isolated = cluster.machines.last_mut()?;
    isolated.stop_agent();
    isolated.wait_until("it is alone", |facts| !facts.is_linked);
    let [first, other, isolated] = &cluster.machines[..] else { return None };
    let asked = || first.facts().map_or(0, |facts| facts.asked);
    let places = [first, other, isolated, &strange.machines[0]];
    let [here, elsewhere, nowhere, of_others] = places.map(|place| {
        let address = place.site.address();
        let mut clients =
            [Versions::Tls12, Versions::Tls13].map(|versions| Client::new(address, versions));
        let sessions = mint(&mut clients, each);
        thread::sleep(STORED);
        let before = asked();
        let present = |(client, session): &(usize, SslSession)| {
            let client: &mut Client = &mut clients[*client];
            client.address = first.site.address();
            *client.session.lock().expect("no panic") = Some(session.clone());
            client.connect()
        };
        let resumed = sessions.iter().map(present).filter(|resumed| *resumed).count();
        thread::sleep(Duration::from_millis(100));
        Group { asked: asked() - before, resumed }
    });
    let groups = [here, elsewhere, nowhere, of_others];
    let lookups = (groups.len() * each) as u64;
    let all: u64 = groups.iter().map(|group| group.asked).sum();
    let percent = |count: u64| 100.0 * count as f64 / lookups as f64;
    let Group { asked: strange, .. } = of_others;
    let without = all - strange + each as u64;
    let figure = format!(
        "of {each} each: {here} from here, {elsewhere} from elsewhere, {nowhere} from nowhere, {of_others} from another \
         cluster; {:.0} % of all lookups, {:.0} % if ids said nothing",
        percent(all),
        percent(without),
    );
    let each = each as u64;
    let holds = here.asked == 0 && elsewhere.asked == each && nowhere.asked == each && strange == 0;
    Some(Found { figure, holds })
}

/// The lookups of the sessions from one place.
#[derive(Clone, Copy)]
struct Group {
    asked: u64,
    resumed: usize,
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { asked, resumed } = self;
        write!(f, "{asked} asked and {resumed} resumed")
    }
}
