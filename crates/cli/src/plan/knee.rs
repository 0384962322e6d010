//! The knee of a curve: the size beyond which more memory buys little.
//!
//! A doubling of the size buys some points. The knee is where that changes most: where the last doubling bought most
//! more than the next one buys. From there it moves up to where the next doubling buys [`LITTLE_POINTS`] or less. A curve
//! that climbs evenly has its knee where it ends. What half and twice as much give is told beside it.

/// The points that are little for twice the memory.
pub(super) const LITTLE_POINTS: f64 = 3.0;
/// The steps of a doubling in which the knee is sought.
const STEPS: i32 = 8;
/// The points by which bends may differ and still be the same.
const SAME_POINTS: f64 = 0.1;

/// Returns the size of the knee, to two digits; the last of fewer than three sizes, and `None` of none.
///
/// `curve` has sizes, which increase, and percentages.
pub(super) fn knee(curve: &[(u32, f64)]) -> Option<u32> {
    let (first, last) = (curve.first()?.0, curve.last()?.0);
    if curve.len() < 3 {
        return Some(last);
    }
    let count = (f64::from(last) / f64::from(first)).log2() * f64::from(STEPS);
    let size = |step: i32| f64::from(first) * (f64::from(step) / f64::from(STEPS)).exp2();
    let steps = 0..=count.floor() as i32;
    let next = |step: i32| at(curve, size(step + STEPS)) - at(curve, size(step));
    let bend = |step: i32| next(step - STEPS) - next(step);
    let most = steps.clone().map(bend).fold(f64::NEG_INFINITY, f64::max);
    // A cliff bends as much from its foot on until its last doubling ends: the foot is enough.
    let sharpest = steps.clone().find(|step| bend(*step) >= most - SAME_POINTS)?;
    let little = (sharpest..=*steps.end()).find(|step| next(*step) <= LITTLE_POINTS);
    Some(two_digits(size(little.unwrap_or(sharpest))).clamp(first, last))
}

/// Returns the percentage at a size: between two that are known, evenly in ratio; below the first, in proportion to it.
fn at(curve: &[(u32, f64)], size: f64) -> f64 {
    let above = curve.partition_point(|(known, _)| f64::from(*known) < size);
    let known = |at: usize| (f64::from(curve[at].0), curve[at].1);
    if above == curve.len() {
        return known(above - 1).1;
    }
    let (to, to_percent) = known(above);
    if above == 0 {
        return to_percent * size / to;
    }
    let (from, from_percent) = known(above - 1);
    let share = (size / from).ln() / (to / from).ln();
    from_percent + (to_percent - from_percent) * share
}

fn two_digits(size: f64) -> u32 {
    let unit = 10_f64.powf(size.log10().floor() - 1.0).max(1.0);
    ((size / unit).ceil() * unit) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(percent: impl Fn(f64) -> f64) -> Vec<(u32, f64)> {
        let sizes = (0..=40).map(|step| (10.0 * f64::from(step).exp2().powf(0.25)) as u32);
        sizes.map(|size| (size, percent(f64::from(size)))).collect()
    }

    #[test]
    fn a_corner_is_found() {
        // 1,000 sessions hold everybody who comes back soon; the rest need ten times as many.
        let found = knee(&curve(|size| (size / 1_000.0).min(1.0) * 85.0 + size / 1_000.0));
        assert!(found.is_some_and(|size| (1_000..=1_300).contains(&size)), "{found:?}");
    }

    #[test]
    fn the_foot_of_a_cliff_is_enough() {
        let found = knee(&curve(|size| if size < 1_000.0 { 0.0 } else { 100.0 }));
        assert!(found.is_some_and(|size| (1_000..=1_300).contains(&size)), "{found:?}");
    }

    #[test]
    fn an_even_climb_has_its_knee_at_the_end() {
        let found = knee(&curve(|size| (size.min(4_000.0) / 10.0).log2() * 11.5));
        assert!(found.is_some_and(|size| (3_000..=4_600).contains(&size)), "{found:?}");
    }

    #[test]
    fn a_round_corner_is_left_where_little_is_to_win() {
        let gentle = |size: f64| 100.0 * size / (size + 300.0);
        let found = knee(&curve(gentle)).expect("a knee");
        let (here, twice) = (gentle(f64::from(found)), gentle(2.0 * f64::from(found)));
        assert!(twice - here <= LITTLE_POINTS + 0.5 && here > 85.0, "{found}: {here}, {twice}");
    }

    #[test]
    fn few_points_have_no_bend() {
        assert_eq!((knee(&[]), knee(&[(1, 2.0), (2, 3.0)])), (None, Some(2)));
        assert_eq!(knee(&[(7, 0.0), (7, 0.0), (7, 0.0)]), Some(7));
    }
}
