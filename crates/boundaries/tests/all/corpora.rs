//! Every input that is kept, once through its target.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use rejoin_boundaries::TARGETS;

const FUZZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz");
/// The target that is in `rejoin-gnutls`, where a test replays it.
const ELSEWHERE: &str = "gnutls_shadow";
/// The most bytes of all inputs, which everybody who clones the repository gets.
const MOST_BYTES: u64 = 300_000;

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

fn inputs(target: &str) -> Vec<PathBuf> {
    let mut inputs = entries(&Path::new(FUZZ).join("corpus").join(target));
    inputs.sort();
    inputs
}

#[test]
fn every_input_that_is_kept_is_replayed() {
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        for input in inputs(name) {
            let bytes = fs::read(&input).expect("a file");
            if catch_unwind(|| target(&bytes)).is_err() {
                failed.push(input);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn every_target_has_a_program_and_inputs() {
    let name = |path: PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    let programs = entries(&Path::new(FUZZ).join("src/bin")).into_iter().map(name);
    let targets = TARGETS.iter().map(|(name, _)| (*name).to_owned()).chain([ELSEWHERE.to_owned()]);
    let targets: BTreeSet<_> = targets.collect();
    assert_eq!(programs.collect::<BTreeSet<_>>(), targets);
    let inputs: Vec<_> = targets
        .iter()
        .flat_map(|name| {
            let inputs = inputs(name);
            assert!(!inputs.is_empty(), "{name} has none");
            inputs
        })
        .collect();
    let bytes: u64 = inputs.iter().map(|input| fs::metadata(input).expect("a file").len()).sum();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}
