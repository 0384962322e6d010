//! `rejoin plan` as its users run it.

use crate::REJOIN;
use crate::program::{done, file, interrupt, refusal, scratch, start, text};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

const PLAN: &str = r#"
title = "A thousand devices"
duration_s = 3600
seeds = 2
capacities = [1]
policies = ["random"]

[[group]]
kind = "devices"
devices = 1000
running_s = 120
waiting_s = 900
intervals = "60:23,30:13,15:2"
"#;

fn answer(arguments: &[&str]) -> Value {
    let said = done(&[&["plan", "--json"], arguments].concat());
    assert_eq!(said.lines().count(), 1, "{said}");
    serde_json::from_str(&said).expect("JSON")
}

fn rows(answer: &Value) -> &Vec<Value> {
    answer["rows"].as_array().expect("rows")
}

fn row<'a>(answer: &'a Value, policy: &str, capacity: &Value) -> &'a Value {
    let found = rows(answer).iter().find(|r| r["policy"] == policy && r["capacity"] == *capacity);
    found.unwrap_or_else(|| panic!("no row for {policy} at {capacity}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn returning(row: &Value) -> f64 {
    number(&row["hit_after_first_of_device"]["mean"])
}

#[test]
fn the_recommended_size_is_enough_and_the_next_smaller_is_not() {
    let plan = file(&scratch("plan/recommended"), "plan.toml", PLAN);
    for (more, target) in [(["--target", "98"], 98.0), (["--target", "70"], 70.0)] {
        let answer = answer(&[&["--plan", &plan], &more[..]].concat());
        assert_eq!((&answer["complete"], number(&answer["goal_percent"])), (&true.into(), target));
        let best = &answer["recommendation"];
        let policy = best["policy"].as_str().expect("a policy");
        let at = |sessions: &str| returning(row(&answer, policy, &best[sessions]));
        assert!(at("sessions") >= target && at("fails_at") < target, "{best}");
        let (sessions, fails_at) = (number(&best["sessions"]), number(&best["fails_at"]));
        assert!(sessions - fails_at <= (sessions / 100.0).max(1.0), "{best}");
        assert_eq!(number(&best["returning_percent"]), at("sessions"));
        let fifo = &best["fifo_sessions"];
        assert!(returning(row(&answer, "fifo", fifo)) >= target, "{best}");
        assert!(number(fifo) >= sessions, "FIFO needs less than {best}");
        let line = answer["line"].as_str().expect("a line");
        assert!(line.contains("of returning devices resume; OpenSSL's own cache would need"));
        let policies = ["fifo", "lru", "learned", "both"];
        let needs = answer["needs"].as_array().expect("needs");
        assert!(needs.iter().map(|need| &need["policy"]).eq(policies), "{needs:?}");
        for policy in policies {
            row(&answer, policy, &best["sessions"]);
        }
    }
}

/// Without a target, the size is where more buys little: less than it, and than half as much loses.
#[test]
fn by_default_it_is_the_knee() {
    let plan = file(&scratch("plan/knee"), "plan.toml", PLAN);
    let answer = answer(&["--plan", &plan, "--full-us", "1000", "--resumed-us", "200"]);
    let best = &answer["recommendation"];
    assert_eq!((&best["wish"], &answer["complete"]), (&"knee".into(), &true.into()));
    let (half, twice) = (&best["half"], &best["twice"]);
    assert!((0.0..=3.5).contains(&number(&twice["points"])), "{best}");
    assert!(number(&half["points"]) < -2.0 * number(&twice["points"]), "{best}");
    let policy = best["policy"].as_str().expect("a policy");
    for (beside, factor) in [(half, 0.5), (twice, 2.0)] {
        let sessions = (number(&best["sessions"]) * factor).floor();
        assert_eq!(number(&beside["sessions"]), sessions);
        let other = row(&answer, policy, &beside["sessions"]);
        let points = returning(other) - number(&best["returning_percent"]);
        assert!((number(&beside["points"]) - points).abs() < 1e-9, "{best}");
        let cores = number(&other["cores_saved"]) - number(&best["cores_saved"]);
        assert!((number(&beside["cores_saved"]) - cores).abs() < 1e-12, "{best}");
    }
    let line = answer["line"].as_str().expect("a line");
    assert!(line.contains("% of returning devices resume; twice as much buys"), "{line}");
    let bytes = number(&best["bytes"]);
    for (other, each) in [("nginx", 262.144), ("HAProxy", 200.0), ("OpenSSL", 1_049.0)] {
        let same = answer["same_bytes"].as_array().expect("a list");
        let same = same.iter().find(|same| same["name"] == other).expect("its cache");
        assert_eq!(number(&same["sessions"]), (bytes / each).floor(), "{same}");
        let row = row(&answer, "fifo", &same["sessions"]);
        assert_eq!(number(&same["returning_percent"]), returning(row), "{same}");
    }
    assert_eq!(answer["unseen"], Value::Null, "drawn arrivals have no halves");
}

#[test]
fn hit_rates_are_those_of_simulate() {
    let folder = scratch("plan/rates");
    let plan = file(&folder, "plan.toml", PLAN);
    let trace = folder.join("arrivals.csv");
    let trace = trace.to_str().expect("UTF-8");
    done(&["simulate", "--plan", &plan, "--write-trace", trace]);
    let try_out = ["--capacities", "50..150:50", "--policies", "fifo,learned,both,clairvoyant"];
    for from in [["--plan", &plan], ["--trace", trace]] {
        let simulated = done(&[&["simulate", "--json"], &from[..], &try_out].concat());
        let answer = answer(&[&from[..], &try_out].concat());
        assert_eq!(rows(&answer).len(), 12);
        for line in simulated.lines() {
            let cell: Value = serde_json::from_str(line).expect("JSON");
            let row = row(&answer, cell["policy"].as_str().expect("a name"), &cell["capacity"]);
            for (key, value) in cell.as_object().expect("an object") {
                assert_eq!(&row[key], value, "{key} of {row}");
            }
        }
        let sizes = rows(&answer).iter().map(|row| number(&row["capacity"]));
        assert!(sizes.eq([50.0, 100.0, 150.0].into_iter().flat_map(|size| [size; 4])));
    }
}

/// The bytes of what a cache learns, whatever its size.
const LEARNED_BYTES: f64 = size_of::<rejoin_cache::Ledger>() as f64;

#[test]
fn what_is_saved_follows_from_hit_rates_and_costs() {
    let plan = file(&scratch("plan/saved"), "plan.toml", PLAN);
    let costs = ["--full-us", "1000", "--resumed-us", "200"];
    let small = ["--plan", &plan, "--capacities", "100,1000"];
    let answer = answer(&[&small[..], &costs].concat());
    let counted_s = number(&answer["counted_s"]);
    assert!((counted_s - 3_600.0).abs() < 10.0, "{counted_s}");
    for row in rows(&answer) {
        let avoided = number(&row["avoided_per_s"]);
        let hits = number(&row["requests"]) - number(&row["full_handshakes"]);
        assert!((avoided - hits / counted_s).abs() < 1e-9, "{row}");
        assert!((number(&row["cores_saved"]) - avoided * 800e-6).abs() < 1e-12, "{row}");
        let (bytes, sessions) = (&row["bytes"], number(&row["capacity"]));
        if row["policy"] == "fifo" {
            assert_eq!(number(&bytes["openssl"]), (sessions * 1_049.0).ceil());
            assert_eq!(number(&bytes["nginx"]), (sessions * 262.144).ceil());
            assert_eq!(number(&bytes["haproxy"]), sessions * 200.0);
        } else {
            // What is learned, and the file's head, are the same for every size.
            let ours = number(&bytes["rejoin"]) - LEARNED_BYTES;
            assert!((256.0 * sessions..300.0 * sessions + 40_960.0).contains(&ours), "{row}");
        }
    }
    let larger = self::answer(&[&small[..], &["--session-bytes", "1000"]].concat());
    for (small, large) in
        rows(&answer).iter().zip(rows(&larger)).filter(|(s, _)| s["policy"] == "lru")
    {
        let more = number(&large["bytes"]["rejoin"]) - number(&small["bytes"]["rejoin"]);
        // Six blocks instead of one, each with a slot and its place in the index. A file has whole pages.
        let blocks = 5.0 * number(&small["capacity"]);
        assert!((256.0 * blocks..300.0 * blocks + 4_096.0).contains(&more), "{large}");
        assert_eq!(large["cores_saved"], Value::Null, "nobody gave costs");
    }
    let config = larger["configuration"]["rejoin"].as_str().expect("a configuration");
    assert!(config.contains("# 6 blocks") && config.contains("--capacity-sessions 6000"));
}

#[test]
fn configurations_are_for_what_is_recommended() {
    let plan = file(&scratch("plan/configuration"), "plan.toml", PLAN);
    let found = answer(&["--plan", &plan, "--target", "98"]);
    let best = &found["recommendation"];
    let of = |server: &str| found["configuration"][server].as_str().expect("text").to_owned();
    let lifetime = number(&found["lifetime_s"]);
    assert_eq!(number(&found["lifetime"]["seconds"]), lifetime);
    let mebibytes = (number(&best["fifo_sessions"]) * 262.144 / 1_048_576.0).ceil();
    let nginx = of("nginx");
    assert!(nginx.contains(&format!("\nssl_session_cache shared:SSL:{mebibytes}m;\n")), "{nginx}");
    assert!(nginx.contains(&format!("\nssl_session_timeout {lifetime}s;\n")), "{nginx}");
    assert!(nginx.ends_with("\nssl_session_tickets off;"), "{nginx}");
    let haproxy = of("haproxy");
    assert!(haproxy.contains(&format!("tune.ssl.cachesize {}\n", best["fifo_sessions"])));
    assert!(haproxy.contains(&format!("tune.ssl.lifetime {lifetime}\n")), "{haproxy}");
    let rejoin = of("rejoin");
    assert!(rejoin.ends_with(&format!("--capacity-sessions {}", best["sessions"])), "{rejoin}");
    // What is proposed is understood.
    let mut proposed: Vec<&str> = rejoin.split(' ').skip(1).collect();
    proposed.push("--help");
    assert!(done(&proposed).contains("--capacity-sessions"), "{rejoin}");

    let given = answer(&["--plan", &plan, "--lifetime", "77", "--capacities", "900,1000"]);
    let nginx = given["configuration"]["nginx"].as_str().expect("text");
    assert!(nginx.contains("ssl_session_timeout 77s;"), "{nginx}");
    assert_eq!(given["lifetime"]["seconds"], 77, "{given}");
    let source = given["lifetime_source"].as_str().expect("text");
    assert!(source.starts_with("as given; ") && source.contains("find their session too old"));
}

/// Clients that come every 50 s: over TLS 1.2 their sessions grow old, over TLS 1.3 they do not.
#[test]
fn lifetimes_are_found_for_each_version() {
    let folder = scratch("plan/lifetime");
    let trace = |count: u64| {
        let arrivals = (0..count).map(|n| format!("{},{}\n", n * 5_000, n % 10));
        let arrivals = arrivals.collect::<String>();
        file(&folder, &format!("{count}.csv"), format!("time_ms,client\n{arrivals}"))
    };
    // In the second one of 10,000 s a lifetime of two hours ends but once.
    for (count, tls, seconds) in
        [(7_200, "1.2", 7_200.0), (2_000, "1.2", 86_400.0), (2_000, "1.3", 60.0)]
    {
        let trace = trace(count);
        let plan = file(&folder, "servers.toml", format!("tls = '{tls}'"));
        let answer = answer(&["--plan", &plan, "--trace", &trace]);
        assert_eq!(number(&answer["lifetime_s"]), seconds, "{tls}");
        assert_eq!((&answer["tls"], &answer["runs"]), (&tls.into(), &false.into()));
        assert!(answer["recommendation"]["sessions"].is_u64(), "{answer}");
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn handshakes_are_measured_in_place() {
    let folder = scratch("plan/measure");
    let plan = file(&folder, "plan.toml", PLAN);
    let small = ["--plan", &plan, "--capacities", "1000", "--measure"];
    for (key, times) in [("rsa-2048", 2.0), ("p-256", 1.2)] {
        let answer = answer(&[&small[..], &["--key-type", key]].concat());
        let measured = answer["costs"]["measured"].as_array().expect("both versions");
        assert!(measured.iter().map(|cost| &cost["tls"]).eq(["1.2", "1.3"]), "{measured:?}");
        for cost in measured {
            let (full, resumed) = (number(&cost["full_us"]), number(&cost["resumed_us"]));
            assert!(resumed > 1.0 && full > resumed, "{key}: {cost}");
        }
        let used = &answer["costs"]["handshake"];
        assert_eq!(used, &measured[0], "a plan of TLS 1.2");
        assert!(number(&used["full_us"]) > times * number(&used["resumed_us"]), "{key}: {used}");
        let openssl = number(&answer["costs"]["openssl_session_bytes"]);
        assert!((500.0..3_000.0).contains(&openssl), "{openssl}");
        let source = answer["costs"]["openssl_session_bytes_source"].as_str();
        assert!(source.expect("a source").contains("counted here"));
        assert!(number(&rows(&answer)[0]["cores_saved"]) > 0.0);
    }
}

#[test]
fn a_table_says_what_it_is_made_of() {
    let plan = file(&scratch("plan/table"), "plan.toml", PLAN);
    let table = done(&["plan", "--plan", &plan]);
    for told in
        ["A thousand devices", "◀", "give --full-us and", "ssl_session_cache", "tune.ssl", "serve"]
    {
        assert!(table.contains(told), "no {told} in {table}");
    }
    assert!(!table.contains("clairvoyant"), "{table}");
    assert_eq!(table, done(&["plan", "--plan", &plan, "--threads", "1"]), "threads change it");
    let few = done(&["plan", "--plan", &plan, "--capacities", "5,10"]);
    assert!(few.contains("no size up to 10 sessions is enough for 98 %"), "{few}");
    assert!(!few.contains("ssl_session_cache"), "{few}");
    let never = ["plan", "--plan", &plan, "--capacities", "60,100", "--target", "50"];
    let never = done(&never);
    assert!(never.contains("OpenSSL's own cache would not reach it below"), "{never}");
    assert!(never.contains("less than asked for"), "{never}");
}

#[test]
fn misuse_is_one_line_and_exit_code_2() {
    let folder = scratch("plan/misuse");
    let plan = file(&folder, "plan.toml", PLAN);
    let unknown = file(&folder, "unknown.toml", PLAN.replace("seeds", "sedes"));
    let empty = file(&folder, "empty.toml", "");
    let trace = file(&folder, "trace.csv", "time_ms,client\n0,1\n");
    let wrong: [(&[&str], &str); 18] = [
        (&[], "--plan"),
        (&["--plan", &unknown], "unknown.toml: line 4: unknown field `sedes`"),
        (&["--plan", &empty], "no [[group]]"),
        (&["--plan", &plan, "--trace", &trace], "remove its groups"),
        (&["--plan", &plan, "--capacities", "5..1:1"], "write 300,600"),
        (&["--plan", &plan, "--policies", "lifo"], "give one of predictive"),
        (&["--plan", &plan, "--target", "0"], "above 0, 100 at most"),
        (&["--plan", &plan, "--target", "98%"], "above 0, 100 at most"),
        (&["--plan", &plan, "--full-us", "900"], "--resumed-us"),
        (&["--plan", &plan, "--resumed-us", "90"], "--full-us"),
        (&["--plan", &plan, "--full-us", "-1", "--resumed-us", "1"], "--full-us"),
        (&["--plan", &plan, "--full-us", "90", "--resumed-us", "900"], "nothing to save"),
        (&["--plan", &plan, "--full-us", "9", "--resumed-us", "1", "--measure"], "--measure"),
        (&["--plan", &plan, "--key-type", "p-256"], "--measure"),
        (&["--plan", &plan, "--measure", "--key-type", "dsa"], "rsa-2048"),
        (&["--plan", &plan, "--session-bytes", "7"], "8 to 65528"),
        (&["--plan", &plan, "--lifetime", "0"], "1 to 604800"),
        (&["--trace", "/dev/null"], "write it to a file"),
    ];
    for (arguments, remedy) in wrong {
        let (line, code) = refusal(&[&["plan"], arguments].concat());
        assert!(line.contains(remedy) && code == 2, "{arguments:?}: {code}, {line}");
    }
}

#[test]
fn failure_is_one_line_and_exit_code_1() {
    let folder = scratch("plan/failure");
    let plan = file(&folder, "plan.toml", PLAN);
    let whole = folder.join("whole.trace");
    done(&["simulate", "--plan", &plan, "--write-trace", whole.to_str().expect("UTF-8")]);
    let bytes = fs::read(&whole).expect("a trace");
    let cut = file(&folder, "cut.trace", &bytes[..bytes.len() / 2]);
    let unsorted = file(&folder, "unsorted.csv", "time_ms,client\n5,1\n4,2\n");
    let nobody = file(&folder, "nobody.csv", "time_ms,client\n");
    let strangers = file(&folder, "strangers.csv", "time_ms,client\n1,1\n2,2\n");
    let failing: [(&[&str], &str); 6] = [
        (&["--trace", "/nowhere/a.trace"], "/nowhere/a.trace: cannot be read"),
        (&["--plan", "/nowhere/plan.toml"], "/nowhere/plan.toml: cannot be read"),
        (&["--trace", &cut], "cut.trace: cut after"),
        (&["--trace", &unsorted], "sort the events by time"),
        (&["--trace", &nobody], "nobody.csv: no arrivals"),
        (&["--trace", &strangers], "strangers.csv: no client comes back"),
    ];
    for (arguments, told) in failing {
        let (line, code) = refusal(&[&["plan"], arguments].concat());
        assert!(line.contains(told) && code == 1, "{arguments:?}: {code}, {line}");
    }
}

#[test]
fn interrupted_it_gives_what_is_finished_and_recommends_nothing() {
    let plan = file(&scratch("plan/interrupted"), "plan.toml", PLAN);
    // Surveying takes a moment, and trying all these much longer.
    let policies = "fifo,lru,random,lfu,mru,sieve,s3-fifo,arc,literal,predictive,learned,both";
    let interrupted_after = |seconds| {
        let mut command = Command::new(REJOIN);
        command.args(["plan", "--json", "--plan", &plan, "--seeds", "200", "--policies", policies]);
        let child = start(&mut command);
        thread::sleep(Duration::from_secs(seconds));
        interrupt(&child);
        child.wait_with_output().expect("an end")
    };
    // How long surveying takes depends on the machine: before it ends there is nothing to give.
    let mut outputs = [2, 4, 8, 16, 32].into_iter().map(interrupted_after);
    let output = outputs.find(|output| !output.stdout.is_empty()).expect("something is finished");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("rejoin: interrupted"), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["complete"], false);
    assert!(answer["recommendation"].is_null() && answer["configuration"].is_null());
    assert!(!rows(&answer).is_empty());
}
