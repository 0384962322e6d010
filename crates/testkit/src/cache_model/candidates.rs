//! The sessions that are next to be evicted.

/// Eight places. A session takes an empty one, or that of the session worth most if it is worth less. One that is in a place already
/// is worth there what it was, until it is worth less than the session worth most.
#[derive(Debug, Default)]
pub(crate) struct Candidates([Option<Candidate>; 8]);

#[derive(Debug, Clone, Copy)]
struct Candidate {
    slot: usize,
    worth: u64,
}

impl Candidates {
    pub(crate) fn consider(&mut self, slot: usize, worth: u64) {
        let worth_in = |place: &Option<Candidate>| place.map_or(u64::MAX, |other| other.worth);
        let most = self.0.iter().map(worth_in).max().filter(|most| worth < *most);
        let Some(most) = most else { return };
        let is_it = |place: &Option<Candidate>| place.is_some_and(|known| known.slot == slot);
        let known = self.0.iter().position(is_it);
        let of_most = || self.0.iter().position(|place| worth_in(place) == most);
        if let Some(at) = known.or_else(of_most) {
            self.0[at] = Some(Candidate { slot, worth });
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
