//! From lines to traces.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use rejoin_trace::{Event, Writer};

use crate::connections::{Connections, Reading};
use crate::entry::{Entry, Parser, Why};
use crate::error::Error;
use crate::fields::Tls;
use crate::input;
use crate::line::{self, Line};
use crate::record::Record;
use crate::single::Single;
use crate::sorted::Sorter;

/// The bits of a client's number: those above are a group's in a trace.
const CLIENT_BITS: u64 = (1 << 56) - 1;
/// The lines, or the sorted requests, between two questions whether to stop.
const AT_ONCE: u64 = 1 << 12;

/// A reader of logs.
#[derive(Debug)]
pub struct Collector {
    parser: Parser,
    sorter: Sorter,
    facts: Facts,
    /// The line of the file that is read.
    line: u64,
    clock: Clock,
    /// True if requests without TLS are kept to be counted in a window.
    keeps_plain: bool,
}

/// The content of logs, counted over all lines.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The number of lines that are not empty.
    pub lines: u64,
    /// The lines that were left out, by reason.
    pub malformed: BTreeMap<Why, Malformed>,
    /// The requests over TLS, as far as lines tell.
    pub requests: u64,
    /// The requests without TLS, which are left out.
    pub without_tls: u64,
    /// The requests that name a program (user agent).
    pub with_agent: u64,
    /// The requests that tell their connection, or their place in it.
    pub with_connection: u64,
    /// The requests with a value of a known field that is not understood.
    pub with_odd_value: u64,
    /// The requests whose times are without a zone, and read as UTC.
    pub without_zone: u64,
    /// The log whose times without a zone go back by about an hour and stay behind, as where summer time ends, and the line there
    /// at which they do; the first of all.
    pub clock_back: Option<(String, u64)>,
    /// The requests that came after a later one, and how much later that was at most, in milliseconds.
    pub out_of_order: (u64, u64),
    /// The first and the last time, in milliseconds since 1970.
    pub span_ms: Option<(u64, u64)>,
    /// The requests in the window that was asked for.
    pub in_window: u64,
    /// The requests without TLS in that window, and their connections as the first reading tells them apart, if they were
    /// kept.
    pub plain_in_window: (u64, u64),
    /// The clients that came back and whose connections are named, and those of them that never had another connection than
    /// their first; in a sample of 65,536 at most.
    pub came_back: (u64, u64),
    /// The longest time in which nobody came.
    pub longest_pause: Option<Pause>,
}

/// The times without a zone of a log, in its order.
#[derive(Debug, Default)]
struct Clock {
    latest_ms: u64,
    /// The lines in turn that are behind the latest time by about an hour.
    behind: u64,
    /// The first of them.
    since: u64,
}

impl Clock {
    /// About an hour: a clock that goes back may do so in a pause, or among lines that are not in order.
    const AN_HOUR_MS: std::ops::RangeInclusive<u64> = 50 * 60_000..=70 * 60_000;
    /// The lines in turn that tell a clock from a connection that was logged late.
    const FEWEST_BEHIND: u64 = 5;

    /// Takes the time of a line. Returns the line at which the clock went back, once that is known.
    fn went_back(&mut self, time_ms: u64, line: u64) -> Option<u64> {
        let behind_ms = self.latest_ms.saturating_sub(time_ms);
        self.latest_ms = self.latest_ms.max(time_ms);
        if !Self::AN_HOUR_MS.contains(&behind_ms) {
            self.behind = 0;
            return None;
        }
        if self.behind == 0 {
            self.since = line;
        }
        self.behind += 1;
        (self.behind == Self::FEWEST_BEHIND).then_some(self.since)
    }
}

/// A time in which nobody came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// The times of the request before it and of the one after it, in milliseconds since 1970.
    pub between_ms: (u64, u64),
    /// The requests before it.
    pub before: u64,
}

impl Pause {
    /// Returns its length in milliseconds.
    pub fn length_ms(&self) -> u64 {
        self.between_ms.1 - self.between_ms.0
    }
}

/// The lines of one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The number of lines.
    pub count: u64,
    /// The log that has the first, and its line there, from 1.
    pub first: (String, u64),
    /// The lines before that one, in all logs.
    before: u64,
}

impl Facts {
    /// Returns the number of lines that were left out, all reasons together.
    pub fn malformed(&self) -> u64 {
        self.malformed.values().map(|of| of.count).sum()
    }

    /// Returns the malformed lines of the reason that was met first.
    pub fn first_malformed(&self) -> Option<(Why, &Malformed)> {
        self.malformed.iter().map(|(why, of)| (*why, of)).min_by_key(|(_, of)| of.before)
    }

    fn leave_out(&mut self, why: Why, name: &str, line: u64) {
        let before = self.lines;
        let new = || Malformed { count: 0, first: (name.to_owned(), line), before };
        self.malformed.entry(why).or_insert_with(new).count += 1;
    }

