//! The trace of a program's references to memory, as valgrind's lackey writes it, while it is written: nothing
//! of it is kept.

use super::simulator::{Hierarchies, Purpose};

/// A line that is longer is not one of lackey's.
const LONGEST_LINE_BYTES: usize = 256;

/// Text in pieces, of which the last line may lack its end.
#[derive(Debug, Default)]
pub(super) struct Trace {
    begun: Vec<u8>,
}

impl Trace {
    /// Passes on the references of whole lines; the rest waits for its end.
    pub(super) fn feed(&mut self, mut text: &[u8], to: &mut Hierarchies) {
        while let Some(at) = text.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = text.split_at(at);
            text = &rest[1..];
            if self.begun.is_empty() {
                refer(line, to);
            } else {
                self.keep(line);
                refer(&self.begun, to);
                self.begun.clear();
            }
        }
        self.keep(text);
    }

    fn keep(&mut self, text: &[u8]) {
        let room = LONGEST_LINE_BYTES.saturating_sub(self.begun.len());
        self.begun.extend_from_slice(&text[..text.len().min(room)]);
    }
}

fn refer(line: &[u8], to: &mut Hierarchies) {
    if let Some((purpose, address, bytes)) = parse(line) {
        to.refer(purpose, address, bytes);
    }
}

/// `I  0401ab70,3`, or with ` L`, ` S` or ` M` for what reads, writes or does both, which is one reference.
/// Whatever else valgrind or the program says is none.
fn parse(line: &[u8]) -> Option<(Purpose, u64, u32)> {
    let (purpose, rest) = match line {
        [b'I', b' ', b' ', rest @ ..] => (Purpose::Instruction, rest),
        [b' ', b'L' | b'S' | b'M', b' ', rest @ ..] => (Purpose::Data, rest),
        _ => return None,
    };
    let comma = rest.iter().position(|byte| *byte == b',')?;
    let address = number(&rest[..comma], 16)?;
    let bytes = number(&rest[comma + 1..], 10)?;
    Some((purpose, address, u32::try_from(bytes).ok()?))
}

fn number(digits: &[u8], base: u32) -> Option<u64> {
    let mut number = (!digits.is_empty()).then_some(0_u64)?;
    for digit in digits {
        let digit = char::from(*digit).to_digit(base)?;
        number = number.checked_mul(u64::from(base))?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::super::Geometry;
    use super::*;

    #[test]
    fn a_line_is_a_reference_or_nothing() {
        let (instruction, data) = (Purpose::Instruction, Purpose::Data);
        for (line, expected) in [
            ("I  0401ab70,3", Some((instruction, 0x0401_ab70, 3))),
            (" L 1fff000678,8", Some((data, 0x1f_ff00_0678, 8))),
            (" S 1FFF000678,16", Some((data, 0x1f_ff00_0678, 16))),
            (" M 0,1", Some((data, 0, 1))),
            ("", None),
            ("==7== Lackey, an example Valgrind tool", None),
            ("I  ,3", None),
            ("I  12", None),
            ("I  12,", None),
            ("I  12,-3", None),
            ("I  xyz,3", None),
            (" X 12,3", None),
            ("I  11112222333344445,3", None),
            ("I  1,99999999999", None),
        ] {
            assert_eq!(parse(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn lines_may_come_in_pieces() {
        let text = b"==1== hello\nI  04000000,3\n L 04000100,8\nI  04000003,30\n".as_slice();
        for piece in 1..text.len() {
            let first = Geometry::new(1_024, 2, 32).expect("possible");
            let mut all = Hierarchies::new(32, &[first], Vec::new());
            let mut trace = Trace::default();
            text.chunks(piece).for_each(|chunk| trace.feed(chunk, &mut all));
            let tally = all.tally();
            assert_eq!((tally.instructions, tally.data), (2, 1), "pieces of {piece}");
            assert_eq!(tally.first, [[2, 1]], "the second crosses a line");
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut all = Hierarchies::new(32, &[], Vec::new());
        let mut trace = Trace::default();
        (0..100).for_each(|_| trace.feed(&[b'7'; 1_000], &mut all));
        assert!(trace.begun.len() <= LONGEST_LINE_BYTES);
        trace.feed(b"\nI  0,1\n", &mut all);
        assert_eq!(all.tally().instructions, 1);
    }
}
