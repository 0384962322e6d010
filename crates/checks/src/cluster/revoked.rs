//! Every order in which Valkey and two agents may restart after a ticket key was revoked, where Valkey comes back with what
//! it had before, or with nothing: the key must not come back to any machine.

use std::fmt;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rejoin_store::Store;
use rejoin_testkit::machines::{Cluster, NGINX, Plan};

use super::faults::until;
use super::ring::{change, keys};
use super::{Effort, Found};

const MACHINES: usize = 2;
/// Agents read the ring every second.
const LOOK: Duration = Duration::from_millis(1_500);
/// Looks until all have settled.
const SETTLES: usize = 4;
/// The time within which machines begin with new keys where none has any: for half a minute they let others put the last ones
/// back.
const BEGIN_WITHIN: Duration = Duration::from_secs(40);
const STEP: Duration = Duration::from_millis(20);

/// The part that restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Valkey,
    Agent(usize),
}

/// The way in which they restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One after the other.
    InTurn,
    /// All end, and start again one after the other.
    AtOnce,
}

/// The ring with which Valkey comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Back {
    /// The one from before the key was revoked.
    Older,
    Nothing,
}

/// The machines that have lost their caches, as machines do that restart; they keep what is beside the key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    None,
    First,
    Both,
}

struct Order {
    way: Way,
    parts: [Part; 3],
    back: Back,
    lost: Lost,
}

/// The end of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// All machines have the keys that were left.
    AsItWas,
    /// Nobody had them any more, and Valkey had none: there are new keys.
    NewKeys,
    /// Nobody has them any more, and the older ring is refused.
    Refused,
}

pub(crate) fn orders(effort: Effort) -> Option<Found> {
    let mut cluster = start()?;
    let (mut ends, mut wrong) = (Vec::new(), 0);
    for order in all(effort) {
        let end = play(&mut cluster, &order);
        let told = match &end {
            Ok(end) => end.to_string(),
            Err(why) => {
                wrong += 1;
                why.clone()
            }
        };
        println!("     {order}: {told}");
        ends.push(end);
    }
    let count = |expected: End| ends.iter().filter(|end| **end == Ok(expected)).count();
    let figure = format!(
        "{} orders; {wrong} wrong; after {} all had the ring, after {} new keys, after {} none until somebody decides",
        ends.len(),
        count(End::AsItWas),
        count(End::NewKeys),
        count(End::Refused)
    );
    Some(Found { figure, holds: wrong == 0 })
}

fn all(effort: Effort) -> Vec<Order> {
    use Part::{Agent, Valkey};
    const PARTS: [[Part; 3]; 6] = [
        [Valkey, Agent(0), Agent(1)],
        [Valkey, Agent(1), Agent(0)],
        [Agent(0), Valkey, Agent(1)],
        [Agent(1), Valkey, Agent(0)],
        [Agent(0), Agent(1), Valkey],
        [Agent(1), Agent(0), Valkey],
    ];
    let backs: &[Back] = if effort.quick { &[Back::Older] } else { &[Back::Older, Back::Nothing] };
    let mut orders = Vec::new();
    for way in [Way::InTurn, Way::AtOnce] {
        let losts: &[Lost] = match (effort.quick, way) {
            (true, _) => &[Lost::First],
            (false, Way::InTurn) => &[Lost::None, Lost::First],
            (false, Way::AtOnce) => &[Lost::None, Lost::First, Lost::Both],
        };
        for back in backs {
            for lost in losts {
                let order = |parts| Order { way, parts, back: *back, lost: *lost };
                orders.extend(PARTS.map(order));
            }
        }
    }
    orders
}

fn start() -> Option<Cluster> {
    Cluster::start(Plan {
        name: "check-revoked",
        servers: &[NGINX],
        machines: MACHINES,
        tickets: true,
        agents: true,
        capacity: "1MiB",
        deadline_ms: None,
    })
}

/// Revokes a key, restarts all in this order, and watches what the machines have.
fn play(cluster: &mut Cluster, order: &Order) -> Result<End, String> {
    let leaked = leak(cluster)?;
    let left = keys(&cluster.machines[0]);
    match order.way {
        Way::InTurn => {
            for part in order.parts {
                stop(cluster, part, order);
                begin(cluster, part)?;
                watch(cluster, &leaked, LOOK)?;
            }
        }
        Way::AtOnce => {
            for part in order.parts {
                stop(cluster, part, order);
            }
            for part in order.parts {
                begin(cluster, part)?;
                watch(cluster, &leaked, LOOK)?;
            }
        }
    }
    let seen = |machine| keys(&cluster.machines[machine]);
    for _ in 0..SETTLES {
        if [seen(0), seen(1)] == [&left, &left].map(Clone::clone) {
            break;
        }
        watch(cluster, &leaked, LOOK)?;
    }
    let end = match [seen(0), seen(1)] {
        [one, other] if one == left && other == left => End::AsItWas,
        [one, other] if one.is_empty() && other.is_empty() => begin_anew(cluster, order, &leaked)?,
        [one, other] if one == other => End::NewKeys,
        [one, other] => {
            return Err(format!("machines differ: {one:?} and {other:?}, not {left:?}"));
        }
    };
    // A machine that lost its ring, and finds none in Valkey, makes another.
    match end == End::AsItWas || order.lost != Lost::None {
        true => Ok(end),
        false => Err(format!("{end}, although all machines had the ring")),
    }
}

