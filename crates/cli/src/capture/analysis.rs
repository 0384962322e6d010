//! The reading of all inputs: each a capture of its own, or the parts of one in a folder that is followed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rejoin_capture::report::{Captured, LeftOut};
use rejoin_capture::sharing::Sharing;
use rejoin_capture::{Analyser, Error, Handshake, Limits, Summary};
use rejoin_sim::Progress;

use super::follow::Follow;
use super::inputs::Inputs;
use super::metrics::Counts;
use super::outputs::Outputs;
use super::programs::{Answer, Programs};
use super::{Arguments, random};
use crate::terminal;

/// The most handshakes that wait for their programs.
const MOST_WAITING: usize = 1 << 10;
/// The pause between two looks at them.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An analysis that runs until all is read, or until it is told to stop.
pub(super) struct Analysis<'a> {
    inputs: &'a Inputs,
    bar: &'a ProgressBar,
    analyser: Analyser,
    captured: Captured,
    found: Found<'a>,
}

/// The receivers of handshakes.
struct Found<'a> {
    arguments: &'a Arguments,
    sharing: &'a mut Sharing,
    outputs: &'a mut Outputs,
    counts: &'a Counts,
    stop: &'a Progress,
    handshakes: u64,
    /// The programs of a live capture, and the handshakes that wait for theirs.
    programs: Option<&'a Programs>,
    waiting: VecDeque<(String, Handshake)>,
    looked: Instant,
}

/// The result of reading one file, or the reason why it cannot be opened.
type Ended = Result<Result<Summary, Error>, String>;

impl<'a> Analysis<'a> {
    pub(super) fn new(
        arguments: &'a Arguments,
        inputs: &'a Inputs,
        sharing: &'a mut Sharing,
        outputs: &'a mut Outputs,
        (counts, stop, bar): (&'a Counts, &'a Progress, &'a ProgressBar),
    ) -> anyhow::Result<Self> {
        let analyser = Analyser::new(Limits { hash_seed: random()?, ..Limits::default() });
        let (programs, waiting) = (inputs.programs(), VecDeque::new());
        let looked = Instant::now();
        let found = Found {
            arguments,
            sharing,
            outputs,
            counts,
            stop,
            handshakes: 0,
            programs,
            waiting,
            looked,
        };
        Ok(Self { inputs, bar, analyser, captured: Captured::default(), found })
    }

    /// Reads all inputs, or until Ctrl-C.
    pub(super) fn run(mut self) -> Captured {
        match self.inputs.follow() {
            Some(follow) => self.follow(follow),
            None => self.read_all(),
        }
        let Self { inputs, bar, mut captured, found, .. } = self;
        captured.handshakes_seen = found.handshakes;
        captured.bytes = bar.position();
        bar.finish_and_clear();
        // Ctrl-C is the normal end of a live capture, and a closed pipe that of a list.
        let is_endless = found.arguments.interface.is_some() || inputs.follow().is_some();
        captured.interrupted = found.stop.stopped() && found.outputs.is_open() && !is_endless;
        let lost = inputs.lost().load(Ordering::Relaxed);
        if lost > 0 {
            let interface = found.arguments.interface.as_deref().unwrap_or_default();
            let file = found.outputs.shown(interface);
            let reason = format!("{lost} packets arrived faster than they were read, and are lost");
            terminal::complain(&format!("{file}: {reason}"));
            captured.left_out.push(LeftOut { file, reason });
        }
        captured
    }

    fn read_all(&mut self) {
        for input in self.inputs {
            if self.found.is_over() {
                break;
            }
            self.found.sharing.begin(self.inputs.application(&input.name));
            self.analyser.set_live(input.is_live());
            let read = input.open(self.found.stop, self.bar);
            let read = read.map(|reader| self.read(&input.name, reader, false));
            self.found.end();
            let left_out = self.left_out(&input.name, input.may_be_other, read);
            self.note(&input.name, left_out);
        }
    }

    /// Reads the parts of one capture.
    fn follow(&mut self, follow: &Follow) {
        self.analyser.set_live(true);
        self.found.sharing.begin(&follow.folder().display().to_string());
        let mut last = String::new();
        while let Some(part) = follow.next(self.found.stop).filter(|_| !self.found.is_over()) {
            last = part.name();
            let read = follow.reader(&part, self.found.stop, self.bar);
            let read = read.map_err(|error| error.to_string());
            let read = read.map(|reader| self.read(&last, reader, true));
            if matches!(read, Ok(Err(Error::NotACapture))) {
                follow.ignore(&part);
            }
            let left_out = self.left_out(&last, part.may_be_other(), read);
            // The last file is still being written.
            self.note(&last, left_out.filter(|_| !follow.is_over()));
        }
        match follow.unread_count() {
            0 => {}
            count => {
                let what = if count == 1 { "file is" } else { "files are" };
                let reason = format!("the time was over, and {count} {what} not read");
                self.note(&follow.folder().display().to_string(), Some(reason));
            }
        }
        let Self { analyser, found, .. } = self;
        analyser.finish(|handshake| found.take(&last, handshake));
        found.end();
    }

    fn read(&mut self, name: &str, reader: impl Read, goes_on: bool) -> Result<Summary, Error> {
        let Self { analyser, found, .. } = self;
        found.counts.begin();
        let found = RefCell::new(found);
        let reader = Attended { reader, before_each: || found.borrow_mut().give_known() };
        let each = |handshake| found.borrow_mut().take(name, handshake);
        let read =
            if goes_on { analyser.read_part(reader, each) } else { analyser.read(reader, each) };
        found.into_inner().give_all();
        read
    }

    /// Returns the reason why a capture was not read, or not to its end.
    fn left_out(&mut self, name: &str, may_be_other: bool, read: Ended) -> Option<String> {
        let summary = match read {
            Ok(Err(Error::NotACapture | Error::Empty)) if may_be_other => return None,
            Ok(Err(error)) => return Some(error.to_string()),
            Err(reason) => return Some(reason),
            Ok(Ok(summary)) => summary,
        };
        self.captured.captures += 1;
        self.captured.frames += summary.frames;
        if summary.dropped > 0 {
            self.captured.dropped = self.captured.dropped.saturating_add(summary.dropped);
            let what = format!("{} packets were dropped when this was captured", summary.dropped);
            self.complain(name, &what);
        }
        let unsupported = unsupported(&summary);
        let count = summary.unsupported.iter().map(|(_, count)| count).sum::<u64>();
        match summary.stop {
            Some(stop) => Some(stop.to_string()),
            None if count >= summary.frames => unsupported,
            None => {
                unsupported.iter().for_each(|what| self.complain(name, what));
                None
            }
        }
    }

    fn note(&mut self, name: &str, left_out: Option<String>) {
        // An interruption is no fault of the capture.
        let Some(reason) = left_out.filter(|_| !self.found.stop.stopped()) else { return };
        self.complain(name, &reason);
        // A file that is followed, and begun anew again and again, is left out once.
        let is_known = |known: &LeftOut| self.inputs.follow().is_some() && known.file == name;
        if !self.captured.left_out.iter().any(is_known) {
            self.captured.left_out.push(LeftOut { file: name.to_owned(), reason });
        }
    }

    fn complain(&self, name: &str, what: &str) {
        let file = self.found.outputs.shown(name);
        self.bar.suspend(|| terminal::complain(&format!("{file}: {what}")));
    }
}

impl Found<'_> {
    fn is_over(&self) -> bool {
        self.stop.stopped() || !self.outputs.is_open()
    }

