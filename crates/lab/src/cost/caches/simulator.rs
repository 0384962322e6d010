//! Set-associative caches that keep what was used last, and the paper's auxiliary cache beside one: pure, and
//! counted as cachegrind counts, so that both can be compared.
//!
//! A reference that crosses the end of a line is one reference, and one miss if any of its two lines is
//! missing. Reads and writes are alike: a write brings its line in. The second level is asked for the lines that
//! the first has not, and never for one that it has; nothing is taken from the first because it left the second.
//! Not here: write-back, prefetching, and other processors.

use super::Geometry;

/// Lines of memory that a reference touches: one, or two beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
}

/// A cache. Sets are ordered from what was used last to what was not used for longest.
#[derive(Debug, Clone)]
pub(super) struct Lru {
    /// Numbers of lines plus one, `ways` for each set; 0 where nothing is.
    lines: Vec<u64>,
    ways: usize,
    sets: u64,
}

impl Lru {
    pub(super) fn new(geometry: Geometry) -> Self {
        let (sets, ways) = (geometry.sets(), geometry.ways);
        Self { lines: vec![0; (sets * ways) as usize], ways: ways as usize, sets: u64::from(sets) }
    }

    /// Returns true if the line was there. Afterwards it is there.
    fn touch(&mut self, line: u64) -> bool {
        let set = self.set(line);
        let at = set.iter().position(|held| *held == line + 1);
        let last = at.unwrap_or(set.len() - 1);
        set[..=last].rotate_right(1);
        set[0] = line + 1;
        at.is_some()
    }

    /// Returns true if the line was there, and makes it the most recently used one.
    fn touch_held(&mut self, line: u64) -> bool {
        self.set(line).contains(&(line + 1)) && self.touch(line)
    }

    /// Returns true if the line was there. Afterwards it is not.
    fn take(&mut self, line: u64) -> bool {
        let set = self.set(line);
        let Some(at) = set.iter().position(|held| *held == line + 1) else { return false };
        set[at] = 0;
        set[at..].rotate_left(1);
        true
    }

    fn set(&mut self, line: u64) -> &mut [u64] {
        let at = (line % self.sets) as usize * self.ways;
        &mut self.lines[at..at + self.ways]
    }
}

/// A second level.
#[derive(Debug, Clone)]
pub(super) enum Second {
    /// One cache.
    Alone(Lru),
    /// §5 of the paper: a line is brought into the auxiliary cache (L2′) when it is first referenced, and
    /// moved into the main one when it is again. One that is touched once leaves L2′ without having been in
    /// the main one.
    Beside { main: Lru, auxiliary: Lru },
}

impl Second {
    /// Returns true if the line was in either cache.
    fn touch(&mut self, line: u64) -> bool {
        match self {
            Self::Alone(cache) => cache.touch(line),
            Self::Beside { main, auxiliary } => {
                if main.touch_held(line) {
                    return true;
                }
                if auxiliary.take(line) {
                    main.touch(line);
                    return true;
                }
                auxiliary.touch(line);
                false
            }
        }
    }
}

/// The accesses and misses of a hierarchy since it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) instructions: u64,
    pub(super) data: u64,
    /// Misses of each first level, in the order given: for instructions, and for data.
    pub(super) first: Vec<[u64; 2]>,
    /// Misses of each second level, in the order given.
    pub(super) second: Vec<u64>,
}

impl Tally {
    /// Returns the counts between an earlier tally and this one.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let first = self.first.iter().zip(&earlier.first);
        let second = self.second.iter().zip(&earlier.second);
        Self {
            instructions: self.instructions - earlier.instructions,
            data: self.data - earlier.data,
            first: first.map(|(now, then)| [now[0] - then[0], now[1] - then[1]]).collect(),
            second: second.map(|(now, then)| now - then).collect(),
        }
    }
}

/// The purpose of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Instruction,
    Data,
}

