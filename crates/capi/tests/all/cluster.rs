//! Unmodified nginx and HAProxy on several machines, whose agents share sessions and ticket keys over Valkey.

use rejoin_testkit::shipped::rejoin;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rejoin_store::Store;

use rejoin_testkit::machines::{Cluster, HAPROXY, Machine, NGINX, Plan, Server, ask};
use rejoin_testkit::process::{Signal, assert_has_no_rights, wait_for, wait_until};
use rejoin_testkit::site::{Client, Versions};

fn plan(name: &'static str, machines: usize, tickets: bool) -> Plan {
    let (servers, capacity, deadline_ms) = (&[NGINX, HAPROXY], "1MiB", Some(50));
    Plan { name, servers, machines, tickets, agents: true, capacity, deadline_ms }
}

fn cluster(name: &'static str, machines: usize, tickets: bool) -> Option<Cluster> {
    Cluster::start(plan(name, machines, tickets))
}

const BOTH: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

#[test]
fn sessions_of_one_machine_resume_on_the_others() {
    let Some(cluster) = cluster("sessions", 3, false) else { return };
    for versions in BOTH {
        in_time("resumed everywhere", || {
            let resumed = cluster.go_round(&mut cluster.client(versions), 10);
            assert!(!resumed[0], "{versions:?}: what nobody made");
            resumed[1..].iter().all(|resumed| *resumed)
        });
    }
    let fetched: u64 =
        cluster.machines.iter().filter_map(Machine::facts).map(|facts| facts.fetched).sum();
    assert!(fetched >= 4, "{fetched}");
}

/// A machine without room for all of its sessions gives them to the cluster, and takes those that are asked for.
#[test]
fn machines_that_are_full_still_resume_each_others_sessions() {
    let plan = Plan { capacity: "512KiB", ..plan("full", 2, false) };
    let Some(cluster) = Cluster::start(plan) else { return };
    let [one, other] = &cluster.machines[..] else { panic!("two machines") };
    let slots = one.store().expect("a cache").cache().capacity_sessions() as usize;
    let clients = BOTH.into_iter().cycle().take(3 * slots);
    let mut clients: Vec<_> = clients
        .map(|versions| {
            let mut client = Client::new(one.site.address(), versions);
            assert!(!client.connect());
            client.address = other.site.address();
            client
        })
        .collect();
    let resumed = clients.iter_mut().filter_map(|client| client.connect().then_some(())).count();
    assert!(100 * resumed >= 90 * clients.len(), "{resumed} of {}", clients.len());
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
        let mut rejoin = Command::new(rejoin());
        let told = rejoin.arg("keys").args(words).arg(format!("--cluster={settings}")).output();
        let told = told.expect("it runs");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).expect("text")
    };
    let count = |listed: &str| listed.matches("\"key\":").count();
    assert_eq!(count(&keys(&["list", "--json"])), 1);
    keys(&["rotate"]);
    let listed = keys(&["list", "--json"]);
    let first = listed.split("\"key\":\"").nth(1).and_then(|rest| rest.split('"').next());
    assert_eq!(count(&listed), 2, "{listed}");
    keys(&["revoke", first.expect("an id")]);
    // Agents look once a second, and so do servers.
    thread::sleep(Duration::from_secs(4));
    for client in &mut clients {
        let resumed = cluster.go_round(client, 4);
        assert!(!resumed[0] && resumed[1..].iter().all(|resumed| *resumed), "{resumed:?}");
    }
}

/// Asserts that something is so within ten tries. A busy machine gives up a session that comes too late, and makes a
/// full handshake; the next try succeeds.
fn in_time(what: &str, is_so: impl Fn() -> bool) {
    assert!((0..10).any(|_| is_so()), "{what}: not once in ten times");
}

fn share(cluster: &Cluster, when: &str) {
    in_time(when, || served(cluster) == 10);
}

