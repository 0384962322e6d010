//! Hazards: from the counts of a row to the chance of a return at each age, and from these to the worth of a place.

use crate::ages::Row;

/// The most younger strangers still waited for, per stranger known at an age, who are assumed to come back like that one.
const MOST_YOUNGER: f64 = 2.0;
/// The chance, for each bin, that a client waited for until then returns in that bin.
pub(crate) type Hazards = Vec<f64>;

/// Returns the worth of a row's places. For each age the hazards give how long places were taken until then and how many clients
/// came back. The worth at an age is the steepest way from there to any later age, along the upper hull of these points.
pub(crate) fn worth_of(row: Row, hazards: Hazards) -> Vec<f64> {
    let (mut time, mut returned, mut waiting) = (0.0, 0.0, 1.0);
    let mut points = Vec::with_capacity(hazards.len() + 1);
    points.push((time, returned));
    let mut start = row.start(0);
    for (bin, hazard) in hazards.into_iter().enumerate() {
        let end = row.end(bin);
        time += waiting * (end - std::mem::replace(&mut start, end));
        returned += waiting * hazard;
        waiting *= 1.0 - hazard;
        points.push((time, returned));
    }
    let steepness = |from: (f64, f64), to: (f64, f64)| {
        let taken = to.0 - from.0;
        if taken > 0.0 { (to.1 - from.1) / taken } else { 0.0 }
    };
    let mut hull = Vec::with_capacity(points.len());
    hull.extend(points.pop());
    let mut worth = Vec::with_capacity(points.len());
    for point in points.into_iter().rev() {
        while let [.., further, nearest] = hull[..]
            && steepness(point, nearest) <= steepness(point, further)
        {
            hull.pop();
        }
        worth.push(hull.last().map_or(0.0, |nearest| steepness(point, *nearest)));
        hull.push(point);
    }
    worth.reverse();
    worth
}

/// Returns the mean of each worth, which counts twice, and its neighbours that are not more than four times as much or as little.
pub(crate) fn smoothed(worth: &[f64]) -> Vec<f64> {
    let mean = |at: usize| {
        let own = worth[at];
        let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
        let near = neighbours
            .filter_map(|at| worth.get(at))
            .filter(|other| (own / 4.0..=own * 4.0).contains(*other));
        let (sum, count) = near.fold((2.0 * own, 2.0), |(sum, count), of| (sum + of, count + 1.0));
        sum / count
    };
    (0..worth.len()).map(mean).collect()
}

/// Returns the share of clients that are back within the first bins.
pub(crate) fn returned_by(hazards: &Hazards, bins: usize) -> f64 {
    1.0 - hazards.iter().take(bins).fold(1.0, |waiting, hazard| waiting * (1.0 - hazard))
}

/// The counts of a row's bins: how many waits ended in each, and how many of those in a return.
pub(crate) struct Counts {
    pub(crate) waited: Vec<f64>,
    pub(crate) returned: Vec<f64>,
}

impl Counts {
    pub(crate) fn none(bins: usize) -> Self {
        Self { waited: vec![0.0; bins], returned: vec![0.0; bins] }
    }

    pub(crate) fn plus(mut self, other: Self) -> Self {
        let add = |to: &mut [f64], more: &[f64]| to.iter_mut().zip(more).for_each(|(a, b)| *a += b);
        add(&mut self.waited, &other.waited);
        add(&mut self.returned, &other.returned);
        self
    }

    /// Returns the hazards, with an assumed chance that counts as so many clients.
    pub(crate) fn hazards(&self, clients: f64, assumed: impl Fn(usize) -> f64) -> Hazards {
        let hazard = |(bin, exposed): (usize, f64)| {
            // Counts read while others add to them may show more returns than waits.
            let hazard = (self.returned[bin] + clients * assumed(bin)) / (exposed + clients);
            hazard.min(1.0)
        };
        self.exposed().into_iter().enumerate().map(hazard).collect()
    }

    /// Returns how many clients were waited for in each bin.
    fn exposed(&self) -> Vec<f64> {
        let mut exposed = vec![0.0; self.waited.len()];
        let mut waiting = 0.0;
        for bin in (0..exposed.len()).rev() {
            waiting += self.waited[bin];
            // A client given up on within the bin was waited for during half of it.
            exposed[bin] = waiting - 0.5 * (self.waited[bin] - self.returned[bin]);
        }
        exposed
    }

    /// Returns the hazards as far as clients that are still waited for may be trusted to come like those before them. Where they
    /// are many more than those that were waited for until an age, there is a flood of them, which will not come as they did.
    /// Until it is known better, the clients beyond count as if they had been waited for until then in vain.
    pub(crate) fn wary_of_a_flood(&self, hazards: Hazards, still: &[f64]) -> Hazards {
        let mut younger = 0.0;
        let wary = |((hazard, exposed), still): ((f64, f64), &f64)| {
            // One is assumed.
            let known = exposed.max(0.0) + 1.0;
            let beyond = (younger - MOST_YOUNGER * known).max(0.0);
            younger += still;
            hazard * known / (known + beyond)
        };
        hazards.into_iter().zip(self.exposed()).zip(still).map(wary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_little_is_smoothed() {
        let worth = [8.0, 16.0, 8.0, 100.0, 24.0];
        let expected = [32.0 / 3.0, 48.0 / 4.0, 32.0 / 3.0, 100.0, 24.0];
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        assert!(smoothed(&worth).iter().zip(&expected).all(close), "{:?}", smoothed(&worth));
    }

    /// Ten wait: one is given up on in the first bin, four return in the second, and the other
    /// five are given up on in the third. One more is assumed.
    #[test]
    fn who_is_given_up_on_counts_until_then() {
        let counts =
            Counts { waited: vec![1.0, 4.0, 5.0, 0.0], returned: vec![0.0, 4.0, 0.0, 0.0] };
        let expected = [0.1 / 10.5, 4.1 / 10.0, 0.1 / 3.5, 0.1];
        for (hazard, expected) in counts.hazards(1.0, |_| 0.1).into_iter().zip(expected) {
            assert!((hazard - expected).abs() < 1e-12, "{hazard}, not {expected}");
        }
    }

    /// Forty were waited for until the third bin, and one more is assumed. 123 younger ones are still waited for, which is 41 more
    /// than twice as many.
    #[test]
    fn a_flood_of_strangers_is_not_taken_to_come_like_those_before() {
        let counts = Counts { waited: vec![100.0, 23.0, 40.0], returned: vec![0.0, 0.0, 40.0] };
        let still = [100.0, 23.0, 0.0];
        let wary = |hazards: [f64; 3]| counts.wary_of_a_flood(hazards.to_vec(), &still);
        let expected = [0.1, 0.2, 0.5 * 41.0 / (41.0 + 41.0)];
        for (hazard, expected) in wary([0.1, 0.2, 0.5]).into_iter().zip(expected) {
            assert!((hazard - expected).abs() < 1e-12, "{hazard}, not {expected}");
        }
        assert_eq!(counts.wary_of_a_flood(vec![0.1, 0.2, 0.5], &[82.0, 0.0, 9.0])[2], 0.5);
    }

    #[test]
    fn no_chance_is_above_one() {
        let counts = Counts { waited: vec![0.0, 1.0], returned: vec![8.0, 8.0] };
        for hazard in counts.hazards(1.0, |_| 0.1) {
            assert!((0.0..=1.0).contains(&hazard), "{hazard}");
        }
    }
}
