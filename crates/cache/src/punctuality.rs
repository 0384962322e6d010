//! Punctuality: how late the clients are that keep the application's interval.
//!
//! A client that is told to come every minute comes a little later: its request and the handshake take time. So a client counts as
//! overdue only when thirty-one of thirty-two clients with like intervals would have come. How much later than the interval that is,
//! as a share of it (the slack), is found step by step: it grows by thirty-one steps when a client is late, and shrinks by one when a
//! client is in time. One number is kept for each pair of octaves.

use std::sync::atomic::AtomicU32;

use crate::ages::{self, OCTAVES};
use crate::counts::{get, set};
use crate::interval::{Interval, IntervalClass};

/// The unit of slack, as a share of the interval: 2⁻²⁰.
const UNIT_BITS: u32 = 20;
/// The most slack: an eighth of the interval, which no class exceeds.
const MOST: u32 = 1 << (UNIT_BITS - 3);
/// A step.
const STEP: u32 = 8;
/// The clients in time for each that is late.
const IN_TIME: u32 = 31;

/// The slack that clients have, by pair of octaves. See [`crate::return_time::Waits`].
#[derive(Debug, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Punctuality {
    slack: [AtomicU32; OCTAVES],
}

impl Punctuality {
    /// Returns when a client is overdue that keeps an interval, counted from when it was last seen.
    #[inline]
    pub(crate) fn due(&self, interval: Interval) -> Interval {
        let slack = get(self.of(IntervalClass::holding(interval))).min(MOST);
        let ticks = u64::from(interval.ticks());
        Interval::from_ticks((ticks + ((ticks * u64::from(slack)) >> UNIT_BITS)) as u32)
    }

    /// Records that a client came at an age at which it was to be overdue or not. Those that came long before or after say nothing.
    #[inline]
    pub(crate) fn came(&self, class: IntervalClass, age_ticks: u32) {
        let due = class.upper_bound_ticks();
        if !(due - due / 4..=due + due / 8).contains(&age_ticks) {
            return;
        }
        let slack = self.of(class);
        match age_ticks > due {
            true => set(slack, get(slack).saturating_add(IN_TIME * STEP).min(MOST)),
            false => set(slack, get(slack).saturating_sub(STEP)),
        }
    }

    #[inline]
    fn of(&self, class: IntervalClass) -> &AtomicU32 {
        &self.slack[ages::pair_of_octaves(class)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Interval = Interval::from_ticks(15_000);

    /// Lets clients come so many ticks late, in turns, and returns after how many ticks they are overdue then.
    fn due_if(late: impl Fn(u32) -> u32) -> u32 {
        let punctuality: Box<Punctuality> = bytemuck::zeroed_box();
        let class = IntervalClass::holding(MINUTE);
        for number in 0..100_000 {
            let shift = class.upper_bound_ticks().saturating_sub(punctuality.due(MINUTE).ticks());
            punctuality.came(class, MINUTE.ticks() + late(number) + shift);
        }
        punctuality.due(MINUTE).ticks()
    }

    #[test]
    fn who_is_punctual_is_overdue_at_once() {
        assert_eq!(due_if(|_| 0), 15_000);
    }

    #[test]
    fn who_is_always_a_little_late_has_that_time() {
        let due = due_if(|_| 75);
        assert!((15_070..=15_080).contains(&due), "{due}");
    }

    #[test]
    fn most_are_waited_for() {
        let due = due_if(|number| number * 7 % 100);
        assert!((15_090..=15_100).contains(&due), "{due}: of a hundred, three are later than 96");
        let due = due_if(|number| if number % 100 == 0 { 300 } else { 0 });
        assert!(due <= 15_010, "{due}: one of a hundred is late");
    }

    #[test]
    fn nobody_is_waited_for_for_ever() {
        let due = due_if(|_| 1_800);
        assert!(due <= 15_000 + 15_000 / 8, "{due}");
    }
}
