//! The handshakes of the last seconds.

use std::collections::VecDeque;

use serde_json::{Value, json};

/// The handshakes since the start, or in an interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Handshakes {
    pub(super) full: u64,
    pub(super) resumed: u64,
}

/// The handshakes of each of the last seconds, oldest first.
#[derive(Debug)]
pub(super) struct History {
    before: Handshakes,
    seconds: VecDeque<Handshakes>,
}

impl History {
    const MOST_S: usize = 300;

    /// Starts a history at these counts.
    pub(super) fn after(before: Handshakes) -> Self {
        Self { before, seconds: VecDeque::new() }
    }

    /// Adds a second with the counts at its end.
    pub(super) fn add(&mut self, now: Handshakes) {
        let mut before = std::mem::replace(&mut self.before, now);
        if now.full < before.full || now.resumed < before.resumed {
            // The counters were reset.
            before = Handshakes::default();
        }
        let (full, resumed) = (now.full - before.full, now.resumed - before.resumed);
        self.push(Handshakes { full, resumed });
    }

    /// Adds a second without known counts.
    pub(super) fn add_nothing(&mut self) {
        self.push(Handshakes::default());
    }

    fn push(&mut self, second: Handshakes) {
        if self.seconds.len() == Self::MOST_S {
            self.seconds.pop_front();
        }
        self.seconds.push_back(second);
    }

    /// Returns the history as a JSON object.
    pub(super) fn json(&self) -> Value {
        let each = |of: fn(&Handshakes) -> u64| self.seconds.iter().map(of).collect::<Vec<_>>();
        json!({
            "most_s": Self::MOST_S,
            "handshakes": each(|of| of.full + of.resumed),
            "resumed": each(|of| of.resumed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_differences_also_when_counts_begin_anew() {
        let mut history = History::after(Handshakes { full: 10, resumed: 5 });
        for (full, resumed) in [(10, 5), (11, 8), (2, 1)] {
            history.add(Handshakes { full, resumed });
        }
        let told = history.json();
        assert_eq!(told["handshakes"], json!([0, 4, 3]));
        assert_eq!(told["resumed"], json!([0, 3, 1]));
    }

    #[test]
    fn the_oldest_second_makes_way() {
        let mut history = History::after(Handshakes::default());
        (1..=301).for_each(|full| history.add(Handshakes { full, resumed: 0 }));
        assert_eq!(history.json()["handshakes"].as_array().map(Vec::len), Some(300));
    }
}