/// Connects to every machine in turn, and returns the number of resumptions. The client asserts that each was served.
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
    share(&cluster, "together");
    cluster.stop_valkey();
    for machine in &cluster.machines {
        machine.wait_until("it is noticed", |facts| !facts.is_linked);
    }
    served(&cluster);
    cluster.start_valkey().expect("installed");
    for machine in &cluster.machines {
        machine.wait_until("it is back", |facts| facts.is_linked);
    }
    share(&cluster, "empty, and together again");
    cluster.signal_valkey(Signal::STOP);
    served(&cluster);
    cluster.signal_valkey(Signal::CONT);
    for machine in &cluster.machines {
        machine.wait_until("it goes on", |facts| facts.is_linked);
    }
    cluster.ask_valkey(&["SCRIPT", "FLUSH"]);
    wait_until("sessions to be shared after a flush of the scripts", || served(&cluster) == 10);
    cluster.machines[1].stop_agent();
    served(&cluster);
    // A second agent is refused.
    let second = cluster.machines[0].rejoin(&["cluster", "run"]).output().expect("it runs");
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && told.contains("another agent serves"), "{told}");
    cluster.machines[1].restart_agent();
    share(&cluster, "with a new agent");
    for machine in &cluster.machines {
        let store = machine.store().expect("there");
        assert!(store.check().iter().all(Result::is_ok));
    }
}

/// Where each session must resume once only, nobody knows then whether another machine has resumed it.
#[test]
fn without_valkey_early_data_once_costs_no_resumption_and_single_use_does() {
    const TIMEOUT: &str = "ssl_session_timeout 1d;";
    let configuration =
        NGINX.configuration.replace(TIMEOUT, &format!("{TIMEOUT} ssl_early_data on;"));
    let server = Server { configuration: configuration.leak(), ..NGINX };
    let cases = [("early_data = once", true), ("early_data = once\nsingle_use = yes", false)];
    for (settings, resumes) in cases {
        let plan = Plan { servers: vec![server].leak(), ..plan("once", 1, false) };
        let Some(mut cluster) = Cluster::without_machines(plan) else { return };
        cluster.server_settings = settings.to_owned();
        let Some(()) = cluster.add_machines() else { return };
        let mut client = cluster.client(Versions::Tls13);
        wait_until("a resumption", || client.connect());
        cluster.stop_valkey();
        cluster.machines[0].wait_until("it is noticed", |facts| !facts.is_linked);
        client.connect();
        let resumed = [(); 3].map(|()| client.connect());
        assert_eq!(resumed, [resumes; 3], "{settings}");
    }
}

/// Servers that start as root need a cache of root, and root's files have Valkey's address; the process that speaks to
/// the network need not be root.
#[test]
fn an_agent_gives_up_root_for_good_and_works_on() {
    const NOBODY: &str = "nobody";
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: no rights can be given up, and nothing is tested");
        return;
    }
    let plan = Plan { servers: &[NGINX], ..plan("user", 2, false) };
    let Some(mut cluster) = Cluster::without_machines(plan) else { return };
    let password = cluster.folder.join("password");
    let only_root = fs::File::options().write(true).create_new(true).mode(0o600).open(&password);
    only_root.expect("a file").write_all(b"correct-horse\n").expect("written");
    wait_until("an answer of Valkey", || {
        cluster.ask_valkey(&["CONFIG", "SET", "requirepass", "correct-horse"]).trim() == "OK"
    });
    cluster.more_settings = format!("password_file = {password:?}");
    cluster.agents_become = Some(NOBODY);
    if cluster.add_machines().is_none() {
        return;
    }
    for machine in &cluster.machines {
        assert_has_no_rights(machine.agent.as_ref().expect("it runs").id(), NOBODY);
    }
    share(&cluster, "without root's rights");
    // It still has the password when it must connect again.
    let clients = |what: &[&str]| {
        let words = ["-a", "correct-horse", "--no-auth-warning", "CLIENT"];
        ask(cluster.port, &[&words, what, &["TYPE", "normal"]].concat())
    };
    assert_eq!(clients(&["KILL"]).trim(), "2");
    // The third client is the one that asks.
    wait_until("both agents to connect again", || clients(&["LIST"]).lines().count() >= 3);
    share(&cluster, "connected again");
    // Without its cache an agent ends; the next one starts as root.
    let machine = &mut cluster.machines[1];
    assert!(Store::remove(&machine.caches, &machine.site.cache()).expect("removed"));
    let agent = machine.agent.as_mut().expect("it ran");
    let status = wait_for("the agent's end", || agent.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(1));
    machine.start_agent();
}
