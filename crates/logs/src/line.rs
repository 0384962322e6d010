//! Lines of bounded length.

use std::io::{self, BufRead};

/// The longest line. A longer one is malformed, and is skipped without being kept.
pub const LONGEST_LINE_BYTES: usize = 64 << 10;

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// It is in the buffer, without its end.
    Whole,
    /// It was too long, and is skipped.
    TooLong,
    /// There is none.
    End,
}

/// Reads the next line into a buffer, which is emptied before.
pub(crate) fn read(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    let (mut any, mut too_long) = (false, false);
    loop {
        let read = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        any |= !read.is_empty();
        let end = read.iter().position(|byte| *byte == b'\n');
        let part = &read[..end.unwrap_or(read.len())];
        too_long |= line.len() + part.len() > LONGEST_LINE_BYTES;
        if !too_long {
            line.extend_from_slice(part);
        }
        let (taken, ended) =
            (part.len() + usize::from(end.is_some()), end.is_some() || read.is_empty());
        input.consume(taken);
        if ended {
            break;
        }
    }
    while line.last().is_some_and(|byte| byte.is_ascii_whitespace()) {
        line.pop();
    }
    Ok(match (any, too_long) {
        (false, _) => Line::End,
        (_, true) => Line::TooLong,
        _ => Line::Whole,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_skipped_and_the_next_is_read() {
        let long = vec![b'x'; LONGEST_LINE_BYTES + 1];
        let text = [b"one\r\n\n", &long[..], b"\ntwo"].concat();
        let (mut input, mut line) = (io::BufReader::with_capacity(7, &text[..]), Vec::new());
        let mut next = || (read(&mut input, &mut line).expect("memory"), line.clone());
        assert_eq!(next(), (Line::Whole, b"one".to_vec()));
        assert_eq!(next(), (Line::Whole, vec![]));
        assert_eq!(next().0, Line::TooLong);
        assert_eq!(next(), (Line::Whole, b"two".to_vec()));
        assert_eq!(next().0, Line::End);
        assert!(line.capacity() <= 2 * LONGEST_LINE_BYTES);
    }
}
