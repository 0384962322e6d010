//! Compares what is found in real captures with a second tool's answers.
//!
//! The captures lie beside the project (`shared/captures`), not in it; without them there is
//! nothing to compare.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use rejoin_capture::{Analyser, Limits};
use serde_json::Value;

const KEY: [&str; 6] =
    ["file", "client_ip", "client_port", "server_ip", "server_port", "ch_random"];
const COMPARED: [&str; 7] = ["cls", "version", "sni", "hrr", "direct", "method", "client_auth"];
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
/// Of a thousand handshakes or fields, so many may differ.
const TOLERATED_PER_MILLE: usize = 3;
const EXAMPLES: usize = 8;

#[test]
fn real_captures_give_what_a_second_tool_found() {
    let Some(folder) = captures() else {
        eprintln!("no captures beside the project: nothing is compared");
        return;
    };
    let found = analyse(&folder.join("files"));
    let list: String = found.iter().map(|record| format!("{record}\n")).collect();
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("handshakes.jsonl"), list).unwrap();
    let oracle: Vec<Value> = fs::read_to_string(folder.join("oracle.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut worst_of_all = 0;
    for carrier in ["tcp", "quic"] {
        let is_of = |record: &&Value| (record["carrier"] == "quic") == (carrier == "quic");
        let wanted: Vec<_> = oracle.iter().filter(is_of).collect();
        let found: Vec<_> = found.iter().filter(is_of).collect();
        let (report, worst) = compare(&wanted, &found);
        eprintln!("{carrier}: {report}");
        worst_of_all = worst_of_all.max(worst);
    }
    let tolerated = oracle.len() * TOLERATED_PER_MILLE / 1000;
    assert!(worst_of_all <= tolerated, "{worst_of_all} of {} differ", oracle.len());
}

fn captures() -> Option<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let folder = project.parent()?.join("shared/captures");
    folder.join("oracle.jsonl").exists().then_some(folder)
}

/// The handshakes of all captures of a folder, as records with the oracle's fields.
fn analyse(folder: &Path) -> Vec<Value> {
    let mut analyser = Analyser::new(Limits::default());
    let mut found = Vec::new();
    for path in files(folder) {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
        let result = analyser.read(&fs::read(&path).unwrap()[..], |handshake| {
            let mut record = serde_json::to_value(handshake).unwrap();
            record["file"] = name.clone().into();
            found.push(record);
        });
        match result {
            Ok(summary) => {
                if let Some(stop) = summary.stop {
                    eprintln!("{name}: {stop}");
                }
            }
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    found
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

fn key(record: &Value) -> String {
    KEY.map(|field| record[field].to_string()).join(" ")
}

/// A field, with what is not known and what is not so taken as one.
fn value<'a>(record: &'a Value, field: &str) -> &'a Value {
    match &record[field] {
        Value::Bool(false) => &Value::Null,
        value => value,
    }
}

/// A report, and the largest number of differences in a field that is to be equal.
fn compare(wanted: &[&Value], found: &[&Value]) -> (String, usize) {
    let by_key: HashMap<_, _> = found.iter().map(|record| (key(record), *record)).collect();
    let missing: Vec<_> =
        wanted.iter().filter(|record| !by_key.contains_key(&key(record))).collect();
    let mut differing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for want in wanted {
        let Some(got) = by_key.get(&key(want)) else { continue };
        for field in COMPARED.into_iter().chain(TOLD) {
            let (want_value, got_value) = (value(want, field), value(got, field));
            if want_value != got_value {
                let example = format!("{want_value} not {got_value}: {}", key(want));
                differing.entry(field).or_default().push(example);
            }
        }
    }
    let extra = by_key.len() + missing.len() - wanted.len();
    let mut report = format!("{} wanted, {} missing, {extra} more\n", wanted.len(), missing.len());
    for record in missing.iter().take(EXAMPLES) {
        let _ = writeln!(report, "  missing {} {}", record["cls"], key(record));
    }
    let matched = wanted.len() - missing.len();
    let mut worst = missing.len();
    for field in COMPARED.into_iter().chain(TOLD) {
        let examples = differing.get(field).map(Vec::as_slice).unwrap_or_default();
        let _ = writeln!(report, "  {field}: {} of {matched} equal", matched - examples.len());
        for example in examples.iter().take(EXAMPLES) {
            let _ = writeln!(report, "    {example}");
        }
        if COMPARED.contains(&field) {
            worst = worst.max(examples.len());
        }
    }
    (report, worst)
}
