//! A client and a server in one thread, and what each takes of it.

use std::cell::RefCell;
use std::time::Duration;

use crate::Error;
use crate::cost::{Missing, OwnMeter};
use crate::over_memory::cpu_time;

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

/// The work of one side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    pub(super) cpu: Duration,
    /// `None` where nothing counts them.
    pub(super) user_instructions: Option<f64>,
    pub(super) sent_bytes: u64,
}

impl Side {
    /// The work of a side that has not begun.
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

/// The readings of the meters, for the thread alone that started them.
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

/// The resources that one side takes of the thread.
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

#[cfg(test)]
mod tests {
    use super::*;

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
