//! The bound where places that are free at one time are lost for another.
//!
//! The pass is cut into parts of the same length. In each a slot-millisecond has a price, in clients that come back. For any prices, no
//! policy gains more clients than the price of all slot-time, plus what each class gains beyond its price if its sessions are kept
//! for as long as that pays (weak duality). Prices rise where more places would be taken than there are, and fall where fewer
//! would. The least sum is the bound.

use std::ops::Range;

use super::Wait;
use crate::tally::Tally;

/// The parts of a pass. A wait counts as begun in the middle of its part, so that few parts make the bound too low: with 64 it is 0.3 %
/// lower for paper 000.
const PARTS: usize = 128;
/// The most ages up to which a class may be kept.
const MOST_AGES: usize = 128;
/// The changes of the prices. Four times as many lower the bound by less than a thousandth.
const ROUNDS: u32 = 1_000;
/// The last change of a price and the first, as shares of the first price.
const CHANGES: Range<f64> = 0.02..0.5;

/// The parts of a pass.
struct Parts {
    began_ms: f64,
    length_ms: f64,
    /// The time in which requests count.
    counted_ms: Range<f64>,
}

/// A class of clients.
struct Class<'a> {
    waits: &'a [Wait],
    ages: Vec<Age>,
    /// The number of waits that begin in each part.
    begun: [f64; PARTS],
}

/// A time for which a class may be kept.
struct Age {
    ms: f64,
    /// The mean share of clients that are waited for since the age before.
    waiting: f64,
    /// The share of clients that come back since the age before.
    back: f64,
}

/// The prices of a slot-millisecond by part, and what they are for.
struct Prices<'a> {
    of: [f64; PARTS],
    parts: &'a Parts,
}

/// The answer to prices: the least that a bound can be, and the places taken in each part, in slot-milliseconds.
struct Answer {
    bound: f64,
    taken_ms: [f64; PARTS],
}

/// Adds the clients that are back to `hits`, which are none yet. Waits are in order of age; requests count from `counted_ms` on.
pub(super) fn fill<'a>(
    classes: impl Iterator<Item = &'a [Wait]>,
    pass_ms: Range<u64>,
    counted_ms: u64,
    sessions: u64,
    hits: &mut Tally,
) {
    let length_ms = ((pass_ms.end - pass_ms.start) as f64 / PARTS as f64).max(1.0);
    let counted_ms = counted_ms as f64..pass_ms.end as f64;
    let parts = Parts { began_ms: pass_ms.start as f64, length_ms, counted_ms };
    let classes: Vec<Class<'_>> = classes.map(|waits| Class::new(waits, &parts)).collect();
    let there_ms = sessions as f64 * length_ms;
    let price = mean_price(&classes);
    let mut prices = Prices { of: [price; PARTS], parts: &parts };
    let mut best = (f64::INFINITY, prices.of);
    let slower = (CHANGES.start / CHANGES.end).powf(1.0 / f64::from(ROUNDS));
    let mut change = CHANGES.end * price;
    for _ in 0..ROUNDS {
        let Answer { bound, taken_ms } = prices.answer(&classes, there_ms);
        if bound < best.0 {
            best = (bound, prices.of);
        }
        for (price, taken_ms) in prices.of.iter_mut().zip(taken_ms) {
            *price = (*price + change * (taken_ms / there_ms - 1.0).clamp(-1.0, 1.0)).max(0.0);
        }
        change *= slower;
    }
    prices.of = best.1;
    classes.iter().for_each(|class| class.keep(&prices, hits));
    // What is kept at these prices takes a few places too many or too few.
    let counted = hits.counted();
    if counted > 0 {
        *hits = hits.times(best.0 / counted as f64);
    }
}

