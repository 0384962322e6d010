//! Real captures, damaged as captures are: lossy, cut, with one direction, of two clocks, out of
//! order, with copies. What is known of a handshake then is what the whole capture says, or less.
//!
//! `cargo test -p rejoin-capture --test all transforms -- --ignored --nocapture` applies a hundred
//! transforms to all captures and prints the shares of what is unknown.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rejoin_capture::{Analyser, Class, Handshake, Limits};

use crate::damage::{Frame, Random, Transform, all, frames, written};
use crate::oracle::files;

/// The most wrong answers that are shown.
const SHOWN: usize = 20;

#[derive(Default)]
struct Outcome {
    /// Handshakes that the whole capture shows to be full or resumed.
    certain: usize,
    found: usize,
    known: usize,
    /// Those that a perfect reader could know: found to be full or resumed, or with the frames of both hellos and of the
    /// message that decides.
    knowable: usize,
    wrong: Vec<String>,
}

#[test]
fn damaged_captures_give_no_wrong_verdict() {
    // Each transform sees another part of the captures.
    let _ = run(|transform, capture| (transform + capture) % 25 == 0);
}

#[test]
#[ignore = "takes minutes: a hundred transforms of all captures"]
fn a_hundred_transforms_of_all_captures_give_no_wrong_verdict() {
    let unknown = run(|_, _| true);
    if unknown.is_empty() {
        return;
    }
    let guide = include_str!("../../../../docs/capture.md");
    for (damage, transforms) in IN_THE_GUIDE {
        let shares = transforms.iter().map(|name| shown(unknown[*name])).collect::<Vec<_>>();
        let row = format!("| {damage} | {} |", shares.join(", "));
        assert!(guide.contains(&row), "docs/capture.md does not say: {row}");
    }
}

/// Rows of the guide's table, and their transforms.
const IN_THE_GUIDE: [(&str, &[&str]); 4] = [
    ("snap length 96, 128, 160", &["snap length 96", "snap length 128", "snap length 160"]),
    (
        "snap length 200, 262, 600, 1,400",
        &["snap length 200", "snap length 262", "snap length 600", "snap length 1400"],
    ),
    (
        "one direction lost, the other lost",
        &["direction false loses 100 %", "direction true loses 100 %"],
    ),
    ("snap length 400 and 20 % lost", &["snap 400, loss 20 %"]),
];

/// Returns a share as the guide has it. Copies can make it less than none.
fn shown(percent: f64) -> String {
    let text = format!("{:.1}", percent.max(0.0));
    if text == "0.0" { "0".to_owned() } else { text }
}

/// Damages the captures, prints what became of them, and returns the shares that are unknown, in percent, by transform. Nothing
/// where there are no captures.
fn run(is_wanted: impl Fn(usize, usize) -> bool) -> HashMap<String, f64> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let folder = project.parent().unwrap().join("shared/captures/files");
    if !folder.exists() {
        eprintln!("no captures beside the project: nothing is damaged");
        return HashMap::new();
    }
    let transforms = all();
    let mut outcomes: Vec<Outcome> = transforms.iter().map(|_| Outcome::default()).collect();
    for (place, path) in files(&folder).iter().enumerate() {
        if !(0..transforms.len()).any(|transform| is_wanted(transform, place)) {
            continue;
        }
        let Some(frames) = frames(&std::fs::read(path).unwrap()) else { continue };
        let truth = analyse(&frames);
        let name = path.file_name().unwrap().to_string_lossy();
        for (transform, outcome) in transforms.iter().zip(&mut outcomes).enumerate().filter_map(
            |(number, (transform, outcome))| {
                is_wanted(number, place).then_some((transform, outcome))
            },
        ) {
            let mut random = Random(place as u64 + 1);
            let damaged = (transform.apply)(&frames, &mut random);
            let found = analyse(&damaged);
            compare(&truth, &found, outcome, &name, transform);
            outcome.knowable += knowable(&truth, &found, &damaged);
        }
    }
    let (mut wrong, mut unknown) = (0, HashMap::new());
    for (transform, outcome) in transforms.iter().zip(&outcomes) {
        let Outcome { certain, found, known, knowable, .. } = outcome;
        let without = |known: usize| 100.0 * (1.0 - known as f64 / (*certain).max(1) as f64);
        eprintln!(
            "{:28} {certain:6} {found:6} {known:6} {:6.1} {:6.1} {:4}",
            transform.name,
            without(*known),
            without(*knowable),
            outcome.wrong.len()
        );
        wrong += outcome.wrong.len();
        unknown.insert(transform.name.clone(), without(*known));
        if transform.name.starts_with("in ") {
            assert_eq!(known, certain, "{}: nothing is missing in a tunnel", transform.name);
        }
    }
    let shown = outcomes.iter().flat_map(|outcome| &outcome.wrong).take(SHOWN);
    shown.for_each(|wrong| eprintln!("{wrong}"));
    assert_eq!(wrong, 0, "wrong answers");
    unknown
}

