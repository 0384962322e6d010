//! Plans, and the errors in them.

use rejoin_sim::plan::Plan;
use rejoin_sim::{Balancer, Error, KeyedBy, Subject, Tls};
use rejoin_trace::{Claims, Gaps, Group, Runs, Start};

const WHOLE: &str = r#"
title = "All there is"
duration_s = 3600.5
warm_up_s = 60
tls = "1.3"
tickets_full = 3
tickets_resumed = 2
tickets_used_once = true
grace_ms = 1500
ghosts_percent = 50
sessions_kept = false
keyed_by = "session"
servers = 3
balancer = "round-robin"
capacities = [200, 400]
policies = ["fifo", "learned"]
seeds = 10

[[group]]
kind = "devices"
devices = 20000
running_s = 120
waiting_s = 2760
intervals = "60:23,30:13,15:2"
jitter_s = 0.25
start = "waiting"
departures_known = true
claims = { permille = 970 }

[[group]]
kind = "devices"
devices = 5
running_s = 1
waiting_s = 1
intervals = "1:1"
runs = { habits = { sigma = 1.5, within = 0.3 } }
claims = { fixed_s = 1 }

[[group]]
name = "people"
kind = "browsers"
browsers = 100
gaps = { pareto = { least_s = 10, shape = 1.5 } }

[[group]]
kind = "browsers"
browsers = 100
gaps = { log_normal = { median_s = 10, sigma = 2 } }

[[group]]
kind = "flood"
per_s = 100
claims_s = 14
"#;

#[test]
fn everything_a_plan_can_say() {
    let plan = Plan::parse(WHOLE).expect("a plan");
    assert_eq!((plan.title.as_str(), plan.warm_up_ms), ("All there is", 60_000));
    assert_eq!(plan.end_ms, Some(3_600_500));
    let server = &plan.server;
    assert_eq!(server.tls, Tls::V1_3 { full: 3, resumed: 2, used_once: true });
    assert_eq!((server.grace_ms, server.ghosts_percent), (1_500, Some(50)));
    assert_eq!((server.sessions_kept, server.keyed_by), (false, KeyedBy::Session));
    assert_eq!((server.servers, server.balancer), (3, Balancer::RoundRobin));
    assert_eq!(plan.capacities.iter().map(|n| n.get()).collect::<Vec<_>>(), [200, 400]);
    assert_eq!(plan.policies.last(), Some(&Subject::Learned));
    assert_eq!(plan.seeds.map(|seeds| seeds.get()), Some(10));
    assert_eq!(plan.groups, ["devices", "devices-2", "people", "browsers", "flood"]);
    let mixture = plan.mixture.expect("groups");
    let [Group::Devices(devices), Group::Devices(liars), Group::Browsers(people), .., last] =
        mixture.groups()
    else {
        panic!("other groups: {mixture:?}");
    };
    let devices = devices.settings();
    assert_eq!(
        (devices.devices, devices.running_ms, devices.waiting_ms),
        (20_000, 120_000, 2_760_000)
    );
    assert_eq!((devices.jitter_ms, devices.start), (250, Start::Waiting));
    assert_eq!((devices.claims, devices.departures_known), (Claims::Permille(970), true));
    assert_eq!(devices.runs, Runs::Exponential);
    assert_eq!(liars.settings().claims, Claims::Fixed(1_000));
    assert_eq!(liars.settings().runs, Runs::Habits { sigma: 1.5, within: 0.3 });
    assert_eq!(people.settings().gaps, Gaps::Pareto { least_ms: 10_000, shape: 1.5 });
    assert!(matches!(last, Group::Flood(flood) if flood.settings().claims_ms == Some(14_000)));
}

#[test]
fn an_empty_plan_is_one_for_a_trace() {
    assert_eq!(Plan::parse("").expect("a plan"), Plan::default());
    assert!(Plan::parse("tls = '1.3'").expect("a plan").mixture.is_none());
}