/// First levels of several sizes, and second levels behind the one that was given first: all see the same
/// references.
#[derive(Debug)]
pub(super) struct Hierarchies {
    line_shift: u32,
    first: Vec<[Lru; 2]>,
    second: Vec<Second>,
    tally: Tally,
}

impl Hierarchies {
    /// All with lines of `line_bytes`, a power of two.
    pub(super) fn new(line_bytes: u32, first: &[Geometry], second: Vec<Second>) -> Self {
        let pair = |geometry: &Geometry| [Lru::new(*geometry), Lru::new(*geometry)];
        let tally = Tally {
            first: vec![[0; 2]; first.len()],
            second: vec![0; second.len()],
            ..Tally::default()
        };
        let first = first.iter().map(pair).collect();
        Self { line_shift: line_bytes.trailing_zeros(), first, second, tally }
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// A reference to `bytes` bytes, of which those of two lines count.
    pub(super) fn refer(&mut self, purpose: Purpose, address: u64, bytes: u32) {
        let first = address >> self.line_shift;
        let last = address.saturating_add(u64::from(bytes.max(1) - 1)) >> self.line_shift;
        let span = Span { first, last: last.min(first + 1) };
        let kind = match purpose {
            Purpose::Instruction => {
                self.tally.instructions += 1;
                0
            }
            Purpose::Data => {
                self.tally.data += 1;
                1
            }
        };
        for (at, (caches, missed)) in self.first.iter_mut().zip(&mut self.tally.first).enumerate() {
            let Some(missing) = span.missing(|line| caches[kind].touch(line)) else { continue };
            missed[kind] += 1;
            if at == 0 {
                for (cache, missed) in self.second.iter_mut().zip(&mut self.tally.second) {
                    *missed += u64::from(missing.missing(|line| cache.touch(line)).is_some());
                }
            }
        }
    }
}

impl Span {
    /// Those of its lines that are not there; each is asked for.
    fn missing(self, mut touch: impl FnMut(u64) -> bool) -> Option<Self> {
        let Self { first, last } = self;
        let has_first = touch(first);
        let has_last = if last == first { has_first } else { touch(last) };
        match (has_first, has_last) {
            (true, true) => None,
            (true, false) => Some(Self { first: last, last }),
            (false, true) => Some(Self { first, last: first }),
            (false, false) => Some(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(size_bytes: u32, ways: u32) -> Geometry {
        Geometry::new(size_bytes, ways, 32).expect("possible")
    }

    /// Which of these lines were there.
    fn hits(mut touch: impl FnMut(u64) -> bool, lines: &[u64]) -> Vec<bool> {
        lines.iter().map(|line| touch(*line)).collect()
    }

    #[test]
    fn a_set_drops_what_was_not_used_for_longest() {
        // Two sets of two lines: even lines share one.
        let mut cache = Lru::new(geometry(128, 2));
        let seen = hits(|line| cache.touch(line), &[0, 2, 0, 4, 2, 0, 1, 4]);
        //   0 and 2 are in; 0 again; 4 drops 2; 2 drops 0; 0 drops 4; 1 is in the other set.
        assert_eq!(seen, [false, false, true, false, false, false, false, false]);
        assert_eq!(hits(|line| cache.touch(line), &[1, 4, 0]), [true, true, true]);
    }

    /// Data that is read piece by piece counts as touched once, although each piece begins in the line that the last
    /// one ended in.
    #[test]
    fn a_line_that_the_first_level_has_is_no_reference_to_the_second() {
        let beside = Second::Beside {
            main: Lru::new(geometry(4_096, 4)),
            auxiliary: Lru::new(geometry(64, 2)),
        };
        let mut all = Hierarchies::new(32, &[geometry(256, 4)], vec![beside]);
        for round in 1..=2 {
            (0..64).for_each(|piece| all.refer(Purpose::Data, 16 + 32 * piece, 32));
            // Lines leave L2′ before they come again, and were never in L2.
            assert_eq!((all.tally().first[0][1], all.tally().second[0]), (64 * round, 64 * round));
        }
    }

    #[test]
    fn what_is_taken_leaves_its_place() {
        let mut cache = Lru::new(geometry(64, 2));
        cache.touch(0);
        cache.touch(1);
        assert!(cache.take(1) && !cache.take(1));
        cache.touch(2);
        // 0 was not pushed out: 2 took the place of 1.
        assert!(cache.touch_held(0) && cache.touch_held(2) && !cache.touch_held(1));
    }

    #[test]
    fn one_that_fits_is_missed_once_and_one_that_does_not_always() {
        let mut cache = Lru::new(geometry(256, 8));
        let mut misses = |lines: u64| (0..lines).filter(|line| !cache.touch(*line)).count();
        assert_eq!((misses(8), misses(8)), (8, 0));
        // A ninth line, round and round: each is dropped just before it comes again.
        assert_eq!((misses(9), misses(9)), (1, 9));
    }

    fn beside(main: (u32, u32), auxiliary: (u32, u32)) -> Second {
        Second::Beside {
            main: Lru::new(geometry(main.0, main.1)),
            auxiliary: Lru::new(geometry(auxiliary.0, auxiliary.1)),
        }
    }

    #[test]
    fn lines_touched_once_do_not_reach_the_main_cache() {
        // Four lines and two: 0 and 1 are used again and again, 100… once each.
        let mut with = beside((128, 4), (64, 2));
        let mut alone = Second::Alone(Lru::new(geometry(128, 4)));
        let mut trace = vec![0, 0, 1, 1];
        for round in 0..10 {
            trace.extend((0..4).map(|one| 100 + round * 4 + one));
            trace.extend([0, 1]);
        }
        let misses = |cache: &mut Second| trace.iter().filter(|line| !cache.touch(**line)).count();
        // All that is used once misses, 0 and 1 once. Alone, 0 and 1 are pushed out every time.
        assert_eq!((misses(&mut with), misses(&mut alone)), (42, 62));
    }

    #[test]
    fn what_comes_back_too_late_for_the_auxiliary_is_never_kept() {
        // Eight lines in turns would fit into a main cache of eight. Through two they never come in.
        let mut with = beside((256, 8), (64, 2));
        let mut alone = Second::Alone(Lru::new(geometry(256, 8)));
        let misses = |cache: &mut Second| {
            (0..10).flat_map(|_| 0..8).filter(|line| !cache.touch(*line)).count()
        };
        assert_eq!((misses(&mut with), misses(&mut alone)), (80, 8));
    }

    #[test]
    fn a_reference_across_lines_is_one_and_misses_once() {
        let second = vec![Second::Alone(Lru::new(geometry(1_024, 4)))];
        let mut all = Hierarchies::new(32, &[geometry(64, 2), geometry(256, 2)], second);
        all.refer(Purpose::Data, 30, 4);
        all.refer(Purpose::Data, 32, 8);
        all.refer(Purpose::Instruction, 0, 1);
        // More than two lines: as much as two.
        all.refer(Purpose::Data, 0, 512);
        let expected =
            Tally { instructions: 1, data: 3, first: vec![[1, 1], [1, 1]], second: vec![1] };
        assert_eq!(all.tally(), &expected);
        let before = all.tally().clone();
        all.refer(Purpose::Data, 96, 1);
        all.refer(Purpose::Data, 128, 1);
        all.refer(Purpose::Data, 0, 1);
        let since = all.tally().since(&before);
        // The smaller first level has lost line 0, which the second still has.
        assert_eq!((since.data, since.first, since.second), (3, vec![[0, 3], [0, 2]], vec![2]));
    }

    #[test]
    fn the_end_of_memory_is_a_place_too() {
        let mut all = Hierarchies::new(32, &[geometry(64, 2)], Vec::new());
        all.refer(Purpose::Data, u64::MAX, u32::MAX);
        all.refer(Purpose::Data, 0, 0);
        assert_eq!(all.tally().first, [[0, 2]]);
    }
}
