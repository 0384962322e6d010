//! The outcome of a simulation: hit rates per policy and capacity, over seeds.

use serde::Serialize;

use crate::Subject;

/// The mean and standard deviation over seeds, in percent.
///
/// The deviation is that of a sample, 0 for one seed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// The mean, in percent.
    pub mean: f64,
    /// The standard deviation, in percent.
    pub sd: f64,
}

impl Rate {
    /// Calculates both from the figures of seeds; `None` if there is none.
    pub fn over(percent: &[f64]) -> Option<Self> {
        let count = percent.len() as f64;
        let mean = percent.iter().sum::<f64>() / count;
        let squares: f64 = percent.iter().map(|one| (one - mean).powi(2)).sum();
        let sd = if percent.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        (!percent.is_empty()).then_some(Self { mean, sd })
    }
}

/// The three hit rates. Each is `None` if nothing was counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HitRates {
    /// The rate of all requests.
    pub hit_all: Option<Rate>,
    /// The rate without the first request of each device, which cannot be a hit.
    pub hit_after_first_of_device: Option<Rate>,
    /// The rate without the first request of each run of a device's requests (paper 000 §V.A).
    pub hit_after_first_of_run: Option<Rate>,
}

/// One policy at one capacity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The policy.
    pub policy: Subject,
    /// The capacity of each server, in sessions.
    pub capacity: u32,
    /// The number of seeds played to their end.
    pub seeds: u32,
    /// The number of requests counted: the mean over seeds.
    pub requests: f64,
    /// The number of full handshakes among them: the mean over seeds.
    pub full_handshakes: f64,
    /// The hit rates.
    #[serde(flatten)]
    pub rates: HitRates,
    /// The figures of each group of clients; empty unless the plan has several groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupCell>,
}

/// One group of clients under one policy at one capacity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupCell {
    /// The group's name in the plan.
    pub name: String,
    /// The number of its requests counted: the mean over seeds.
    pub requests: f64,
    /// Its hit rates.
    #[serde(flatten)]
    pub rates: HitRates,
}

/// The outcome of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The plan's title, or the trace's name.
    pub title: String,
    /// The number of seeds asked for.
    pub seeds: u32,
    /// True if all of them were played in every cell.
    pub complete: bool,
    /// The cells with at least one seed played, in the order of the policies asked for, then of
    /// capacities.
    pub cells: Vec<Cell>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_a_deviation() {
        assert_eq!(Rate::over(&[]), None);
        assert_eq!(Rate::over(&[7.0]), Some(Rate { mean: 7.0, sd: 0.0 }));
        assert_eq!(Rate::over(&[1.0, 2.0, 3.0]), Some(Rate { mean: 2.0, sd: 1.0 }));
    }
}
