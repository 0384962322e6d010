//! Records in order of time, however many there are and however they came.
//!
//! A million at a time are sorted in memory. If there are more, each million becomes a run in a file, and the runs are
//! merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::error::Error;
use crate::record::Record;

/// The records that are sorted in memory: 40 MiB.
const AT_ONCE: usize = 1 << 20;
/// The most runs, each with a buffer of its own: a billion requests.
const MOST_RUNS: usize = 1 << 10;
/// The records in a run's buffer.
const BUFFERED: usize = 1 << 10;

/// A reader of a file that other readers read, too, from a place of its own.
#[derive(Debug, Clone)]
pub struct ReadAt {
    file: Arc<File>,
    offset: u64,
}

impl ReadAt {
    /// Makes a reader from this place on.
    pub fn new(file: Arc<File>, offset: u64) -> Self {
        Self { file, offset }
    }
}

impl Read for ReadAt {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.offset)?;
        self.offset += length as u64;
        Ok(length)
    }
}

/// The collector of records to sort.
#[derive(Debug)]
pub(crate) struct Sorter {
    file: File,
    at_once: usize,
    records: Vec<Record>,
    runs: usize,
    count: u64,
}

impl Sorter {
    pub(crate) fn new(file: File) -> Self {
        Self { file, at_once: AT_ONCE, records: Vec::new(), runs: 0, count: 0 }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn push(&mut self, record: Record) -> Result<(), Error> {
        if self.records.len() == self.at_once {
            self.write_run()?;
        }
        self.records.push(record);
        self.count += 1;
        Ok(())
    }

    fn write_run(&mut self) -> Result<(), Error> {
        if self.runs == MOST_RUNS {
            return Err(Error::TooMany { most: (MOST_RUNS * self.at_once) as u64 });
        }
        self.records.sort_unstable();
        let mut output = BufWriter::new(&self.file);
        let mut written = self.records.iter().try_for_each(|one| output.write_all(&one.to_bytes()));
        written = written.and_then(|()| output.flush());
        written.map_err(Error::Temporary)?;
        self.records.clear();
        self.runs += 1;
        Ok(())
    }

    /// Passes the records in order of time.
    pub(crate) fn each(
        mut self,
        mut with: impl FnMut(Record) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.runs == 0 {
            self.records.sort_unstable();
            return self.records.drain(..).try_for_each(with);
        }
        if !self.records.is_empty() {
            self.write_run()?;
        }
        let Self { file, at_once, runs, count, .. } = self;
        let file = Arc::new(file);
        let run_bytes = (at_once * Record::BYTES) as u64;
        let run = |at: usize| {
            let before = (at * at_once) as u64;
            let left = (count - before).min(at_once as u64);
            Run {
                input: ReadAt::new(file.clone(), at as u64 * run_bytes),
                left,
                buffer: Vec::new(),
            }
        };
        let mut runs: Vec<Run> = (0..runs).map(run).collect();
        let mut heads = BinaryHeap::new();
        for (at, run) in runs.iter_mut().enumerate() {
            heads.extend(run.next()?.map(|record| Reverse((record, at))));
        }
        while let Some(Reverse((record, at))) = heads.pop() {
            with(record)?;
            heads.extend(runs[at].next()?.map(|record| Reverse((record, at))));
        }
        Ok(())
    }
}

/// A sorted part of the file.
struct Run {
    input: ReadAt,
    left: u64,
    /// Records that were read, the next one last.
    buffer: Vec<Record>,
}

impl Run {
    fn next(&mut self) -> Result<Option<Record>, Error> {
        if self.buffer.is_empty() && self.left > 0 {
            let count = self.left.min(BUFFERED as u64) as usize;
            let mut bytes = vec![0; count * Record::BYTES];
            self.input.read_exact(&mut bytes).map_err(Error::Temporary)?;
            let records = bytes.as_chunks::<{ Record::BYTES }>().0;
            self.buffer.extend(records.iter().rev().map(Record::from_bytes));
            self.left -= count as u64;
        }
        Ok(self.buffer.pop())
    }
}

#[cfg(test)]
mod tests {
    use rejoin_testkit::random::Random;

    use super::*;
    use crate::entry::Parser;

    #[test]
    fn runs_are_merged_as_if_they_were_sorted_at_once() {
        let mut random = Random::new(7);
        let parser = Parser::new([1; 16]);
        let lines: Vec<String> = (0..10_000)
            .map(|_| {
                let (second, client) = (random.below(60), random.below(50));
                format!("10.0.0.{client} - - [25/Nov/2026:15:49:{second:02} +0000] \"\" 400 0")
            })
            .collect();
        let record = |(place, line): (usize, &String)| {
            Record::of(&parser.parse(line.as_bytes()).expect("a line"), place as u64, &parser)
        };
        let mut expected: Vec<Record> = lines.iter().enumerate().map(record).collect();
        let path = std::env::temp_dir().join(format!("rejoin-logs-runs-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        std::fs::remove_file(&path).expect("its own");
        let mut sorter = Sorter { at_once: 700, ..Sorter::new(file.expect("a file")) };
        for record in &expected {
            sorter.push(*record).expect("room");
        }
        let mut found = Vec::new();
        let each = |record| {
            found.push(record);
            Ok(())
        };
        sorter.each(each).expect("its own records");
        expected.sort_unstable();
        assert!(found == expected);
    }
}
