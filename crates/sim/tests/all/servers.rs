//! Clients' use of sessions, and the number of servers.

use crate::population::{DEVICES, after_first_of_run, plan, play, simulation};
use rejoin_sim::policy::PolicyName;
use rejoin_sim::{KeyedBy, Plan, Progress, Simulation, Subject};
use rejoin_trace::Event;

/// Returns the hit rates after the first of each run, of each policy in order.
fn rates(keys: &str, policies: &str, capacity: u32) -> Vec<f64> {
    let plan = plan(4_000, keys);
    let outcome = play(&plan, &simulation(&plan, policies, &[capacity], 2));
    outcome.cells.iter().map(after_first_of_run).collect()
}

#[test]
fn the_shipped_lru_is_the_yardstick_hit_for_hit() {
    let tls_1_3 = "tls = '1.3'\ntickets_full = 3\ntickets_resumed = 2";
    for keys in ["", "keyed_by = 'session'", "sessions_kept = false", "tls = '1.3'", tls_1_3] {
        let plan = plan(4_000, keys);
        let shipped = simulation(&plan, "lru", &[1, 7, 120, 200, 260], 2);
        let lru = vec![Subject::Yardstick(PolicyName::Lru)];
        let yardstick = Simulation { policies: lru, ..shipped.clone() };
        let (shipped, yardstick) = (play(&plan, &shipped), play(&plan, &yardstick));
        for (one, other) in shipped.cells.iter().zip(&yardstick.cells) {
            assert_eq!(one.rates, other.rates, "{} sessions", one.capacity);
            assert_eq!(one.full_handshakes, other.full_handshakes);
        }
    }
}

/// Clients come every 90 s, and sessions live for 200 s: over TLS 1.2 each third visit finds its session too old, in the
/// shipped cache and in a yardstick, and over TLS 1.3 none does.
#[test]
fn a_session_resumes_until_its_lifetime_ends() {
    let event = |at: u64| {
        let (time_ms, client) = (at * 1_000, at % 90);
        Event { time_ms, client, first_of_run: at < 90, returns_in_ms: None }
    };
    let events: Vec<Event> = (0..90 * 31).map(event).collect();
    for (keys, capacity, expected) in [
        ("", 90, 20.0 / 30.0),
        ("keyed_by = 'session'", 90 * 31, 20.0 / 30.0),
        ("tls = '1.3'", 90 * 40, 1.0),
    ] {
        let plan = Plan::parse(keys).expect("servers");
        let mut simulation = simulation(&plan, "lru,fifo,both,learned", &[capacity], 1);
        simulation.policies.push(Subject::Yardstick(PolicyName::Lru));
        simulation.server.lifetime_s = Some(200);
        let outcome = simulation.run(&events[..], &Progress::default()).expect("events in memory");
        for cell in &outcome.cells {
            let found = cell.rates.hit_after_first_of_device.expect("devices return").mean;
            assert!((found - expected * 100.0).abs() < 1e-9, "{keys} {}: {found}", cell.policy);
        }
        let forever = Simulation {
            server: rejoin_sim::Server { lifetime_s: None, ..simulation.server.clone() },
            ..simulation
        };
        let outcome = forever.run(&events[..], &Progress::default()).expect("events in memory");
        for cell in &outcome.cells {
            let found = cell.rates.hit_after_first_of_device.expect("devices return").mean;
            assert_eq!(found, 100.0, "{keys} {}", cell.policy);
        }
    }
}

/// Compares policies by session id: one that only sees ids gets worse, one with announced returns
/// does not, and an LRU is not affected.
#[test]
fn sessions_may_be_new_after_every_miss() {
    let policies = "lru,exact,predictive,arc";
    let by_client = rates("", policies, 260);
    let by_session = rates("keyed_by = 'session'", policies, 260);
    for (policy, (client, session)) in policies.split(',').zip(by_client.iter().zip(&by_session)) {
        let expected = if policy == "arc" { 13.0 } else { *client };
        let off = (session - expected).abs();
        assert!(off < 3.0, "{policy}: {session:.1} by session, {client:.1} by client");
    }
}

