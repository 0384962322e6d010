//! The sessions that are next to be evicted.

/// Sixteen places. A session that is not in one takes an empty one, or that of the session worth most if it is worth less.
#[derive(Debug, Default)]
pub(crate) struct Candidates([Option<Candidate>; 16]);

#[derive(Debug, Clone, Copy)]
struct Candidate {
    slot: usize,
    worth: u64,
}

impl Candidates {
    pub(crate) fn consider(&mut self, slot: usize, worth: u64) {
        let candidate = Candidate { slot, worth };
        if let Some(known) = self.0.iter_mut().flatten().find(|known| known.slot == slot) {
            *known = candidate;
        } else if let Some(empty) = self.0.iter_mut().find(|place| place.is_none()) {
            *empty = Some(candidate);
        } else {
            let most = self.0.iter().flatten().map(|other| other.worth).max();
            let is_most = |place: &&mut Option<Candidate>| place.map(|other| other.worth) == most;
            let place = self.0.iter_mut().find(is_most).filter(|_| Some(worth) < most);
            place.into_iter().for_each(|place| *place = Some(candidate));
        }
    }

    /// The session worth least, and what it was worth.
    pub(crate) fn least(&self) -> Option<(usize, u64)> {
        let least = self.0.iter().flatten().min_by_key(|candidate| candidate.worth)?;
        Some((least.slot, least.worth))
    }

    /// Notes what a candidate is worth now, or that it is none any more.
    pub(crate) fn note(&mut self, slot: usize, worth: Option<u64>) {
        let is_it = |place: &&mut Option<Candidate>| place.is_some_and(|known| known.slot == slot);
        let place = self.0.iter_mut().find(is_it).expect("a candidate");
        *place = worth.map(|worth| Candidate { slot, worth });
    }
}