fn analyse(frames: &[Frame]) -> Vec<Handshake> {
    let mut found = Vec::new();
    let capture = written(frames);
    Analyser::new(Limits::default()).read(&capture[..], |handshake| found.push(handshake)).unwrap();
    found
}

/// A handshake's identity in its capture, which the rewriting of addresses does not change.
fn key(handshake: &Handshake) -> (u16, u16, Option<Vec<u8>>) {
    let random = handshake.ch_random.clone().filter(|random| !random.is_empty());
    (handshake.client_port, handshake.server_port, random)
}

fn is_known(handshake: &Handshake) -> bool {
    matches!(handshake.cls, Class::Full | Class::Resumed)
}

fn compare(
    truth: &[Handshake],
    found: &[Handshake],
    outcome: &mut Outcome,
    file: &str,
    transform: &Transform,
) {
    let mut by_key: HashMap<_, Vec<&Handshake>> = HashMap::new();
    for handshake in truth {
        let (client, server, random) = key(handshake);
        by_key.entry((client, server, None)).or_default().push(handshake);
        if random.is_some() {
            by_key.entry((client, server, random)).or_default().push(handshake);
        }
    }
    outcome.certain += truth.iter().filter(|handshake| is_known(handshake)).count();
    outcome.found += found.len();
    for handshake in found {
        let Some(candidates) = by_key.get(&key(handshake)) else { continue };
        if is_known(handshake) {
            outcome.known += 1;
        }
        if !candidates.iter().any(|truth| agrees(truth, handshake)) {
            let differing = candidates.first().map(|truth| differences(truth, handshake));
            let told = format!("{}: {file}: {:?} {differing:?}", transform.name, key(handshake));
            outcome.wrong.push(told);
        }
    }
}

/// Counts the handshakes that a perfect reader could know.
fn knowable(truth: &[Handshake], found: &[Handshake], damaged: &[Frame]) -> usize {
    let whole: HashSet<u64> =
        damaged.iter().filter(|frame| frame.is_whole).map(|frame| frame.number).collect();
    let known: HashSet<_> = found.iter().filter(|it| is_known(it)).map(key).collect();
    let is_there = |frame: Option<u64>| frame.is_none_or(|frame| whole.contains(&frame));
    let is_knowable = |truth: &&Handshake| {
        let Handshake { frame_ch, frame_sh, proof_frame, .. } = **truth;
        let (client, server, random) = key(truth);
        known.contains(&(client, server, random))
            || known.contains(&(client, server, None))
            || [frame_ch, frame_sh, proof_frame].into_iter().all(is_there)
    };
    truth.iter().filter(|handshake| is_known(handshake)).filter(is_knowable).count()
}

fn agrees(truth: &Handshake, found: &Handshake) -> bool {
    differences(truth, found).is_empty()
}

/// The fields in which something is told that the whole capture contradicts.
fn differences(truth: &Handshake, found: &Handshake) -> Vec<String> {
    let record = |handshake: &Handshake| serde_json::to_value(handshake).unwrap();
    let mut differing = Vec::new();
    if is_known(truth) && is_known(found) && truth.cls != found.cls {
        differing.push(format!("cls {:?} not {:?}", truth.cls, found.cls));
    }
    let (truth, found) = (record(truth), record(found));
    for field in [
        "sni",
        "version",
        "psk_offered",
        "early_data_offered",
        "offered_sid_len",
        "offered_ticket_len",
        "offered_ticket_hash",
        "client_auth",
        "issued_ticket_len",
        "issued_ticket_lifetime_s",
        "issued_ticket_hash",
        "issued_sid_len",
        "session_id_hash",
    ] {
        if !truth[field].is_null() && !found[field].is_null() && truth[field] != found[field] {
            differing.push(format!("{field} {} not {}", truth[field], found[field]));
        }
    }
    differing
}
