//! The command of docs/capture.md that makes a table of networks, on lines as `bgpdump -m` prints them.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use rejoin_capture::Networks;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/capture.md");
const ROUTES: &str = "\
TABLE_DUMP2|1700000000|B|192.0.2.1|64500|1.0.0.0/24|64500 64501 13335|IGP|192.0.2.1|0|0||NAG||
TABLE_DUMP2|1700000000|B|192.0.2.2|64502|1.0.0.0/24|64502 13335|IGP|192.0.2.2|0|0||NAG||
TABLE_DUMP2|1700000000|B|192.0.2.1|64500|10.0.0.0/8|64500 {64503,64504}|IGP|192.0.2.1|0|0||AG||
TABLE_DUMP2|1700000000|B|2001:db8::1|64500|2001:200::/32|64500 2500|IGP|2001:db8::1|0|0||NAG||
";

#[test]
fn a_routing_table_becomes_a_table_of_networks() {
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let commands = document.lines().filter_map(|line| line.strip_prefix("bgpdump -m rib.bz2 | "));
    let [command] = commands.collect::<Vec<_>>()[..] else { panic!("one command") };
    let command = command.strip_suffix(" > networks.csv").unwrap();
    let mut run = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    run.stdin.take().unwrap().write_all(ROUTES.as_bytes()).unwrap();
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success());
    let networks = Networks::parse(&output.stdout[..]).unwrap();
    let found = ["1.0.0.1", "2001:200::1", "10.0.0.1"].map(|it| networks.asn(it.parse().unwrap()));
    assert_eq!(found, [Some(13335), Some(2500), None]);
}
