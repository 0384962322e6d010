//! The start of a server, which all of its processes have in common.

use std::fs;

/// The most ancestors that are looked at.
const ANCESTORS: usize = 16;

/// Returns a number, never 0, that stands for this start of the server: all of its processes get the same one, and
/// after a restart they get another. It stands for the furthest ancestor that runs the same program without another
/// in between. Without /proc it stands for this process.
pub(crate) fn this() -> u64 {
    let Some(mut first) = Process::read("self") else { return std::process::id().into() };
    for _ in 0..ANCESTORS {
        match Process::read(&first.parent) {
            Some(parent) if parent.program == first.program => first = parent,
            _ => break,
        }
    }
    // Ids have at most 22 bits.
    first.started_ticks << 22 | first.id
}

/// A process, as proc_pid_stat(5) has it.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    id: u64,
    program: String,
    parent: String,
    /// Since the machine started.
    started_ticks: u64,
}

impl Process {
    fn read(id: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let (id, rest) = stat.split_once(" (")?;
        // A program's name may have any characters.
        let (program, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ').skip(1);
        let parent = fields.next()?.to_owned();
        let started_ticks = fields.nth(17)?.parse().ok()?;
        Some(Self { id: id.parse().ok()?, program: program.to_owned(), parent, started_ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_is_read() {
        let stat = "4092 (a) (b) S 17 4092 4092 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 9";
        let (program, parent) = ("a) (b".to_owned(), "17".to_owned());
        let process = Process { id: 4092, program, parent, started_ticks: 123_456 };
        assert_eq!(Process::parse(stat), Some(process));
        assert_eq!(Process::parse("4092 (cut) S 17 4092"), None);
    }

    #[test]
    fn it_is_the_same_for_all_threads_and_at_all_times() {
        let start = this();
        assert!(start != 0);
        assert_eq!(std::thread::spawn(this).join().expect("no panic"), start);
    }
}
