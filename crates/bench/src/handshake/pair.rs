//! A client and a server in one thread, with memory between them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Error;
use crate::cost::{Missing, OwnMeter};

/// A client and a server that know each other.
pub(super) trait Pair {
    /// A connection, from its beginning to its end. With `resumes` the client offers the session of
    /// the last one, and there must have been one; otherwise it has none to offer.
    fn connect(&mut self, resumes: bool, watch: &Watch) -> Result<Connected, Error>;
}

/// A connection that is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connected {
    pub(super) resumed: bool,
    pub(super) server: Side,
    pub(super) client: Side,
}

/// What one side did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    pub(super) cpu: Duration,
    /// `None` where nothing counts them.
    pub(super) user_instructions: Option<f64>,
    pub(super) sent_bytes: u64,
}

impl Side {
    /// Of one that has not begun.
    pub(super) const NOTHING: Self =
        Self { cpu: Duration::ZERO, user_instructions: Some(0.0), sent_bytes: 0 };

    pub(super) fn plus(self, other: Self) -> Self {
        let both = self.user_instructions.zip(other.user_instructions);
        Self {
            cpu: self.cpu + other.cpu,
            user_instructions: both.map(|(one, other)| one + other),
            sent_bytes: self.sent_bytes + other.sent_bytes,
        }
    }
}

/// No handshake takes more turns.
pub(super) const MOST_FLIGHTS: u32 = 4;

/// What meters read: of the thread that started it alone.
#[derive(Debug)]
pub(super) struct Watch(Result<RefCell<OwnMeter>, Missing>);

impl Watch {
    pub(super) fn start() -> Self {
        Self(OwnMeter::start().map(RefCell::new))
    }

    /// Why instructions are not counted.
    pub(super) fn missing(&self) -> Option<Missing> {
        self.0.as_ref().err().copied()
    }

    pub(super) fn meter(&self) -> Meter<'_> {
        Meter { watch: self, sum: Side::NOTHING }
    }

    fn user_instructions(&self) -> Option<f64> {
        self.0.as_ref().ok()?.borrow_mut().read()
    }
}

/// What one side takes of the thread.
#[derive(Debug)]
pub(super) struct Meter<'w> {
    watch: &'w Watch,
    sum: Side,
}

impl Meter<'_> {
    pub(super) fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        // Counting is not to be in the CPU time.
        let counted = self.watch.user_instructions();
        let began = cpu_time();
        let done = work();
        let cpu = cpu_time() - began;
        let both = self.watch.user_instructions().zip(counted);
        let user_instructions = both.map(|(now, before)| now - before);
        self.sum = self.sum.plus(Side { cpu, user_instructions, sent_bytes: 0 });
        done
    }

    pub(super) fn side(self, sent_bytes: u64) -> Side {
        Side { sent_bytes, ..self.sum }
    }
}

/// Of this thread, user and system.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A library did not do what it was asked for.
pub(super) fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let what = "handshakes cannot be measured here";
    Error::System { what, source: io::Error::other(cause) }
}

/// One end of a connection in memory.
pub(super) struct Pipe {
    incoming: Rc<RefCell<Way>>,
    outgoing: Rc<RefCell<Way>>,
}

/// One direction.
#[derive(Default)]
struct Way {
    waiting: VecDeque<u8>,
    carried: u64,
}

impl Pipe {
    pub(super) fn pair() -> (Self, Self) {
        let (one, other) = (Rc::default(), Rc::default());
        let end = Self { incoming: Rc::clone(&one), outgoing: Rc::clone(&other) };
        (end, Self { incoming: other, outgoing: one })
    }

    /// Whether there is something to read.
    pub(super) fn has_news(&self) -> bool {
        !self.incoming.borrow().waiting.is_empty()
    }

    /// Bytes written to this end so far.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.outgoing.borrow().carried
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let waiting = &mut self.incoming.borrow_mut().waiting;
        if waiting.is_empty() {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            waiting.read(buffer)
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut way = self.outgoing.borrow_mut();
        way.carried += bytes.len() as u64;
        way.waiting.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_counts_what_it_carries() {
        let (mut one, mut other) = Pipe::pair();
        one.write_all(b"three").expect("memory");
        assert!(other.has_news() && !one.has_news());
        let mut two = [0; 2];
        other.read_exact(&mut two).expect("it is there");
        assert_eq!((&two, one.sent_bytes(), other.sent_bytes()), (b"th", 5, 0));
        assert_eq!(one.read(&mut two).expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_meter_sees_work_and_no_rest() {
        let watch = Watch::start();
        let mut meter = watch.meter();
        let rest = std::time::Instant::now();
        meter.time(|| std::thread::sleep(Duration::from_millis(50)));
        let after_rest = meter.sum.cpu;
        assert!(after_rest < rest.elapsed() / 2, "{after_rest:?}");
        let sum = meter.time(|| (0..3_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
        assert!(meter.sum.cpu > after_rest + Duration::from_micros(100), "{sum}");
        let counted = meter.side(0).user_instructions;
        match watch.missing() {
            Some(_) => assert_eq!(counted, None),
            None => assert!(counted > Some(3e6), "{counted:?}"),
        }
    }
}
