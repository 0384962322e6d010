//! Compares the handshakes found in real captures with a second tool's answers.
//!
//! The captures lie beside the project (`shared/captures`), not in it; without them there is
//! nothing to compare.

use std::fs;
use std::path::{Path, PathBuf};

use rejoin_capture::{Analyser, Limits};
use rejoin_testkit::capture_answers::{answers, compare};
use serde_json::Value;

/// The number of handshakes or fields in a thousand that may differ.
const TOLERATED_PER_MILLE: usize = 3;

#[test]
fn real_captures_give_what_a_second_tool_found() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let folder = project.parent().unwrap().join("shared/captures");
    let Some(wanted) = answers(&folder) else {
        eprintln!("no captures beside the project: nothing is compared");
        return;
    };
    let found = analyse(&folder.join("files"));
    for carrier in ["tls", "quic"] {
        let of = |records: &[Value]| -> Vec<Value> {
            records.iter().filter(|record| record["carrier"] == carrier).cloned().collect()
        };
        let (wanted, found) = (of(&wanted), of(&found));
        let compared =
            compare(&wanted.iter().collect::<Vec<_>>(), &found.iter().collect::<Vec<_>>());
        eprintln!("{carrier}: {}", compared.report);
        let tolerated = compared.wanted.max(1_000) * TOLERATED_PER_MILLE / 1_000;
        let (field, differing) = compared.worst;
        assert!(compared.missing <= tolerated, "{} are missing", compared.missing);
        assert!(differing <= tolerated, "{field}: {differing} of {} differ", compared.wanted);
    }
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

pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
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
