//! Statistics of measured figures.

use std::time::Duration;

/// Returns the median: of two figures in the middle the higher, of none zero.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    middle(&figures)
}

/// Returns the median of times, like [`median`].
pub fn median_time(mut times: Vec<Duration>) -> Duration {
    times.sort();
    middle(&times)
}

fn middle<T: Copy + Default>(sorted: &[T]) -> T {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
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
            (median(vec![9.0, 1.0, 4.0]), median(vec![1.0, 2.0]), median(vec![])),
            (4.0, 2.0, 0.0)
        );
    }
}