/// Makes a key, lets Valkey write its memory to a file, and revokes the key before. Returns that.
fn leak(cluster: &Cluster) -> Result<String, String> {
    let [first, second] = &cluster.machines[..] else { return Err("not two".to_owned()) };
    until("the same keys", || !keys(first).is_empty() && keys(first) == keys(second))?;
    let leaked = keys(first).pop().ok_or("no key")?;
    // After a ring was put back, nobody makes a key for half a minute.
    cluster.ask_valkey(&["DEL", "rejoin:{web}:lease"]);
    change(first, "rotate", &[])?;
    let saved = cluster.ask_valkey(&["SAVE"]);
    if saved.trim() != "OK" {
        return Err(saved);
    }
    change(first, "revoke", &[&leaked])?;
    let is_gone = || [first, second].iter().all(|machine| !keys(machine).contains(&leaked));
    until("it is gone from both", is_gone)?;
    until("the same keys", || keys(first) == keys(second))?;
    Ok(leaked)
}

fn stop(cluster: &mut Cluster, part: Part, order: &Order) {
    match part {
        Part::Valkey => {
            cluster.stop_valkey();
            if order.back == Back::Nothing {
                let _ = fs::remove_file(cluster.folder.join("dump.rdb"));
            }
        }
        Part::Agent(number) => {
            let machine = &mut cluster.machines[number];
            machine.stop_agent();
            let loses = match order.lost {
                Lost::None => false,
                Lost::First => number == 0,
                Lost::Both => true,
            };
            if loses {
                let _ = Store::remove(&machine.caches, &machine.site.cache());
            }
        }
    }
}

fn begin(cluster: &mut Cluster, part: Part) -> Result<(), String> {
    match part {
        Part::Valkey => cluster.start_valkey().ok_or_else(|| "it does not start again".to_owned()),
        Part::Agent(number) => {
            let machine = &mut cluster.machines[number];
            machine.begin_agent();
            until("a cache", || machine.store().is_some())
        }
    }
}

/// Waits until all machines, none of which has keys, have the same new ones. Deletes an older ring before, as docs/cluster.md
/// says.
fn begin_anew(cluster: &Cluster, order: &Order, leaked: &String) -> Result<End, String> {
    let end = match order.back {
        Back::Older => {
            cluster.ask_valkey(&["DEL", "rejoin:{web}:ring"]);
            End::Refused
        }
        Back::Nothing => End::NewKeys,
    };
    let last = Instant::now() + BEGIN_WITHIN;
    while Instant::now() < last {
        watch(cluster, leaked, STEP)?;
        let [one, other] = [0, 1].map(|machine| keys(&cluster.machines[machine]));
        if !one.is_empty() && one == other {
            return Ok(end);
        }
    }
    Err("not in time: new keys on both machines".to_owned())
}

/// Fails if a machine has the key within this time.
fn watch(cluster: &Cluster, leaked: &String, time: Duration) -> Result<(), String> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if let Some(at) = cluster.machines.iter().position(|of| keys(of).contains(leaked)) {
            return Err(format!("the key is back on machine {}", at + 1));
        }
        thread::sleep(STEP);
    }
    Ok(())
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |part: &Part| match part {
            Part::Valkey => "Valkey".to_owned(),
            Part::Agent(number) => format!("agent {}", number + 1),
        };
        f.write_str(&self.parts.each_ref().map(name).join(", "))?;
        f.write_str(match self.way {
            Way::InTurn => " restart in turn",
            Way::AtOnce => " start after all ended",
        })?;
        f.write_str(match self.back {
            Back::Older => "; Valkey has the older ring",
            Back::Nothing => "; Valkey is empty",
        })?;
        f.write_str(match self.lost {
            Lost::None => "",
            Lost::First => "; machine 1 lost its cache",
            Lost::Both => "; both machines lost their caches",
        })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsItWas => "stays revoked",
            Self::NewKeys => "stays revoked, with new keys",
            Self::Refused => "stays revoked; no keys until the older ring is deleted",
        })
    }
}
