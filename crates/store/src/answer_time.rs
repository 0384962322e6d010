//! How long an agent's answers take, and for how long an asker waits because of that.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The mean time of the answers so far, and how far they are from it on average, for all processes. Four times that distance
/// above the mean is a wait that few answers need, as TCP estimates a round trip (RFC 6298, section 2).
///
/// The upper half is the mean and the lower half the distance, in microseconds; zero if nothing is known. Threads that note an
/// answer at once may lose one of the two.
#[repr(transparent)]
pub(crate) struct AnswerTime(AtomicU32);

impl AnswerTime {
    /// The least wait: less than a thread may wait for its turn on a processor would make answers late for nothing.
    const LEAST: Duration = Duration::from_micros(500);
    /// The value while askers wait for as long as they are told.
    const FIXED: u32 = u32::MAX;

    /// Sets whether the wait follows the answers. Forgets their times if it begins to.
    pub(crate) fn follow(&self, follows: bool) {
        self.0.store(if follows { 0 } else { Self::FIXED }, Ordering::Relaxed);
    }

    /// Returns how long an asker waits, `most` at most.
    pub(crate) fn wait(&self, most: Duration) -> Duration {
        let known = self.0.load(Ordering::Relaxed);
        if known == 0 || known == Self::FIXED {
            return most;
        }
        let [mean, distance] = halves(known);
        Duration::from_micros((mean + 4 * distance).into()).max(Self::LEAST).min(most)
    }

    /// Notes that an answer took so long. One that did not come in time counts as twice the wait.
    pub(crate) fn note(&self, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).min(u16::MAX.into());
        let known = self.0.load(Ordering::Relaxed);
        let after = match halves(known) {
            _ if known == Self::FIXED => return,
            _ if known == 0 => [took, took / 2],
            [mean, distance] => {
                [(7 * mean + took).div_ceil(8), (3 * distance + mean.abs_diff(took)).div_ceil(4)]
            }
        };
        // The longest possible times must not be taken for the mark of a wait that is fixed.
        let after = (after[0] << 16 | after[1]).min(Self::FIXED - 1);
        let _ = self.0.compare_exchange(known, after, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn halves(known: u32) -> [u32; 2] {
    [known >> 16, known & u32::from(u16::MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(5);

    fn after(answers_us: &[u64]) -> AnswerTime {
        let answers = AnswerTime(AtomicU32::new(0));
        answers_us.iter().for_each(|us| answers.note(Duration::from_micros(*us)));
        answers
    }

    #[test]
    fn a_wait_follows_the_answers_within_its_bounds() {
        assert_eq!(after(&[]).wait(MOST), MOST);
        assert_eq!(after(&[60; 100]).wait(MOST), AnswerTime::LEAST);
        let slow = after(&[2_000; 100]).wait(MOST);
        assert!((2_000..2_100).contains(&slow.as_micros()), "{slow:?}");
        assert_eq!(after(&[u64::MAX; 100]).wait(MOST), MOST);
    }

    #[test]
    fn answers_that_differ_are_waited_for_longer() {
        let unlike = [200, 1_400].repeat(50);
        let wait = after(&unlike).wait(MOST);
        assert!(wait > Duration::from_micros(1_400), "{wait:?}");
    }

    #[test]
    fn late_answers_lengthen_the_wait_to_the_most() {
        let answers = after(&[60; 100]);
        let late = (1..).find(|_| {
            let wait = answers.wait(MOST);
            answers.note(2 * wait);
            wait == MOST
        });
        assert!(late <= Some(8), "{late:?}");
    }

    #[test]
    fn a_fixed_wait_stays() {
        let answers = after(&[60; 100]);
        answers.follow(false);
        answers.note(Duration::from_micros(60));
        assert_eq!(answers.wait(MOST), MOST);
        answers.follow(true);
        answers.note(Duration::from_micros(60));
        assert_eq!(answers.wait(MOST), AnswerTime::LEAST);
    }
}
