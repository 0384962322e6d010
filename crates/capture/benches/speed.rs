//! How fast captures are read, from memory, on one thread.
//!
//! `cargo bench -p rejoin-capture -- FILE…`; without files, the captures beside the project.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a bench measures and tells")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rejoin_capture::{Analyser, Limits};

const ROUNDS: u32 = 5;

fn main() {
    let given: Vec<PathBuf> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).map(PathBuf::from).collect();
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures/files");
    let mut paths = if given.is_empty() { vec![beside] } else { given };
    let mut captures = Vec::new();
    while let Some(path) = paths.pop() {
        if let Ok(entries) = fs::read_dir(&path) {
            paths.extend(entries.flatten().map(|entry| entry.path()));
        } else if let Ok(bytes) = fs::read(&path) {
            captures.push(bytes);
        }
    }
    let mut analyser = Analyser::new(Limits::default());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let (mut bytes, mut frames, mut handshakes) = (0, 0, 0);
        for capture in &captures {
            if let Ok(summary) = analyser.read(&capture[..], |_| {}) {
                bytes += capture.len();
                frames += summary.frames;
                handshakes += summary.handshakes;
            }
        }
        let elapsed_s = begin.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "for a human reader")]
        let (megabytes, handshake_count) = (bytes as f64 / 1e6, handshakes as f64);
        println!(
            "{} captures, {megabytes:.1} MB, {frames} frames, {handshakes} handshakes: \
             {:.0} MB/s, {:.0} handshakes/s",
            captures.len(),
            megabytes / elapsed_s,
            handshake_count / elapsed_s,
        );
    }
}
