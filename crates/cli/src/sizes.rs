//! Lists of capacities in arguments: `300,600`, `100..2000:100`.

use std::num::NonZeroU32;
use std::str::FromStr;

use rejoin_report::distinct;

/// Capacities in the given order, without repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sizes(pub(super) Vec<NonZeroU32>);

/// The largest number of capacities in one run.
const MOST: usize = 10_000;

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            let range = range(part.trim()).ok_or_else(|| {
                format!("{part:?} is no capacity: write 300,600 or 100..2000:100, from 1 on")
            })?;
            sizes.extend(range.take(MOST + 1));
            if sizes.len() > MOST {
                return Err(format!("more than {MOST} capacities: use larger steps"));
            }
        }
        Ok(Self(distinct(sizes)))
    }
}

/// Reads one number, or a range with a step, which includes both ends.
fn range(text: &str) -> Option<impl Iterator<Item = NonZeroU32>> {
    let number = |text: &str| text.trim().parse::<NonZeroU32>().ok();
    let (first, last, step) = match text.split_once("..") {
        None => (number(text)?, number(text)?, NonZeroU32::MIN),
        Some((first, rest)) => {
            let (last, step) = rest.split_once(':')?;
            (number(first)?, number(last)?, number(step)?)
        }
    };
    let sizes = (first.get()..=last.get()).step_by(step.get() as usize);
    (first <= last).then(|| sizes.filter_map(NonZeroU32::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<u32> {
        let Sizes(sizes) = text.parse().expect(text);
        sizes.into_iter().map(NonZeroU32::get).collect()
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(sizes("300,600"), [300, 600]);
        assert_eq!(sizes("100..500:200, 500,7"), [100, 300, 500, 7]);
        assert_eq!(sizes("4294967295"), [u32::MAX]);
        assert_eq!(sizes("1..10:4294967295"), [1]);
        assert_eq!(sizes("300,600,300..700:100"), [300, 600, 400, 500, 700]);
    }

    #[test]
    fn what_is_no_capacity_is_told() {
        for wrong in ["", "0", "-1", "5..1:1", "1..5", "1..5:0", "x", "1,", "4294967296"] {
            assert!(wrong.parse::<Sizes>().is_err_and(|error| error.contains("write 300")));
        }
        assert!("1..4294967295:1".parse::<Sizes>().is_err_and(|error| error.contains("steps")));
    }
}
