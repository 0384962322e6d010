//! The clock of a capture: the times of its frames, by which it is looked for handshakes that are over. It stands still
//! where nobody waits for them: the parts of a capture at rest may be of several clocks, or lie one behind the other.

use crate::observation::{At, NO_TIME};

/// The time for which a handshake that has begun may pause. Browsers ask their users for a client certificate in it.
pub(crate) const LONGEST_PAUSE_NS: u64 = 300_000_000_000;
/// The time between two looks for such handshakes, and the connections that are looked at for each frame in it.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
const LOOKED_AT_FOR_A_FRAME: usize = 16;

/// The packets for which nothing is ended after the time went back by as much as a pause: another clock is in the same file.
const OTHER_CLOCK_PACKETS: u32 = 1 << 16;

/// The clock of a capture.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    is_moving: bool,
    last_ns: u64,
    distrusted: u32,
    looked_ns: u64,
    frames: usize,
}

impl Clock {
    /// Creates a clock that moves, or stands still.
    pub(crate) fn new(is_moving: bool) -> Self {
        Self { is_moving, ..Self::default() }
    }

    /// Takes the time of a frame. Returns the time if it is one to look, at this many connections. It is the earlier one of
    /// the last two frames: a single wrong time ends nothing.
    pub(crate) fn tick(&mut self, at: At, connections: usize) -> Option<u64> {
        if !self.is_moving || at.time_ns == NO_TIME {
            return None;
        }
        let before_ns = std::mem::replace(&mut self.last_ns, at.time_ns);
        self.distrusted = match before_ns.saturating_sub(at.time_ns) >= LONGEST_PAUSE_NS {
            true => OTHER_CLOCK_PACKETS,
            false => self.distrusted.saturating_sub(1),
        };
        let now_ns = before_ns.min(at.time_ns);
        self.frames += 1;
        let is_due = self.distrusted == 0
            && now_ns.abs_diff(self.looked_ns) >= LOOK_EVERY_NS
            && self.frames >= connections / LOOKED_AT_FOR_A_FRAME;
        is_due.then(|| {
            (self.looked_ns, self.frames) = (now_ns, 0);
            now_ns
        })
    }
}

/// Returns true if the last packet of a handshake came so long ago that the handshake has failed.
pub(crate) fn has_paused(last: Option<At>, now_ns: u64) -> bool {
    last.is_some_and(|last| now_ns.saturating_sub(last.time_ns) >= LONGEST_PAUSE_NS)
}
