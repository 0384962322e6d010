//! The capacities to try.

/// The largest size that is tried in the first pass.
pub(super) const SMALL: u32 = 1 << 16;
/// The largest size that is tried: its cache takes a gigabyte and a half.
const MOST_TRIED: u64 = 1 << 24;
/// The ratio of one step of the ladder to the one before.
const STEP: u32 = 4;
/// The approximate number of sizes between the ends of the range.
const SIZES: usize = 12;
/// The part of itself to which a bound is narrowed.
const PRECISION: u32 = 100;
/// The number of sizes tried in each round of narrowing.
const PROBES: u64 = 3;

/// Returns the steps from a few sessions to `most`, each four times the one before.
pub(super) fn ladder(most: u64) -> Vec<u32> {
    let most = most.clamp(1, MOST_TRIED) as u32;
    let down = std::iter::successors(Some(most), |size| Some(size / STEP));
    let mut sizes: Vec<u32> = down.take_while(|size| *size > 0).collect();
    sizes.reverse();
    sizes
}

/// Returns the steps, and enough sizes between them to make about a dozen, evenly in ratio. Sizes
/// between have two digits that are not zero.
pub(super) fn divided(ladder: &[u32]) -> Vec<u32> {
    let parts = SIZES.div_ceil(ladder.len().saturating_sub(1).max(1));
    let between = ladder.windows(2).flat_map(|step| {
        let (from, to) = (f64::from(step[0]), f64::from(step[1]));
        let ratio = to / from;
        let size = move |part: usize| from * ratio.powf(part as f64 / parts as f64);
        (1..parts).map(move |part| two_digits(size(part))).filter(move |size| {
            let size = f64::from(*size);
            from < size && size < to
        })
    });
    sorted(between.chain(ladder.iter().copied()))
}

fn two_digits(size: f64) -> u32 {
    let unit = 10_f64.powf(size.log10().floor() - 1.0).max(1.0);
    ((size / unit).round() * unit) as u32
}

/// Sorts sizes and removes duplicates.
pub(super) fn sorted(sizes: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut sizes: Vec<u32> = sizes.collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Finds the smallest size that is enough, to within a hundredth of itself, and the largest one
/// below that is not. `fails` is not enough, and `reaches` is. `enough` is called with several sizes
/// at a time, in order; `None` from it ends the search.
///
/// If more is not always enough, the last change is found, as far as the sizes tried show it.
///
/// # Errors
/// Returns the errors of `enough`.
pub fn narrow<E>(
    mut fails: u32,
    mut reaches: u32,
    mut enough: impl FnMut(&[u32]) -> Result<Option<Vec<bool>>, E>,
) -> Result<Option<(u32, u32)>, E> {
    while reaches - fails > (reaches / PRECISION).max(1) {
        let width = u64::from(reaches - fails);
        let probe = |number| fails + (width * number / (PROBES + 1)) as u32;
        let probes = sorted((1..=PROBES).map(probe).filter(|size| *size > fails));
        let Some(answers) = enough(&probes)? else { return Ok(None) };
        let last = answers.iter().rposition(|enough| !enough);
        if let Some(above) = probes.get(last.map_or(0, |last| last + 1)) {
            reaches = *above;
        }
        fails = last.map_or(fails, |last| probes[last]);
    }
    Ok(Some((fails, reaches)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ladders_end_where_all_fits() {
        assert_eq!(ladder(20_000), [1, 4, 19, 78, 312, 1_250, 5_000, 20_000]);
        assert_eq!(ladder(0), [1]);
        assert_eq!(ladder(u64::MAX).last(), Some(&(1 << 24)));
    }

    #[test]
    fn a_dozen_sizes_or_so() {
        let sizes = divided(&[78, 312, 1_250, 5_000, 20_000]);
        assert_eq!(sizes[..5], [78, 120, 200, 312, 500]);
        assert_eq!((sizes.len(), sizes.last()), (13, Some(&20_000)));
        assert_eq!(divided(&[1, 3]), [1, 2, 3]);
        assert_eq!(divided(&[7]), [7]);
    }

    /// Compares the search with a trial of every size, for every bound.
    #[test]
    fn narrowing_finds_the_bound() {
        for (bound, most) in (1..=300).map(|bound| (bound, 300)).chain([(77_777, 100_000)]) {
            let mut asked = 0;
            let found = narrow(0, most, |sizes| {
                asked += sizes.len();
                Ok::<_, ()>(Some(sizes.iter().map(|size| *size >= bound).collect()))
            });
            let (fails, reaches) = found.expect("no error").expect("an end");
            assert!(fails < bound && bound <= reaches, "{bound}: {fails} to {reaches}");
            assert!(reaches - fails <= (reaches / 100).max(1), "{bound}: {fails} to {reaches}");
            assert!(asked <= 15, "{bound}: asked {asked} times");
        }
    }

    #[test]
    fn of_several_changes_the_last_is_found() {
        let enough = |size: &u32| (30..40).contains(size) || *size >= 70;
        let ask = |sizes: &[u32]| Ok::<_, ()>(Some(sizes.iter().map(enough).collect()));
        assert_eq!(narrow(0, 100, ask), Ok(Some((69, 70))));
        assert_eq!(narrow(0, 100, |_| Ok::<_, ()>(None)), Ok(None));
    }
}