    fn count(&mut self, entry: &Entry) {
        self.requests += 1;
        self.with_agent += u64::from(entry.agent.is_some());
        let connection_known = entry.connection.is_some() || entry.is_first.is_some();
        self.with_connection += u64::from(connection_known);
        self.with_odd_value += u64::from(entry.has_odd_value);
        self.without_zone += u64::from(!entry.has_zone);
        let (first, last) = self.span_ms.unwrap_or((entry.time_ms, entry.time_ms));
        if entry.time_ms < last {
            let (count, most_ms) = self.out_of_order;
            self.out_of_order = (count + 1, most_ms.max(last - entry.time_ms));
        }
        self.span_ms = Some((first.min(entry.time_ms), last.max(entry.time_ms)));
    }
}

/// The outcome of reading a log once.
#[derive(Debug)]
pub struct Told {
    /// The reading.
    pub reading: Reading,
    /// The number of connections.
    pub connections: u64,
    /// Those that began in the window that was asked for.
    pub in_window: u64,
    /// The number with TLS 1.3, and the number whose version is known.
    pub tls_13: (u64, u64),
    /// The number resumed, and the number of which that is known.
    pub reused: (u64, u64),
    /// The times at which the memory for open connections was full: then some counted twice.
    pub overflows: u64,
    /// The trace of the connections, with times from the first request on.
    pub trace: File,
}

/// The arrivals of logs.
#[derive(Debug)]
pub struct Arrivals {
    /// The counts.
    pub facts: Facts,
    /// The readings, in the order asked for.
    pub told: Vec<Told>,
}

impl Collector {
    /// Makes a collector. The parser's key should be random; the file, empty and readable, takes the records where they
    /// are too many for memory.
    pub fn new(key: [u8; 16], file: File) -> Self {
        let (parser, sorter) = (Parser::new(key), Sorter::new(file));
        Self {
            parser,
            sorter,
            facts: Facts::default(),
            line: 0,
            clock: Clock::default(),
            keeps_plain: false,
        }
    }

    /// Keeps requests without TLS, too, to count them in a window of time.
    pub fn keep_plain(&mut self) {
        self.keeps_plain = true;
    }

    /// Reads a log to its end; the name is for what is told of malformed lines. Logs may come in any order.
    ///
    /// # Errors
    /// Returns [`Error::Read`], [`Error::Compressed`], [`Error::Temporary`], [`Error::TooMany`], and [`Error::Stopped`] when `stopped` is true.
    pub fn read(
        &mut self,
        name: &str,
        log: impl Read,
        stopped: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let failed = |line, cause: io::Error| Error::Read { line, cause };
        let mut input = input::opened(log)?;
        let mut text = Vec::new();
        (self.line, self.clock) = (0, Clock::default());
        loop {
            // An input that waits ends where it is told to stop, also within what is compressed.
            let read = line::read(&mut input, &mut text).map_err(|cause| match stopped() {
                true => Error::Stopped,
                false => failed(self.line, cause),
            })?;
            self.line += 1;
            match read {
                Line::End if stopped() => return Err(Error::Stopped),
                Line::End => return Ok(()),
                Line::TooLong => {
                    self.facts.lines += 1;
                    self.facts.leave_out(Why::TooLong, name, self.line);
                }
                Line::Whole if text.is_empty() => {}
                Line::Whole => self.take(name, &text)?,
            }
            if self.line.is_multiple_of(AT_ONCE) && stopped() {
                return Err(Error::Stopped);
            }
        }
    }