/// Checks errors. Each case is a line of the plan above, its replacement, and the text of the error.
const WRONG: [(&str, &str, &str); 51] = [
    ("seeds = 10", "seeds = ", "line 17: "),
    ("seeds = 10", "seeds = 10\nseeds = 11", "line 18: "),
    ("seeds = 10", "seeds = 0", "seeds: 0 is not from 1 to 10000"),
    ("seeds = 10", "seeds = '10'", "line 17: invalid type: string"),
    ("seeds = 10", "sedes = 10", "line 17: unknown field `sedes`, expected one of `title`"),
    ("duration_s = 3600.5", "", "duration_s: it is missing"),
    ("duration_s = 3600.5", "duration_s = -1", "duration_s: -1 is not a number of seconds"),
    ("duration_s = 3600.5", "duration_s = nan", "duration_s: NaN is not"),
    ("duration_s = 3600.5", "duration_s = inf", "duration_s: inf is not"),
    ("duration_s = 3600.5", "duration_s = 0.0001", "from 0.001"),
    ("warm_up_s = 60", "warm_up_s = 3600.5", "warm_up_s: it is as long as duration_s"),
    ("warm_up_s = 60", "warm_up_s = -0.5", "warm_up_s: -0.5"),
    ("tls = \"1.3\"", "tls = \"1.2\"", "tickets_full: TLS 1.2"),
    ("tls = \"1.3\"", "tls = 1.3", "line 5: "),
    ("tls = \"1.3\"", "tls = \"1.1\"", "line 5: unknown variant `1.1`, expected `1.2` or `1.3`"),
    ("tickets_full = 3", "tickets_full = 0", "tickets_full: 0 is not from 1 to 16"),
    ("tickets_resumed = 2", "tickets_resumed = 17", "tickets_resumed: 17"),
    ("tickets_resumed = 2", "tickets_resumed = 0", "tickets_resumed: 0 leaves a client"),
    ("grace_ms = 1500", "grace_ms = -1", "grace_ms: -1"),
    ("grace_ms = 1500", "grace_ms = 4294967296", "grace_ms: 4294967296"),
    ("ghosts_percent = 50", "ghosts_percent = 1001", "ghosts_percent: 1001"),
    ("keyed_by = \"session\"", "keyed_by = \"client\"", "keyed_by: a client has no one session"),
    ("servers = 3", "servers = 0", "servers: 0 is not from 1 to 1024"),
    ("balancer = \"round-robin\"", "balancer = \"fair\"", "line 14: unknown variant `fair`"),
    ("capacities = [200, 400]", "capacities = [200, 0]", "capacities: 0"),
    ("capacities = [200, 400]", "capacities = 200", "line 15: "),
    ("\"fifo\", ", "\"lifo\", ", "policies: no policy is called \"lifo\": give one of predictive"),
    ("kind = \"devices\"", "", "missing field `kind`"),
    ("kind = \"devices\"", "kind = \"servers\"", "line 20: unknown variant `servers`"),
    ("devices = 20000", "", "group \"devices\", devices: it is missing: devices need it"),
    ("devices = 20000", "devices = 0", "group \"devices\": devices is 0"),
    ("devices = 20000", "devices = -5", "group \"devices\", devices: -5"),
    ("devices = 20000", "devices = 20000\nper_s = 5", "per_s: it belongs to kind \"flood\""),
    ("running_s = 120", "running_s = -120", "group \"devices\", running_s: -120"),
    ("running_s = 120", "runing_s = 120", "line 22: unknown field `runing_s`"),
    ("\"60:23,30:13,15:2\"", "\"60:0,30:0\"", "group \"devices\": no interval has a weight"),
    ("\"60:23,30:13,15:2\"", "\"60\"", "group \"devices\": \"60\" is not an interval"),
    ("permille = 970", "permille = -1", "group \"devices\", claims.permille: -1"),
    ("permille = 970", "percent = 97", "line 28: unknown variant `percent`"),
    ("jitter_s = 0.25", "runs = 'long'", "line 25: unknown variant `long`, expected one of"),
    ("jitter_s = 0.25", "runs = { log_normal = { sigma = 5.5 } }", "\"devices\": sigma is 5.5"),
    ("within = 0.3", "within = -0.3", "\"devices-2\": within is -0.3: it must be between 0 and 5"),
    ("sigma = 1.5, within", "within", "line 36: missing field `sigma`"),
    ("per_s = 100", "per_s = 100\nruns = 'exponential'", "runs: it belongs to kind \"devices\""),
    ("name = \"people\"", "name = \"devices\"", "name: \"devices\" is empty or taken"),
    ("shape = 1.5", "shape = 1", "group \"people\": shape is 1"),
    ("per_s = 100", "per_s = 0", "group \"flood\": per_s is 0"),
    ("per_s = 100", "per_s = 100\nvisits = 3", "group \"flood\", every_s: it is missing"),
    ("per_s = 100", "per_s = 100\nevery_s = 3", "group \"flood\", every_s: it has no effect"),
    ("per_s = 100", "per_s = 100\nsources = 1", "sources: it has no effect without source_percent"),
    ("claims_s = 14", "claims_s = 5000000", "group \"flood\", claims_s: 5000000 s is more than 49"),
];

#[test]
fn what_is_wrong_is_told_in_one_line_with_its_place() {
    for (line, instead, told) in WRONG {
        assert!(WHOLE.contains(line), "{line}");
        let error = Plan::parse(&WHOLE.replacen(line, instead, 1)).expect_err(instead);
        let text = error.to_string();
        assert!(text.contains(told), "{instead:?}: {text}");
        assert!(!text.contains('\n') && error.is_misuse(), "{text}");
    }
}

#[test]
fn no_text_is_taken_for_a_plan() {
    for text in
        ["\u{0}", "[[group]]", "group = 1", "= 5", "[group]\nkind = 'flood'", "é = \"\u{7f}"]
    {
        let error = Plan::parse(text).expect_err(text);
        assert!(matches!(error, Error::BadPlan { line, .. } if line <= 2), "{text:?}: {error}");
    }
}

#[test]
fn the_plans_that_come_along_are_plans() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans");
    let mut plans = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of plans") {
        let path = entry.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("a plan's text");
        let plan = Plan::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let whole = plan.mixture.is_some() && !plan.capacities.is_empty() && plan.seeds.is_some();
        assert!(whole && !plan.policies.is_empty(), "{}", path.display());
        plans += 1;
    }
    assert!(plans >= 9);
}
