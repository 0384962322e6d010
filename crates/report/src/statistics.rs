//! Statistics of measured figures.

use std::time::Duration;

/// Returns the median: of two figures in the middle the mean, of none zero.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    middle(&figures).map_or(0.0, |[low, high]| f64::midpoint(low, high))
}

/// Returns the median of times, like [`median`].
pub fn median_time(mut times: Vec<Duration>) -> Duration {
    times.sort();
    middle(&times).map_or(Duration::ZERO, |[low, high]| low + (high - low) / 2)
}

/// Returns the two values in the middle, which are one of an odd number.
fn middle<T: Copy>(sorted: &[T]) -> Option<[T; 2]> {
    let high = sorted.len() / 2;
    Some([*sorted.get(sorted.len().checked_sub(1)? / 2)?, *sorted.get(high)?])
}

/// Returns each value once, in the order of first appearance.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_appears_once() {
        assert_eq!(distinct([2, 1, 2, 3, 1]), [2, 1, 3]);
    }

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(
            (median(vec![9.0, 1.0, 4.0]), median(vec![7.0, 1.0, 9.0, 2.0]), median(vec![])),
            (4.0, 4.5, 0.0)
        );
        let times = |ms: &[u64]| ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
        let of = |ms: &[u64]| median_time(times(ms)).as_micros();
        assert_eq!((of(&[9, 1, 4]), of(&[7, 1, 9, 2]), of(&[])), (4_000, 4_500, 0));
    }
}
