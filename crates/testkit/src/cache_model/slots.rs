//! The slots that sessions take. They matter to the engine's choice: when it looks for a place, a hand goes
//! round the slots, in steps of the golden ratio.

/// Slots by number.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Those given back: the last one is taken first.
    free: Vec<usize>,
    /// Those from here on were never used.
    fresh: usize,
    /// In 2⁻³² of those ever used.
    hand: u64,
}

impl Slots {
    pub(crate) fn take(&mut self, slots: usize) -> Vec<usize> {
        let take = |_| {
            self.free.pop().unwrap_or_else(|| {
                self.fresh += 1;
                self.fresh - 1
            })
        };
        (0..slots).map(take).collect()
    }

    pub(crate) fn give_back(&mut self, slots: &[usize]) {
        self.free.extend(slots);
    }

    /// Some of those ever used, one after the other, at most so many; of fewer, all. The first one is another each time.
    pub(crate) fn sweep(&mut self, most: usize) -> impl Iterator<Item = usize> {
        const WHOLE: u64 = 1 << 32;
        const GOLDEN_RATIO: f64 = 1.618_033_988_749_895;
        self.hand = (self.hand + (WHOLE as f64 / GOLDEN_RATIO).floor() as u64) % WHOLE;
        let fresh = self.fresh;
        let first = (self.hand * fresh as u64 / WHOLE) as usize;
        (first..first + fresh.min(most)).map(move |at| at % fresh)
    }
}
