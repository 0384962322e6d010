//! The sessions that are next to be evicted.

/// Up to eight, in order of worth; of like worth the one that came first is first. A session that is worth less than the eighth takes
/// its place. One that is there already is worth what it was, until it is worth less than the eighth.
#[derive(Debug, Default)]
pub(crate) struct Candidates(Vec<Candidate>);

#[derive(Debug, Clone, Copy)]
struct Candidate {
    slot: usize,
    worth: u64,
}

impl Candidates {
    const MOST: usize = 8;

    pub(crate) fn consider(&mut self, slot: usize, worth: u64) {
        let most = self.0.get(Self::MOST - 1).map_or(u64::MAX, |eighth| eighth.worth);
        if worth < most {
            self.remove(slot);
            let at = self.0.partition_point(|other| other.worth <= worth);
            self.0.insert(at, Candidate { slot, worth });
            self.0.truncate(Self::MOST);
        }
    }

    /// The session worth least, and what it was worth.
    pub(crate) fn least(&self) -> Option<(usize, u64)> {
        self.0.first().map(|least| (least.slot, least.worth))
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        self.0.retain(|candidate| candidate.slot != slot);
    }
}
