//! A comparison of our handshakes with a second tool's, found in the same captures.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

const KEY: [&str; 6] =
    ["file", "client_ip", "client_port", "server_ip", "server_port", "ch_random"];
/// The fields that must be equal.
const COMPARED: [&str; 7] = ["cls", "version", "sni", "hrr", "direct", "method", "client_auth"];
/// The fields that are only reported.
const TOLD: [&str; 9] = [
    "evidence",
    "completed",
    "psk_offered",
    "early_data_offered",
    "offered_sid_len",
    "offered_ticket_len",
    "frame_ch",
    "frame_sh",
    "carrier",
];
const EXAMPLES: usize = 8;

/// The differences.
#[derive(Debug)]
pub struct Comparison {
    pub wanted: usize,
    pub missing: usize,
    /// The field that differs most often, among those that must be equal, and how often.
    pub worst: (&'static str, usize),
    /// All of them, for a reader.
    pub report: String,
}

/// The second tool's answers in a folder of captures.
pub fn answers(captures: &Path) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(captures.join("oracle.jsonl")).ok()?;
    text.lines().map(|line| serde_json::from_str(line).ok()).collect()
}

/// Compares records of handshakes.
pub fn compare(wanted: &[&Value], found: &[&Value]) -> Comparison {
    let by_key: HashMap<_, _> = found.iter().map(|record| (key(record), *record)).collect();
    let (known, missing): (Vec<&Value>, Vec<&Value>) =
        wanted.iter().partition(|record| by_key.contains_key(&key(record)));
    let mut differing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for want in &known {
        let got = by_key[&key(want)];
        for field in COMPARED.into_iter().chain(TOLD) {
            let (want_value, got_value) = (value(want, field), value(got, field));
            if want_value != got_value {
                let example = format!("{want_value} not {got_value}: {}", key(want));
                differing.entry(field).or_default().push(example);
            }
        }
    }
    let extra = by_key.len() - known.len();
    let mut report = format!("{} wanted, {} missing, {extra} more\n", wanted.len(), missing.len());
    for record in missing.iter().take(EXAMPLES) {
        let _ = writeln!(report, "  missing {} {}", record["cls"], key(record));
    }
    let mut worst = ("", 0);
    for field in COMPARED.into_iter().chain(TOLD) {
        let examples = differing.get(field).map(Vec::as_slice).unwrap_or_default();
        let _ = writeln!(
            report,
            "  {field}: {} of {} equal",
            known.len() - examples.len(),
            known.len()
        );
        for example in examples.iter().take(EXAMPLES) {
            let _ = writeln!(report, "    {example}");
        }
        if COMPARED.contains(&field) && examples.len() >= worst.1 {
            worst = (field, examples.len());
        }
    }
    Comparison { wanted: wanted.len(), missing: missing.len(), worst, report }
}

fn key(record: &Value) -> String {
    KEY.map(|field| record[field].to_string()).join(" ")
}

/// Returns a field, with false taken for null.
fn value<'a>(record: &'a Value, field: &str) -> &'a Value {
    match &record[field] {
        Value::Bool(false) => &Value::Null,
        value => value,
    }
}