    fn take(&mut self, name: &str, text: &[u8]) -> Result<(), Error> {
        self.facts.lines += 1;
        match self.parser.parse(text) {
            Err(why) => self.facts.leave_out(why, name, self.line),
            Ok(entry) if entry.tls == Tls::Plain => {
                self.facts.without_tls += 1;
                if self.keeps_plain {
                    self.keep(&entry)?;
                }
            }
            Ok(entry) => {
                self.facts.count(&entry);
                if !entry.has_zone
                    && let Some(line) = self.clock.went_back(entry.time_ms, self.line)
                {
                    self.facts.clock_back.get_or_insert_with(|| (name.to_owned(), line));
                }
                self.keep(&entry)?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, entry: &Entry) -> Result<(), Error> {
        self.sorter.push(Record::of(entry, self.sorter.count(), &self.parser))
    }

    /// Returns what was counted so far.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Sorts the requests, and writes the connections of each reading to a file that `file` makes. What is after the
    /// first time of `window_ms` and not after the second is counted apart.
    ///
    /// # Errors
    /// Returns an error if there is no request over TLS, those of files, and [`Error::Stopped`] when `stopped` is true.
    pub fn finish(
        self,
        readings: &[Reading],
        window_ms: (u64, u64),
        file: impl Fn() -> io::Result<File>,
        stopped: impl Fn() -> bool,
    ) -> Result<Arrivals, Error> {
        let Self { mut facts, sorter, .. } = self;
        let Some((first_ms, _)) = facts.span_ms else { return Err(nothing(&facts)) };
        let outputs = readings.iter().map(|reading| Output::new(*reading, &file));
        let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let (after_ms, until_ms) = window_ms;
        let mut pauses = Pauses::default();
        let mut single = Single::new(readings.first().map_or(0, |reading| reading.keep_alive_ms));
        let mut plain = readings.first().map(|reading| Connections::new(*reading));
        sorter.each(|record| {
            if pauses.requests.is_multiple_of(AT_ONCE) && stopped() {
                return Err(Error::Stopped);
            }
            let within = record.time_ms > after_ms && record.time_ms <= until_ms;
            if record.is_plain() {
                let begins = plain.as_mut().is_some_and(|plain| plain.begins(&record));
                let (requests, connections) = &mut facts.plain_in_window;
                *requests += u64::from(within);
                *connections += u64::from(within && begins);
                return Ok(());
            }
            pauses.add(record.time_ms);
            single.take(&record);
            facts.in_window += u64::from(within);
            outputs.iter_mut().try_for_each(|output| output.take(&record, first_ms, within))
        })?;
        let told = outputs.into_iter().map(Output::finish).collect::<Result<_, _>>()?;
        (facts.longest_pause, facts.came_back) = (pauses.longest, single.counts());
        Ok(Arrivals { facts, told })
    }
}

/// The pauses between requests, which come in order of time.
#[derive(Debug, Default)]
struct Pauses {
    longest: Option<Pause>,
    last_ms: Option<u64>,
    requests: u64,
}

impl Pauses {
    fn add(&mut self, now_ms: u64) {
        if let Some(last_ms) = self.last_ms.replace(now_ms) {
            let pause = Pause { between_ms: (last_ms, now_ms), before: self.requests };
            if self.longest.is_none_or(|longest| pause.length_ms() > longest.length_ms()) {
                self.longest = Some(pause);
            }
        }
        self.requests += 1;
    }
}

/// Returns the error for logs without a request over TLS.
fn nothing(facts: &Facts) -> Error {
    match facts.first_malformed() {
        _ if facts.without_tls > 0 => Error::WithoutTls { requests: facts.without_tls },
        Some((why, Malformed { first: (_, line), .. })) => {
            Error::NothingKnown { lines: facts.lines, line: *line, why }
        }
        None => Error::Empty,
    }
}

/// The output of one reading.
struct Output {
    connections: Connections,
    writer: Writer<File>,
    told: Told,
}

impl Output {
    fn new(reading: Reading, file: impl Fn() -> io::Result<File>) -> Result<Self, Error> {
        let trace = file().map_err(Error::Temporary)?;
        let written = trace.try_clone().map_err(Error::Temporary)?;
        let told = Told {
            reading,
            connections: 0,
            in_window: 0,
            tls_13: (0, 0),
            reused: (0, 0),
            overflows: 0,
            trace,
        };
        let writer = Writer::new(written).map_err(Error::Trace)?;
        Ok(Self { connections: Connections::new(reading), writer, told })
    }

    fn take(&mut self, record: &Record, first_ms: u64, within: bool) -> Result<(), Error> {
        if !self.connections.begins(record) {
            return Ok(());
        }
        let add = |(yes, known): (u64, u64), is: Option<bool>| {
            (yes + u64::from(is == Some(true)), known + u64::from(is.is_some()))
        };
        self.told.connections += 1;
        self.told.in_window += u64::from(within);
        self.told.tls_13 = add(self.told.tls_13, record.is_13());
        self.told.reused = add(self.told.reused, record.reused());
        let event = Event {
            time_ms: record.time_ms - first_ms,
            client: self.connections.client(record) & CLIENT_BITS,
            first_of_run: false,
            returns_in_ms: None,
        };
        self.writer.write(event).map_err(Error::Trace)
    }

    fn finish(self) -> Result<Told, Error> {
        self.writer.finish().map_err(Error::Trace)?;
        Ok(Told { overflows: self.connections.overflows, ..self.told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the line at which the clock of a log went back, if it did. Times are in minutes.
    fn went_back(times: &[u64]) -> Option<u64> {
        let mut clock = Clock::default();
        let lines = (1..).zip(times);
        lines.filter_map(|(line, minute)| clock.went_back(minute * 60_000, line)).next()
    }

    #[test]
    fn a_clock_that_goes_back_is_told_from_lines_that_come_late() {
        let day = 24 * 60;
        let summer_ends: Vec<u64> = (day..day + 180).chain(day + 120..day + 300).collect();
        assert_eq!(went_back(&summer_ends), Some(181));
        let late = |late: u64| (day..day + 600).flat_map(move |at| [at, at - late]);
        for minutes in [0, 1, 60, 120] {
            assert_eq!(went_back(&late(minutes).collect::<Vec<_>>()), None, "{minutes}");
        }
        let another_day: Vec<u64> = (day..day + 180).chain(0..300).collect();
        assert_eq!(went_back(&another_day), None, "a log of the day before, behind it");
    }
}
