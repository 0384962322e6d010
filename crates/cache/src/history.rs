//! The history of a client's own past visits.

use crate::interval::{Gap, Interval, TICK_MS};

/// The last two gaps between a client's visits: four bytes that travel with the client, from a
/// consumed TLS 1.3 ticket to its successor and from an evicted session to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct History {
    gap: Gap,
    gap_before: Gap,
}

impl History {
    /// The length of a history outside the cache.
    pub const BYTES: usize = 4;

    /// Returns the bytes for a place where the client itself keeps them, such as an encrypted ticket.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        bytemuck::cast([self.gap.to_le_bytes(), self.gap_before.to_le_bytes()])
    }

    /// Reads a history. Any bytes are one: a gap longer than 49 days becomes one of 49 days.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [gap, gap_before]: [[u8; 2]; 2] = bytemuck::cast(bytes);
        Self { gap: Gap::from_le_bytes(gap), gap_before: Gap::from_le_bytes(gap_before) }
    }

    /// Adds a visit that came `ticks` after the last. If the client's two gaps agree and it was then
    /// away for more than three of them, it has begun a new run of visits: the absence says nothing
    /// about its habit and is not recorded.
    pub(crate) fn record(&mut self, ticks: u32) {
        if let Some(habit) = self.habit()
            && u64::from(ticks) > 3 * u64::from(habit)
        {
            return;
        }
        self.gap_before = self.gap;
        self.gap = Gap::from_ticks(ticks);
    }

    /// Returns the interval that the client keeps, and whether its last two gaps agree on it. If
    /// they do not, the interval is the last gap.
    pub fn interval(self) -> Option<(Interval, bool)> {
        let gap = self.gap.ticks()?;
        let agreed = self.gap_before.ticks().filter(|before| agree(gap, *before));
        Some((Interval::from_ticks(agreed.map_or(gap, |before| before.max(gap))), agreed.is_some()))
    }

    /// Returns the shorter of the known gaps, which a hint may not undercut. This stops a client
    /// from gaining a place with the claim to be back sooner than it ever was.
    #[inline]
    pub(crate) fn least(self) -> Option<Interval> {
        let gap = self.gap.ticks()?;
        Some(Interval::from_ticks(self.gap_before.ticks().map_or(gap, |before| gap.min(before))))
    }

    /// Returns true if one of the last two gaps agrees with an interval.
    #[inline]
    pub(crate) fn keeps(self, interval: Interval) -> bool {
        let gaps = [self.gap.ticks(), self.gap_before.ticks()];
        gaps.into_iter().flatten().any(|gap| agree(gap, interval.ticks()))
    }

    /// Packs the last gap, and whether the one before agrees, into thirteen bits.
    pub(crate) fn coarse(self) -> u32 {
        u32::from(self.habit().is_some()) << 12 | self.gap.coarse()
    }

    pub(crate) fn from_coarse(coarse: u32) -> Self {
        let gap = Gap::from_coarse(coarse);
        Self { gap, gap_before: if coarse >> 12 & 1 == 1 { gap } else { Gap::default() } }
    }

    /// Returns the gap of a client whose last two gaps agree.
    fn habit(self) -> Option<u32> {
        let (gap, before) = (self.gap.ticks()?, self.gap_before.ticks()?);
        agree(gap, before).then_some(gap)
    }
}

/// Returns true if a gap is within a fifth of the interval and half a second.
fn agree(gap_ticks: u32, interval_ticks: u32) -> bool {
    const HALF_A_SECOND: u32 = (500 / TICK_MS) as u32;
    gap_ticks.abs_diff(interval_ticks) <= interval_ticks / 5 + HALF_A_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(gaps: &[u32]) -> History {
        let mut history = History::default();
        gaps.iter().for_each(|&gap| history.record(gap));
        history
    }

    #[test]
    fn a_new_run_keeps_the_habit() {
        let steady = history(&[15_000, 15_010]);
        assert_eq!(history(&[15_000, 15_010, 690_000]), steady);
        assert_ne!(history(&[15_000, 15_010, 30_000]), steady);
        assert_eq!(
            history(&[15_000, 15_010]).interval(),
            Some((Interval::from_ticks(15_008), true))
        );
        assert_eq!(history(&[15_000, 690_000]).interval().map(|(_, agreed)| agreed), Some(false));
    }

    #[test]
    fn bytes_say_the_same_everywhere() {
        for gaps in [&[][..], &[1], &[15_000], &[15_000, 690_000], &[u32::MAX, 7]] {
            let before = history(gaps);
            assert_eq!(History::from_bytes(before.to_bytes()), before, "{gaps:?}");
        }
        assert_eq!(history(&[1, 2]).to_bytes(), [2, 0, 1, 0]);
        let longest = history(&[u32::MAX, 1, u32::MAX]);
        assert_eq!(
            History::from_bytes([0xff; 4]).interval(),
            longest.interval().map(|(i, _)| (i, true))
        );
    }

    #[test]
    fn a_ghost_remembers_the_habit() {
        for gaps in [&[15_000][..], &[15_000, 15_000], &[15_000, 30_000], &[]] {
            let before = history(gaps);
            let after = History::from_coarse(before.coarse());
            assert_eq!(after.habit().is_some(), before.habit().is_some(), "{gaps:?}");
            assert_eq!(after.interval().is_some(), before.interval().is_some(), "{gaps:?}");
        }
    }
}
