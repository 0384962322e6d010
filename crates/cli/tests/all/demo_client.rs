//! `rejoin demo --client`, in a test program of its own.

use crate::REJOIN;
use crate::program::objects;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Compares with paper 004, Table I: without sharing, three handshakes of four are full; where apps and hosts
/// share, one for each service is.
#[test]
fn apps_that_share_sessions_shake_hands_in_full_once_for_each_service() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo-client");
    let output = Command::new(REJOIN)
        .args(["demo", "--client", "--json", "--apps", "30", "--services", "40", "--folder"])
        .arg(&folder)
        .output()
        .expect("the program runs");
    let [unmodified, client, both] = objects(&output).try_into().expect("three rows");
    let full = |row: &Value| row["full"].as_u64().expect("a count");
    assert!(unmodified["full_percent"].as_f64() >= Some(75.0), "{unmodified}");
    assert!(full(&client) < full(&unmodified), "{client}");
    assert_eq!(full(&both), both["services"].as_u64().expect("a count"), "{both}");
    for row in [&unmodified, &client, &both] {
        assert_eq!((&row["full"], &row["resumed"]), (&row["hosts_full"], &row["hosts_resumed"]));
    }
    assert!(both["bytes"].as_f64() < unmodified["bytes"].as_f64(), "{both}");
}
