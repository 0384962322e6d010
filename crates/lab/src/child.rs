//! The output of child processes.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// The longest line that is read in one piece.
const LONGEST_LINE_BYTES: u64 = 1 << 20;

/// Reads lines on a thread, because reading a pipe has no deadline of its own. The thread ends with the output.
pub(crate) fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(output);
        loop {
            let mut line = String::new();
            let read = reader.by_ref().take(LONGEST_LINE_BYTES).read_line(&mut line);
            if !read.is_ok_and(|bytes| bytes > 0) || sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_until_the_output_ends() {
        let read: Vec<String> = lines(&b"one\ntwo"[..]).iter().collect();
        assert_eq!(read, ["one\n", "two"]);
    }
}