    /// Takes a handshake, which may have to wait for its programs.
    fn take(&mut self, file: &str, mut handshake: Handshake) {
        let answer = self.programs.map(|programs| programs.name(&mut handshake));
        if !matches!(answer, Some(Answer::Later)) {
            return self.give(file, &handshake);
        }
        if self.waiting.len() >= MOST_WAITING
            && let Some((file, oldest)) = self.waiting.pop_front()
        {
            self.give(&file, &oldest);
        }
        self.waiting.push_back((file.to_owned(), handshake));
    }

    /// Gives the handshakes that wait no longer. It looks now and then, because it is called for each packet.
    fn give_known(&mut self) {
        if self.waiting.is_empty() || self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        for _ in 0..self.waiting.len() {
            if let Some((file, handshake)) = self.waiting.pop_front() {
                self.take(&file, handshake);
            }
        }
    }

    /// Gives all handshakes, as soon as their programs are known, or are not to be found.
    fn give_all(&mut self) {
        self.give_known();
        while !self.waiting.is_empty() {
            thread::sleep(LOOK_EVERY);
            self.give_known();
        }
    }

    /// Ends a capture.
    fn end(&mut self) {
        if self.outputs.needs_new() {
            let is_new = self.sharing.end();
            self.outputs.end(&is_new);
        }
    }

    fn give(&mut self, file: &str, handshake: &Handshake) {
        if self.arguments.server.is_none_or(|server| server == handshake.server_ip) {
            self.handshakes += 1;
            self.counts.add(handshake);
            // It keeps each, so that a list without an end would grow without an end.
            if self.outputs.needs_all() {
                self.sharing.add(handshake);
            }
            self.outputs.handshake(file, handshake);
        }
        if !self.outputs.is_open() {
            self.stop.stop();
        }
    }
}

/// A reader before each of whose reads something else is done.
struct Attended<R, F> {
    reader: R,
    before_each: F,
}

impl<R: Read, F: FnMut()> Read for Attended<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.before_each)();
        self.reader.read(buffer)
    }
}

/// Returns a message if some frames were not looked into.
fn unsupported(summary: &Summary) -> Option<String> {
    let kinds = summary.unsupported.iter();
    let kinds: Vec<String> = kinds.map(|(kind, count)| format!("{count} of {kind}")).collect();
    let frames = summary.frames;
    (!kinds.is_empty())
        .then(|| format!("of {frames} frames these cannot be looked into: {}", kinds.join(", ")))
}