/// Returns the clients that come back for each millisecond that they are waited for.
fn mean_price(classes: &[Class<'_>]) -> f64 {
    let waits = classes.iter().flat_map(|class| class.waits).filter(|wait| wait.back.is_some());
    let (clients, ms) = waits.fold((0, 0), |(clients, ms), wait| (clients + 1, ms + wait.age_ms));
    f64::from(clients) / ms.max(1) as f64
}

impl Parts {
    fn holding(&self, ms: f64) -> usize {
        (((ms - self.began_ms) / self.length_ms) as usize).min(PARTS - 1)
    }

    /// Returns the middle of a part.
    fn middle_ms(&self, part: usize) -> f64 {
        self.began_ms + (part as f64 + 0.5) * self.length_ms
    }

    /// Adds the time for which slots are taken to that of the parts in which they are.
    fn take(&self, slots: f64, time_ms: Range<f64>, taken_ms: &mut [f64; PARTS]) {
        let first = self.holding(time_ms.start);
        for (part, taken_ms) in taken_ms.iter_mut().enumerate().skip(first) {
            let began_ms = self.began_ms + part as f64 * self.length_ms;
            let here_ms = time_ms.end.min(began_ms + self.length_ms) - time_ms.start.max(began_ms);
            if here_ms <= 0.0 {
                break;
            }
            *taken_ms += slots * here_ms;
        }
    }
}

impl<'a> Class<'a> {
    fn new(waits: &'a [Wait], parts: &Parts) -> Self {
        let mut begun = [0.0; PARTS];
        waits.iter().for_each(|wait| begun[parts.holding(wait.begun_ms as f64)] += 1.0);
        Self { waits, ages: ages(waits), begun }
    }

    /// Returns what it gains to keep waits that begin in a part as long as that pays, beyond their price, and the number of ages
    /// for which it does.
    fn gain(&self, part: usize, prices: &Prices<'_>, spent: &[f64; PARTS + 1]) -> (f64, usize) {
        if self.begun[part] == 0.0 {
            return (0.0, 0);
        }
        let Parts { counted_ms, .. } = prices.parts;
        let begun_ms = prices.parts.middle_ms(part);
        let (mut gain, mut before) = (0.0, prices.spent_by(begun_ms, spent));
        let mut most = (0.0, 0);
        for (at, age) in self.ages.iter().enumerate() {
            let by_then = prices.spent_by(begun_ms + age.ms, spent);
            gain -= age.waiting * (by_then - std::mem::replace(&mut before, by_then));
            if counted_ms.contains(&(begun_ms + age.ms)) {
                gain += age.back;
            }
            if gain > most.0 {
                most = (gain, at + 1);
            }
        }
        (most.0 * self.begun[part], most.1)
    }

    /// Adds the waits that are kept at these prices.
    fn keep(&self, prices: &Prices<'_>, hits: &mut Tally) {
        let spent = prices.spent();
        let kept_ms: [f64; PARTS] = std::array::from_fn(|part| {
            let (_, ages) = self.gain(part, prices, &spent);
            ages.checked_sub(1).map_or(-1.0, |last| self.ages[last].ms)
        });
        for Wait { begun_ms, age_ms, back } in self.waits {
            let kept_ms = kept_ms[prices.parts.holding(*begun_ms as f64)];
            if let Some(kind) = back
                && *age_ms as f64 <= kept_ms
            {
                hits.add(*kind, true);
            }
        }
    }
}

/// Returns the ages at which clients come back, or as many of them as are told apart, from waits in order of age. Those that last
/// when the pass ends count until then (Kaplan & Meier, 1958).
fn ages(waits: &[Wait]) -> Vec<Age> {
    let back = waits.iter().filter(|wait| wait.back.is_some());
    let at_ms: Vec<u64> = back.map(|wait| wait.age_ms).collect();
    let each = at_ms.len().div_ceil(MOST_AGES).max(1);
    let mut last_of_each: Vec<u64> =
        at_ms.chunks(each).filter_map(|ages| ages.last().copied()).collect();
    last_of_each.dedup();
    let (mut waiting, mut ended, mut now_ms) = (1.0, 0, 0);
    let age = |age_ms: u64| {
        let (before, before_ms) = (waiting, now_ms);
        let mut waited_ms = 0.0;
        for wait in waits[ended..].iter().take_while(|wait| wait.age_ms <= age_ms) {
            waited_ms += waiting * (wait.age_ms - now_ms) as f64;
            if wait.back.is_some() {
                waiting -= waiting / (waits.len() - ended) as f64;
            }
            now_ms = wait.age_ms;
            ended += 1;
        }
        let step_ms = (age_ms - before_ms).max(1) as f64;
        Age { ms: age_ms as f64, waiting: waited_ms / step_ms, back: before - waiting }
    };
    last_of_each.into_iter().map(age).collect()
}

impl Prices<'_> {
    /// Returns what a slot costs from the beginning of the pass to that of each part, and to the end.
    fn spent(&self) -> [f64; PARTS + 1] {
        let mut spent = [0.0; PARTS + 1];
        for (part, price) in self.of.iter().enumerate() {
            spent[part + 1] = spent[part] + price * self.parts.length_ms;
        }
        spent
    }

    /// Returns what a slot costs from the beginning of the pass to a time. After its end nothing costs anything.
    fn spent_by(&self, ms: f64, spent: &[f64; PARTS + 1]) -> f64 {
        let parts = (ms - self.parts.began_ms) / self.parts.length_ms;
        let part = parts as usize;
        match self.of.get(part) {
            Some(price) => spent[part] + (parts - part as f64) * self.parts.length_ms * price,
            None => spent[PARTS],
        }
    }

    fn answer(&self, classes: &[Class<'_>], there_ms: f64) -> Answer {
        let spent = self.spent();
        let mut bound = self.of.iter().sum::<f64>() * there_ms;
        let mut taken_ms = [0.0; PARTS];
        for class in classes {
            for part in 0..PARTS {
                let (gain, ages) = class.gain(part, self, &spent);
                bound += gain;
                let mut from_ms = self.parts.middle_ms(part);
                for age in &class.ages[..ages] {
                    let until_ms = self.parts.middle_ms(part) + age.ms;
                    let slots = class.begun[part] * age.waiting;
                    self.parts.take(slots, from_ms..until_ms, &mut taken_ms);
                    from_ms = until_ms;
                }
            }
        }
        Answer { bound, taken_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Kind;

    /// Clients that come twice, ten seconds apart, so many in each second.
    fn waits(seconds: Range<u64>, in_each: u64) -> Vec<Wait> {
        let wait =
            |begun_ms| Wait { begun_ms, age_ms: 10_000, back: Some(Kind::new(0, false, false)) };
        let times = seconds.flat_map(|s| (0..in_each).map(move |at| s * 1_000 + at));
        times.map(wait).collect()
    }

    fn bound(waits: &[Wait], pass_ms: Range<u64>, counted_ms: u64, sessions: u64) -> u64 {
        let mut hits = Tally::new(1);
        fill([waits].into_iter(), pass_ms, counted_ms, sessions, &mut hits);
        hits.counted()
    }

    #[test]
    fn all_are_kept_where_there_is_room() {
        let waits = waits(0..600, 3);
        assert_eq!(bound(&waits, 0..640_000, 0, 40), 1_800);
    }

    #[test]
    fn places_that_are_free_at_first_do_not_help_later() {
        // Nobody comes in the first half. Then twenty places are wanted and ten are there, which would be enough if they were saved.
        let waits = waits(320..640, 2);
        let kept = bound(&waits, 0..640_000, 0, 10) as f64 / waits.len() as f64;
        assert!((0.49..0.54).contains(&kept), "{kept}");
    }

    #[test]
    fn requests_that_do_not_count_are_not_kept() {
        let mut waits = waits(0..640, 2);
        waits.iter_mut().filter(|wait| wait.begun_ms < 320_000).for_each(|wait| {
            wait.back = Some(Kind::UNCOUNTED);
        });
        let kept = bound(&waits, 0..640_000, 320_000, 10) as f64 / 640.0;
        assert!((0.49..0.54).contains(&kept), "{kept}");
    }
}
