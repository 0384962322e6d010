//! Errors in a trace, or in the settings of a population.

use std::io;

/// A trace that cannot be read or written, or settings that describe no population.
///
/// Events are counted from 1, bytes from 0 at the start of the trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input that does not begin with the bytes of a trace.
    #[error("not a rejoin trace: it begins with other bytes; give a file that rejoin recorded")]
    NotATrace,
    /// A trace written by another version of this program.
    #[error(
        "a trace of version {found}, where this program reads version {}: record it again",
        crate::VERSION
    )]
    AnotherVersion {
        /// The version in its header.
        found: u32,
    },
    /// An input that ends before the end mark: the trace was never finished, or lost its tail.
    #[error(
        "cut after {} whole events (byte {}): the recording was interrupted; record it again",
        grouped(*events),
        grouped(*byte)
    )]
    Cut {
        /// The number of whole events before the cut.
        events: u64,
        /// The byte at which the input ends.
        byte: u64,
    },
    /// Bytes that differ from those that were written.
    #[error(
        "damaged after {} whole events (byte {}): {what}; copy it again or record it again",
        grouped(*events),
        grouped(*byte)
    )]
    Damaged {
        /// The number of whole events before the record that shows the damage. The damage itself may
        /// be earlier.
        events: u64,
        /// The byte at which the record that shows the damage begins.
        byte: u64,
        /// The evidence of the damage.
        what: &'static str,
    },
    /// An event earlier than the one before it, read or about to be written.
    #[error(
        "event {} (byte {}) is at {} ms, the event before it at {} ms: sort the events by time",
        grouped(*event),
        grouped(*byte),
        grouped(*time_ms),
        grouped(*before_ms)
    )]
    BackInTime {
        /// The event, counted from 1.
        event: u64,
        /// The byte at which its record begins.
        byte: u64,
        /// Its time.
        time_ms: u64,
        /// The time of the event before it.
        before_ms: u64,
    },
    /// A failure of the input.
    #[error(
        "reading failed after {} whole events (byte {}): {cause}",
        grouped(*events),
        grouped(*byte)
    )]
    Read {
        /// The number of whole events read.
        events: u64,
        /// The byte at which it was reading.
        byte: u64,
        /// The input's own error.
        cause: io::Error,
    },
    /// A failure of the output.
    #[error("writing failed after {} events: {cause}", grouped(*events))]
    Write {
        /// The number of events accepted; the last of them may not have reached the output.
        events: u64,
        /// The output's own error.
        cause: io::Error,
    },
    /// An input whose format neither its bytes nor its name tell.
    #[error(
        "{name:?} is in no format known here: \
         give a trace that rejoin recorded, a .csv, or a file with oracleGeneral in its name"
    )]
    UnknownFormat {
        /// The input's name.
        name: String,
    },
    /// A trace that is compressed.
    #[error("compressed with {with}: decompress it first, with {with} -d")]
    Compressed {
        /// The program that compressed it.
        with: &'static str,
    },
    /// A CSV file whose first line does not name the columns of a trace.
    #[error(
        "line 1: {what}: begin with time_ms,client \
         or with time_ms,client,first_of_run,returns_in_ms"
    )]
    BadHeader {
        /// The fault.
        what: String,
    },
    /// A field of a CSV file that its column cannot hold.
    #[error("line {}, column {column}: {text:?} is not {expected}", grouped(*line))]
    BadField {
        /// The line, counted from 1: the header is the first.
        line: u64,
        /// The column's name.
        column: &'static str,
        /// The field, shortened if it is long.
        text: String,
        /// A description of a right field.
        expected: &'static str,
    },
    /// A line of a CSV file that is no event.
    #[error("line {}: {what}", grouped(*line))]
    BadLine {
        /// The line, counted from 1: the header is the first.
        line: u64,
        /// The fault, and the remedy.
        what: &'static str,
    },
    /// A setting outside its range.
    #[error(
        "{name} is {}: it must be between {} and {}",
        grouped(*value),
        grouped(*least),
        grouped(*most)
    )]
    OutOfRange {
        /// The setting's name.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The smallest allowed.
        least: u64,
        /// The largest allowed.
        most: u64,
    },
    /// A setting with a fraction outside its range, or not a number.
    #[error("{name} is {value}: it must be between {least} and {most}")]
    NumberOutOfRange {
        /// The setting's name.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The smallest allowed.
        least: f64,
        /// The largest allowed.
        most: f64,
    },
    /// Text that is not an interval mix.
    #[error(
        "{entry:?} is not an interval and its weight: \
         write seconds:weight, separated by commas, such as 60:23,30:13,15:2"
    )]
    BadMix {
        /// The part that was not understood.
        entry: String,
    },
    /// A mix that never chooses any interval.
    #[error("no interval has a weight above 0: give at least one, such as 60:1")]
    WeightlessMix,
    /// A factor by which time cannot be divided.
    #[error("a speed-up of {factor}: it must be a number above 0, such as 6")]
    BadSpeedUp {
        /// The factor, as it was written.
        factor: String,
    },
    /// A factor that leaves nothing of a setting.
    #[error("a speed-up of {factor} leaves less than a millisecond of {name}: use a smaller one")]
    TooFast {
        /// The factor.
        factor: f64,
        /// The setting that vanishes.
        name: &'static str,
    },
}

/// Refuses a setting outside its range.
pub(crate) fn in_range(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::OutOfRange { name, value, least, most })
}

/// Refuses a setting with a fraction outside its range.
pub(crate) fn number_in_range(
    name: &'static str,
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::NumberOutOfRange { name, value, least, most })
}

/// Formats a number with commas between its thousands, as in the messages of this crate.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        let texts = [0, 999, 1_000, 29_640, 1_234_567, u64::MAX].map(grouped);
        let expected = ["0", "999", "1,000", "29,640", "1,234,567", "18,446,744,073,709,551,615"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_message_names_place_and_remedy_in_one_line() {
        let text = Error::Cut { events: 1_234, byte: 29_640 }.to_string();
        let expected = "cut after 1,234 whole events (byte 29,640): \
                        the recording was interrupted; record it again";
        assert_eq!(text, expected);
    }
}