#[test]
fn sessions_lost_between_runs_cost_only_the_first_of_each() {
    let policies = "lru,predictive,clairvoyant";
    let kept = rates("", policies, 10_000);
    let lost = rates("sessions_kept = false", policies, 10_000);
    assert_eq!((&kept, &lost), (&vec![100.0; 3], &vec![100.0; 3]));
    let all = |keys: &str| {
        let plan = plan(4_000, keys);
        let outcome = play(&plan, &simulation(&plan, policies, &[10_000], 1));
        let of_all = |cell: &rejoin_sim::Cell| cell.rates.hit_all.expect("some").mean;
        outcome.cells.iter().map(of_all).collect::<Vec<f64>>()
    };
    let (kept, lost) = (all(""), all("sessions_kept = false"));
    assert!(kept.iter().zip(&lost).all(|(kept, lost)| *kept > lost + 8.0), "{kept:?} {lost:?}");
}

#[test]
fn a_client_that_reaches_any_server_is_not_known_there() {
    let policies = "lru,predictive,random,clairvoyant";
    let one = rates("", policies, 10_000);
    let rest =
        |balancer: &str| rates(&format!("servers = 4\nbalancer = '{balancer}'"), policies, 10_000);
    assert!(one.iter().all(|rate| *rate > 99.9));
    assert!(rest("client").iter().all(|rate| *rate > 99.9), "{:?}", rest("client"));
    for balancer in ["random", "round-robin"] {
        let rates = rest(balancer);
        assert!(rates.iter().all(|rate| (rate - 25.0).abs() < 3.0), "{balancer}: {rates:?}");
    }
}

/// Checks that sessions that a client lost, or left at another server, are not kept.
#[test]
fn the_optimum_knows_what_is_useless() {
    for keys in ["", "sessions_kept = false", "servers = 2", "tls = '1.3'\nservers = 3"] {
        for capacity in [40, 160] {
            let policies = "clairvoyant,exact,predictive,learned,lru,fifo,random";
            let rates = rates(keys, policies, capacity);
            assert!(rates.iter().all(|rate| *rate <= rates[0]), "{keys} {capacity}: {rates:?}");
        }
    }
}

/// Checks that hints are given on every connection, hit or miss.
#[test]
fn devices_that_say_they_leave_make_room() {
    for keys in ["", "tls = '1.3'"] {
        let rates_of = |devices: &str| {
            let whole = format!("duration_s = 3600\n{keys}\n[[group]]\ndevices = 4000{devices}");
            let plan = Plan::parse(&whole).expect("a plan");
            let outcome = play(&plan, &simulation(&plan, "exact,predictive", &[120], 2));
            outcome.cells.iter().map(after_first_of_run).collect::<Vec<f64>>()
        };
        let silent = rates_of(DEVICES);
        let told = rates_of(&format!("{DEVICES}departures_known = true\n"));
        assert!(told[1] > silent[1] + 3.0, "{keys}: {told:?}, {silent:?}");
        assert!(!keys.is_empty() || (told[0] - told[1]).abs() < 1.5, "{told:?}");
    }
}

#[test]
fn a_ticket_is_used_once_if_the_server_says_so() {
    let event = |time_ms| Event { time_ms, client: 7, first_of_run: false, returns_in_ms: None };
    let trace: Vec<Event> = (0..10).map(event).collect();
    // A resumption makes no ticket: the used one stays valid, or is gone.
    for (used_once, hits) in [(false, 9), (true, 5)] {
        let mut plan = plan(1, "tls = '1.3'\ntickets_resumed = 0");
        if let rejoin_sim::Tls::V1_3 { used_once: once, .. } = &mut plan.server.tls {
            *once = used_once;
        }
        let simulation = simulation(&plan, "lru,predictive,fifo,arc", &[5], 1);
        let outcome = simulation.run(&trace[..], &Progress::default()).expect("a trace");
        for cell in outcome.cells {
            assert_eq!(10.0 - cell.full_handshakes, f64::from(hits), "{}", cell.policy);
        }
    }
}

#[test]
fn clients_are_keys_only_where_that_has_a_meaning() {
    let by = |keys: &str| plan(1, keys).server.keyed_by;
    assert_eq!(by(""), KeyedBy::Client);
    assert_eq!(by("keyed_by = 'session'"), KeyedBy::Session);
    for keys in ["tls = '1.3'", "servers = 2", "sessions_kept = false"] {
        assert_eq!(by(keys), KeyedBy::Session, "{keys}");
    }
}
