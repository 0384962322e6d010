//! The memory of a process, searched for secrets.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// A secret's kind and its bytes.
pub type Secret = (&'static str, Vec<u8>);

/// The bytes that are searched for at a time: a secret that is there in part is found, too.
const PART_BYTES: usize = 16;
/// The bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The bytes that were searched, and the kinds of secrets that were found.
#[derive(Debug)]
pub struct Search {
    pub bytes: usize,
    pub found: HashSet<&'static str>,
}

/// Searches everything that the process may read itself.
pub fn search(pid: u32, secrets: &[Secret]) -> Search {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("a process of ours");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process of ours");
    let parts = Parts::of(secrets);
    let mut search = Search { bytes: 0, found: HashSet::new() };
    let mut piece = vec![0; PIECE_BYTES + PART_BYTES - 1];
    for (from, to) in maps.lines().filter_map(readable) {
        let mut at = from;
        while at < to {
            let wanted = piece.len().min((to - at) as usize);
            // Pages of the kernel's own cannot be read.
            let Ok(read) = memory.read_at(&mut piece[..wanted], at) else { break };
            parts.search(&piece[..read], &mut search.found);
            search.bytes += read.min(PIECE_BYTES);
            // Pieces overlap: what lies across their border is found, too.
            if read <= PIECE_BYTES {
                break;
            }
            at += PIECE_BYTES as u64;
        }
    }
    search
}

/// A line of `/proc/PID/maps`.
fn readable(line: &str) -> Option<(u64, u64)> {
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let address = |digits| u64::from_str_radix(digits, 16).ok();
    rest.starts_with('r').then_some((address(from)?, address(to)?))
}

struct Parts<'s> {
    parts: Vec<(&'static str, &'s [u8])>,
    /// True where a part begins with these two bytes.
    begins: Vec<bool>,
}

impl<'s> Parts<'s> {
    fn of(secrets: &'s [Secret]) -> Self {
        let parts = secrets.iter();
        let parts: Vec<_> = parts
            .flat_map(|(what, secret)| secret.chunks_exact(PART_BYTES).map(|part| (*what, part)))
            .collect();
        let mut begins = vec![false; 1 << 16];
        parts.iter().for_each(|(_, part)| begins[beginning(part)] = true);
        Self { parts, begins }
    }

    fn search(&self, memory: &[u8], found: &mut HashSet<&'static str>) {
        for window in memory.windows(PART_BYTES) {
            if self.begins[beginning(window)] {
                let there = self.parts.iter().filter(|(_, part)| *part == window);
                found.extend(there.map(|(what, _)| *what));
            }
        }
    }
}

fn beginning(part: &[u8]) -> usize {
    usize::from(part[0]) << 8 | usize::from(part[1])
}
