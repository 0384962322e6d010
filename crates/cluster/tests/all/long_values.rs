//! Values that somebody else has put into Valkey, and that are longer than any of the cluster's: no agent takes them into its
//! memory.

use std::thread;
use std::time::Duration;

use rejoin_testkit::folder::Folder;
use rejoin_testkit::process::wait_until;
use rejoin_testkit::valkey::Valkey;

use crate::agent::{CONTEXT, Machine, settings, until_counted};

/// Lengthens a field, or all fields, by a megabyte.
fn lengthen(valkey: &Valkey, key: &str, field: &str) {
    let fields = if field == "*" { "redis.call('HKEYS',KEYS[1])" } else { "{ARGV[1]}" };
    let set = "redis.call('HSET',KEYS[1],field,(redis.call('HGET',KEYS[1],field)or'')..rest)";
    let script = format!(
        "local rest=string.rep('x',1000000) for _,field in ipairs({fields}) do {set} end return 1"
    );
    valkey.say(&format!("EVAL \"{script}\" 1 {key} {field}"));
}

/// The bytes that Valkey has sent.
fn sent(valkey: &Valkey) -> u64 {
    let stats = valkey.say("INFO stats");
    let line = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    line.expect("a count").trim().parse().expect("a number")
}

#[test]
fn what_is_too_long_stays_in_valkey() {
    let (valkey, folder) = (Valkey::start(&[]), Folder::new());
    let (machine, told) = Machine::noting(settings(&valkey, &folder), &folder);
    wait_until("its report", || valkey.say("HLEN rejoin:{web}:machines") == "1");
    for number in [1, 2] {
        machine.insert(number);
    }
    until_counted(&valkey, "HLEN rejoin:{web.0}:values", 2);
    // The machine's own copies are gone.
    machine.store.cache().clear();
    let before = sent(&valkey);
    lengthen(&valkey, "rejoin:{web.0}:values", "*");
    assert!(!machine.takes(1, CONTEXT) && !machine.takes(2, CONTEXT));
    until_counted(&valkey, "HLEN rejoin:{web.0}:values", 0);
    lengthen(&valkey, "rejoin:{web}:machines", "*");
    lengthen(&valkey, "rejoin:{web}:ring", "page");
    lengthen(&valkey, "rejoin:{web}:ring", "version");
    wait_until("it is told of the ring", || {
        told().iter().any(|line| line.starts_with("Cut") && line.contains("Unopened"))
    });
    let reported = || {
        valkey.say("EVAL \"return redis.call('HSTRLEN',KEYS[1],redis.call('HKEYS',KEYS[1])[1])\" 1 rejoin:{web}:machines")
    };
    wait_until("its next report", || reported().len() < 6);
    thread::sleep(Duration::from_secs(2));
    let bytes = sent(&valkey) - before;
    assert!(bytes < 800_000, "Valkey sent {bytes} bytes");
}
