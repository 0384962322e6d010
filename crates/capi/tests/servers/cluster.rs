//! Unmodified nginx and HAProxy on several machines, whose agents share sessions and ticket keys over Valkey.

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::machines::{Cluster, HAPROXY, Machine, NGINX, Plan};
use crate::site::{Versions, library};

fn cluster(name: &'static str, machines: usize, tickets: bool) -> Option<Cluster> {
    let (servers, capacity, deadline_ms) = (&[NGINX, HAPROXY], "1MiB", 50);
    Cluster::start(Plan { name, servers, machines, tickets, agents: true, capacity, deadline_ms })
}

const BOTH: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

#[test]
fn sessions_of_one_machine_resume_on_the_others() {
    let Some(cluster) = cluster("sessions", 3, false) else { return };
    for versions in BOTH {
        let mut client = cluster.client(versions);
        let resumed = cluster.go_round(&mut client, 10);
        assert!(
            !resumed[0] && resumed[1..].iter().all(|resumed| *resumed),
            "{versions:?} {resumed:?}"
        );
    }
    let fetched: u64 =
        cluster.machines.iter().filter_map(Machine::facts).map(|facts| facts.fetched).sum();
    assert!(fetched >= 4, "{fetched}");
}

#[test]
fn tickets_of_one_machine_resume_on_the_others_until_their_key_is_revoked() {
    let Some(cluster) = cluster("tickets", 3, true) else { return };
    let mut clients = BOTH.map(|versions| cluster.client(versions));
    for client in &mut clients {
        let resumed = cluster.go_round(client, 7);
        assert!(!resumed[0] && resumed[1..].iter().all(|resumed| *resumed), "{resumed:?}");
    }
    let keys = |words: &[&str]| {
        let settings = cluster.machines[1].site.shown("cluster.toml");
        let mut rejoin = Command::new(library("rejoin"));
        let told = rejoin.arg("keys").args(words).arg(format!("--cluster={settings}")).output();
        let told = told.expect("it runs");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).expect("text")
    };
    assert_eq!(keys(&["list", "--json"]).lines().count(), 1);
    keys(&["rotate"]);
    let listed = keys(&["list", "--json"]);
    let first = listed.split("\"key\":\"").nth(1).and_then(|rest| rest.split('"').next());
    assert_eq!(listed.lines().count(), 2, "{listed}");
    keys(&["revoke", first.expect("an id")]);
    // Agents look once a second, and so do servers.
    thread::sleep(Duration::from_secs(4));
    for client in &mut clients {
        let resumed = cluster.go_round(client, 4);
        assert!(!resumed[0] && resumed[1..].iter().all(|resumed| *resumed), "{resumed:?}");
    }
}

/// Connects to every machine in turn; whether each was served is asserted by the client.
fn served(cluster: &Cluster) -> usize {
    let clients = BOTH.map(|versions| cluster.client(versions));
    clients
        .into_iter()
        .map(|mut client| {
            let resumed = cluster.go_round(&mut client, 6);
            resumed.iter().filter(|resumed| **resumed).count()
        })
        .sum()
}

#[test]
fn without_valkey_machines_go_on_by_themselves_and_come_back() {
    let Some(mut cluster) = cluster("faults", 2, false) else { return };
    assert_eq!(served(&cluster), 10, "together");
    cluster.stop_valkey();
    for machine in &cluster.machines {
        machine.wait_until("it is noticed", |facts| !facts.is_linked);
    }
    served(&cluster);
    cluster.start_valkey().expect("installed");
    for machine in &cluster.machines {
        machine.wait_until("it is back", |facts| facts.is_linked);
    }
    assert_eq!(served(&cluster), 10, "empty, and together again");
    cluster.signal_valkey("-STOP");
    served(&cluster);
    cluster.signal_valkey("-CONT");
    for machine in &cluster.machines {
        machine.wait_until("it goes on", |facts| facts.is_linked);
    }
    cluster.ask_valkey(&["SCRIPT", "FLUSH"]);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(served(&cluster), 10, "scripts flushed");
    cluster.machines[1].stop_agent();
    served(&cluster);
    // A second one is not let in.
    let second = cluster.machines[0].rejoin(&["cluster", "run"]).output().expect("it runs");
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && told.contains("another agent serves"), "{told}");
    cluster.machines[1].restart_agent();
    assert_eq!(served(&cluster), 10, "with a new agent");
    for machine in &cluster.machines {
        let store = machine.store().expect("there");
        assert!(store.check().iter().all(Result::is_ok));
    }
}
