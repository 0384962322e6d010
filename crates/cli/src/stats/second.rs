//! `rejoin stats --watch`: a line for each second.

use std::thread;
use std::time::{Duration, Instant};

use crate::terminal::{self, Watch};

/// Prints the text of each second until Ctrl-C, or until nobody reads it. `say` gets the number of seconds before.
pub(super) fn each(mut say: impl FnMut(usize) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let watch = Watch::start()?;
    let mut next = Instant::now();
    for number in 0.. {
        next += Duration::from_secs(1);
        while Instant::now() < next && !watch.progress().stopped() {
            thread::sleep(Duration::from_millis(50));
        }
        if watch.progress().stopped() {
            break;
        }
        if !terminal::print_part(&say(number)?)? {
            break;
        }
    }
    Ok(())
}

/// Returns a line, below the heads of the columns once in a while.
pub(super) fn below(head: &str, number: usize, line: &str) -> String {
    const LINES_A_HEAD: usize = 20;
    if number.is_multiple_of(LINES_A_HEAD) { format!("{head}\n{line}") } else { line.to_owned() }
}
