//! A tally of requests by kind, from which all hit rates are calculated.

/// The kind of a request: its group, and whether it is the first of its device, of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(u16);

impl Kind {
    /// The kind of requests in the warm-up.
    pub(crate) const UNCOUNTED: Self = Self(0);
    const PER_GROUP: usize = 4;
    const FIRST_OF_DEVICE: usize = 1;
    const FIRST_OF_RUN: usize = 2;

    pub(crate) fn new(group: usize, first_of_device: bool, first_of_run: bool) -> Self {
        let firsts = usize::from(first_of_device) * Self::FIRST_OF_DEVICE
            + usize::from(first_of_run) * Self::FIRST_OF_RUN;
        Self((1 + group * Self::PER_GROUP + firsts) as u16)
    }
}

const _: () = assert!(rejoin_trace::MOST_GROUPS as usize * Kind::PER_GROUP < u16::MAX as usize);

/// The number of requests of each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tally(Vec<u64>);

/// The numbers of requests on which the hit rates are based.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) all: u64,
    pub(crate) after_first_of_device: u64,
    pub(crate) after_first_of_run: u64,
}

impl Tally {
    pub(crate) fn new(groups: usize) -> Self {
        Self(vec![0; 1 + groups * Kind::PER_GROUP])
    }

    #[inline]
    pub(crate) fn add(&mut self, kind: Kind, one: bool) {
        self.0[usize::from(kind.0)] += u64::from(one);
    }

    /// Returns so many times as many of each kind.
    pub(crate) fn times(&self, times: f64) -> Self {
        Self(self.0.iter().map(|count| (*count as f64 * times).round() as u64).collect())
    }

    /// Returns the number of all that count.
    pub(crate) fn counted(&self) -> u64 {
        self.0[1..].iter().sum()
    }

    pub(crate) fn total(&self) -> Counts {
        (0..self.groups()).map(|group| self.of(group)).fold(Counts::default(), Counts::plus)
    }

    /// Returns the numbers of a group.
    pub(crate) fn of(&self, group: usize) -> Counts {
        let kinds = &self.0[1 + group * Kind::PER_GROUP..][..Kind::PER_GROUP];
        let without = |bit: usize| {
            let kinds = kinds.iter().enumerate().filter(|(kind, _)| kind & bit == 0);
            kinds.map(|(_, count)| count).sum()
        };
        Counts {
            all: without(0),
            after_first_of_device: without(Kind::FIRST_OF_DEVICE),
            after_first_of_run: without(Kind::FIRST_OF_RUN),
        }
    }

    fn groups(&self) -> usize {
        self.0.len() / Kind::PER_GROUP
    }
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            after_first_of_device: self.after_first_of_device + other.after_first_of_device,
            after_first_of_run: self.after_first_of_run + other.after_first_of_run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firsts_are_left_out() {
        let mut tally = Tally::new(2);
        tally.add(Kind::UNCOUNTED, true);
        for (group, first_of_device, first_of_run, times) in [
            (0, true, true, 1),
            (0, true, false, 10),
            (0, false, true, 100),
            (0, false, false, 1_000),
            (1, false, false, 10_000),
        ] {
            let kind = Kind::new(group, first_of_device, first_of_run);
            (0..times).for_each(|_| tally.add(kind, true));
            tally.add(kind, false);
        }
        let counts = Counts { all: 1_111, after_first_of_device: 1_100, after_first_of_run: 1_010 };
        assert_eq!(tally.of(0), counts);
        assert_eq!(tally.total().all, 11_111);
        assert_eq!(tally.total().after_first_of_run, 11_010);
    }
}
