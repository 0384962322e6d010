//! The rhythm in which a client comes.

/// The rhythm of a client that keeps no interval: how far its last gap is from its mean one, and how many gaps are known. Or, of
/// one that keeps an interval, the stage of its run: how many gaps it has lasted, and how many visits there were in the run before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Rhythm(pub(crate) u8);

impl Rhythm {
    /// The rhythm of a client of which one gap is known, or none.
    pub const NONE: Self = Self(0);
    /// The number of rhythms of clients that keep no interval, without that one.
    pub(crate) const COUNT: usize = Self::APART * Self::COUNTS as usize;
    /// The number of distances of the last gap from the mean that are told apart.
    pub(crate) const APART: usize = 2 * Self::OCTAVES_APART as usize + 1;
    const OCTAVES_APART: i32 = 2;
    /// Numbers of gaps that are told apart: two, up to four, up to eight, more.
    const COUNTS: u32 = 4;
    /// The number of stages of a run.
    pub(crate) const STAGES: usize = (Self::POSITIONS * Self::RUNS_BEFORE) as usize;
    /// Positions that are told apart: none, one, two or three gaps, more.
    const POSITIONS: u32 = 4;
    /// Runs before that are told apart: unknown, one visit, two or three, four to seven, more.
    const RUNS_BEFORE: u32 = 5;

    /// Makes the rhythm of a client whose last gap is so many octaves longer than its mean one, of so many gaps. Two octaves and
    /// more are the same, as are more than eight gaps.
    pub const fn new(octaves: i32, gaps: u32) -> Self {
        const MOST: i32 = 2 * Rhythm::OCTAVES_APART;
        if gaps < 2 {
            return Self::NONE;
        }
        let apart = match octaves.saturating_add(Self::OCTAVES_APART) {
            ..0 => 0,
            apart @ 0..MOST => apart,
            _ => MOST,
        };
        let counts = (gaps - 1).ilog2();
        let counts = if counts < Self::COUNTS { counts } else { Self::COUNTS - 1 };
        Self((1 + apart as u32 * Self::COUNTS + counts) as u8)
    }

    /// Makes the rhythm of a client with this last gap and this mean one, both in quarters of a class below 1,024, of so many gaps:
    /// up to 15.
    // From a table: every place that an eviction weighs has one, and to calculate it takes three times as long.
    #[inline]
    pub(crate) fn of_gaps(last: u32, mean: u32, gaps: u32) -> Self {
        const MOST: u32 = 32;
        static ALL: [[Rhythm; 16]; 2 * MOST as usize + 1] = {
            let mut all = [[Rhythm::NONE; 16]; 2 * MOST as usize + 1];
            let mut at = 0;
            while at < 16 * all.len() {
                all[at / 16][at % 16] = Rhythm::new((at / 16) as i32 - MOST as i32, at as u32 % 16);
                at += 1;
            }
            all
        };
        // Thirty-two quarters of a class are an octave.
        let octaves = (last + 32 * MOST + 16 - mean) / 32;
        ALL[octaves as usize][gaps as usize & 15]
    }

    /// Makes the stage of a run that has lasted so many gaps, of a client whose run before had so many visits; 0 if that is not
    /// known. Four gaps and more are the same, as are eight visits and more.
    #[inline]
    pub fn of_run(gaps: u32, visits_before: u32) -> Self {
        let position = octave(gaps).min(Self::POSITIONS - 1);
        let before = octave(visits_before).min(Self::RUNS_BEFORE - 1);
        Self(1 + Self::COUNT as u8 + (position * Self::RUNS_BEFORE + before) as u8)
    }

    /// Returns the number of a stage of a run.
    #[inline]
    pub(crate) fn stage(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1 + Self::COUNT)
    }

    /// Returns how far the last gap is from the mean, as a number from one to [`Self::APART`]; zero if no mean is known, or a stage.
    #[inline]
    pub(crate) fn apart(self) -> usize {
        if self.is_loose() { 1 + usize::from(self.0 - 1) / Self::COUNTS as usize } else { 0 }
    }

    /// Returns true if it is of a client that keeps no interval.
    #[inline]
    pub(crate) fn is_loose(self) -> bool {
        usize::from(self.0.wrapping_sub(1)) < Self::COUNT
    }
}

/// Returns the number of binary digits: 0 of 0, 1 of 1, 2 of 2 and 3, 3 of 4 to 7.
pub(crate) fn octave(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rhythms_are_told_apart_by_the_last_gap_and_the_number_of_gaps() {
        let all = (-9..9).flat_map(|octaves| (0..20).map(move |gaps| Rhythm::new(octaves, gaps)));
        let all: std::collections::BTreeSet<_> = all.collect();
        assert_eq!(all.len(), 1 + Rhythm::COUNT);
        assert!(all.iter().all(|rhythm| usize::from(rhythm.0) <= Rhythm::COUNT));
        let apart = [-9, -2, -1, 0, 1, 2, 9].map(|octaves| Rhythm::new(octaves, 5).apart());
        assert_eq!(apart, [1, 1, 2, 3, 4, 5, 5]);
        assert_eq!([Rhythm::NONE, Rhythm::of_run(2, 0)].map(Rhythm::apart), [0, 0]);
    }
}
