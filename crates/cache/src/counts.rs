//! Counts in memory that processes may share: plain atomics of which every value is valid.
//!
//! Under concurrency they are approximate.

use std::sync::atomic::{AtomicU32, Ordering};

/// The amount that one client adds to a count.
pub(crate) const ONE: u32 = 256;
/// The logarithm of the share of a count that fades at each calculation.
pub(crate) const FADE: u32 = 5;

#[inline]
pub(crate) fn get(count: &AtomicU32) -> u32 {
    count.load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn set(count: &AtomicU32, to: u32) {
    count.store(to, Ordering::Relaxed);
}

/// Adds to a count, and returns the sum. A count to which two threads add at once may lose one of the two.
#[inline]
pub(crate) fn add(count: &AtomicU32, more: u32) -> u32 {
    let sum = get(count).wrapping_add(more);
    set(count, sum);
    sum
}

/// Returns the number that a count stands for.
pub(crate) fn number(count: &AtomicU32) -> f64 {
    f64::from(get(count)) / f64::from(ONE)
}

/// Returns the numbers that counts stand for.
pub(crate) fn numbers(counts: &[AtomicU32]) -> Vec<f64> {
    counts.iter().map(number).collect()
}

pub(crate) fn is_some(count: &AtomicU32) -> bool {
    get(count) > 0
}

/// Takes a share of a count away. Two threads may do so at once: neither takes what the other has taken.
pub(crate) fn fade(count: &AtomicU32) {
    if is_some(count) {
        let faded = |count: u32| Some(count - count.div_ceil(1 << FADE));
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, faded);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn no_count_fades_below_nothing() {
        let (counts, done) = ([const { AtomicU32::new(0) }; 225], AtomicBool::new(false));
        let most = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    counts.iter().for_each(fade);
                }
            });
            let mut most = 0;
            for _ in 0..20_000 {
                counts.iter().for_each(|count| set(count, 1));
                counts.iter().for_each(fade);
                most = counts.iter().map(get).fold(most, u32::max);
            }
            done.store(true, Ordering::Relaxed);
            most
        });
        assert_eq!(most, 0);
    }
}
