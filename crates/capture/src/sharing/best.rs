//! The first of many in an order, without keeping all of them.

use std::cmp::Ordering;

/// The most values that wait besides those that are kept.
const MOST_WAITING: usize = 1 << 10;

/// The first `count` of the values that were added.
pub(super) struct Best<T> {
    count: usize,
    order: fn(&T, &T) -> Ordering,
    values: Vec<T>,
}

impl<T> Best<T> {
    pub(super) fn new(count: usize, order: fn(&T, &T) -> Ordering) -> Self {
        Self { count, order, values: Vec::new() }
    }

    pub(super) fn add(&mut self, value: T) {
        if self.count == 0 {
            return;
        }
        self.values.push(value);
        if self.values.len() >= self.count.saturating_add(MOST_WAITING) {
            self.values.select_nth_unstable_by(self.count - 1, self.order);
            self.values.truncate(self.count);
        }
    }

    pub(super) fn into_sorted(mut self) -> Vec<T> {
        self.values.sort_by(self.order);
        self.values.truncate(self.count);
        self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_are_kept() {
        let mut best = Best::new(3, usize::cmp);
        (0..10_000).for_each(|number| best.add((number * 7_919) % 10_007));
        assert_eq!(best.into_sorted(), [0, 1, 2]);
        let mut none = Best::new(0, usize::cmp);
        none.add(1);
        assert!(none.into_sorted().is_empty());
    }
}
