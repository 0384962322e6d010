//! The slots that sessions take. They matter to the engine's choice: when it looks for a place, a hand goes
//! round the slots.

/// Slots by number.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Those given back: the last one is taken first.
    free: Vec<usize>,
    /// Those from here on were never used.
    fresh: usize,
    hand: usize,
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

    /// The next of those ever used, at most so many; of fewer, all. Each counts as looked at when it is taken.
    pub(crate) fn sweep(&mut self, most: usize) -> impl Iterator<Item = usize> {
        let Self { fresh, hand, .. } = self;
        (0..(*fresh).min(most)).map(|_| {
            let at = *hand % *fresh;
            // The hand rests behind the last one, which may not be the last for long.
            *hand = at + 1;
            at
        })
    }
}
