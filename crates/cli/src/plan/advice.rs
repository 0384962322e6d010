//! The size and the policy to recommend.

use rejoin_sim::sizing::Found;
use rejoin_sim::{Cell, Error, Subject};
use serde::Serialize;

use super::knee::knee;
use super::trials::{Trials, returning};

/// The shipped policies. Of two that are as good, the earlier is recommended.
const SHIPPED: [Subject; 4] = [Subject::Both, Subject::Learned, Subject::Lru, Subject::Predictive];
/// The points by which the rates of policies that are as good may differ.
const AS_GOOD_POINTS: f64 = 0.3;
/// The ratio by which the needs of policies that are as good may differ.
const AS_GOOD_RATIO: f64 = 1.05;

/// The aim of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wish {
    /// The size beyond which more buys little.
    Knee,
    /// A percentage of what an unlimited cache resumes.
    Target(f64),
}

impl Wish {
    /// Returns the target by which sizes are sought.
    pub(super) fn target(self) -> f64 {
        match self {
            Self::Knee => 98.0,
            Self::Target(percent) => percent,
        }
    }
}

/// A policy and a size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chosen {
    pub(super) policy: Subject,
    pub(super) sessions: u32,
    pub(super) percent: f64,
    /// The largest smaller size tried that resumes less than asked for.
    pub(super) fails_at: Option<u32>,
}

/// Chooses among what was found, and tries what is missing. `goal` is the target in percent of returning devices.
/// Returns `None` if no size is enough, or nothing was tried.
pub(super) fn choose(
    trials: &mut Trials<'_>,
    found: &Found,
    wish: Wish,
    goal: f64,
) -> Result<Option<Chosen>, Error> {
    match wish {
        Wish::Knee => at_the_knee(trials, found),
        Wish::Target(_) => for_a_goal(trials, found, goal),
    }
}

/// Chooses for a goal among what was found, without trying more.
pub(super) fn among(trials: &Trials<'_>, found: &Found) -> Option<Chosen> {
    let need = found.recommended()?;
    let (policy, sessions) = (need.policy, need.sessions?);
    let percent = returning(trials.cell(policy, sessions)?);
    Some(Chosen { policy, sessions, percent, fails_at: need.fails_at })
}

pub(super) fn is_shipped(policy: Subject) -> bool {
    SHIPPED.contains(&policy)
}

/// The most sizes that are tried for a knee: each shows more of the curve around it.
const MOST_KNEES: usize = 4;

fn at_the_knee(trials: &mut Trials<'_>, found: &Found) -> Result<Option<Chosen>, Error> {
    let policies = trials.simulation.policies.clone();
    let (mut sizes, mut sessions) = (found.sizes.clone(), None);
    for _ in 0..MOST_KNEES {
        let next = knee(&best_of_shipped(trials, &sizes));
        let Some(size) = next.filter(|_| next != sessions) else { break };
        // A corner below may lie between two sizes that are known.
        let part = |part: f64| ((f64::from(size) * part) as u32).max(1);
        let around = [part(0.5), part(0.71), part(0.84), size, size.saturating_mul(2)];
        trials.run(&policies, &around)?;
        sizes.extend(around);
        sizes.sort_unstable();
        sizes.dedup();
        sessions = next;
    }
    let Some(sessions) = sessions else { return Ok(None) };
    let here: Vec<&Cell> =
        shipped(trials).filter_map(|policy| trials.cell(policy, sessions)).collect();
    let most = here.iter().map(|cell| returning(cell)).fold(0.0, f64::max);
    // A size at which nobody resumes is no answer.
    if most == 0.0 {
        return Ok(None);
    }
    let good = here.into_iter().find(|cell| returning(cell) >= most - AS_GOOD_POINTS);
    Ok(good.map(|cell| Chosen {
        policy: cell.policy,
        sessions,
        percent: returning(cell),
        fails_at: None,
    }))
}

/// Returns the best rate of the shipped policies at each size.
fn best_of_shipped(trials: &Trials<'_>, sizes: &[u32]) -> Vec<(u32, f64)> {
    let best_at = |size: &u32| {
        let cells =
            trials.cells.iter().filter(|cell| cell.capacity == *size && is_shipped(cell.policy));
        Some((*size, cells.map(returning).max_by(f64::total_cmp)?))
    };
    sizes.iter().filter_map(best_at).collect()
}

fn for_a_goal(trials: &mut Trials<'_>, found: &Found, goal: f64) -> Result<Option<Chosen>, Error> {
    let of_needs = |policy: Subject| found.need(policy).and_then(|need| need.sessions);
    let mut needs: Vec<(Subject, u32)> = Vec::new();
    for policy in shipped(trials).collect::<Vec<_>>() {
        let narrowed = of_needs(policy).map(|_| trials.need(policy, goal)).transpose()?.flatten();
        needs.extend(narrowed.map(|sessions| (policy, sessions)));
    }
    let Some(least) = needs.iter().map(|(_, sessions)| *sessions).min() else { return Ok(None) };
    let as_good =
        |(_, sessions): &&(Subject, u32)| f64::from(*sessions) <= f64::from(least) * AS_GOOD_RATIO;
    let Some((policy, sessions)) = needs.iter().find(as_good).copied() else { return Ok(None) };
    let policies = trials.simulation.policies.clone();
    trials.run(&policies, &[sessions])?;
    let Some(percent) = trials.cell(policy, sessions).map(returning) else { return Ok(None) };
    let fails = |cell: &&Cell| cell.capacity < sessions && returning(cell) < goal;
    let fails_at = trials.curve(policy).filter(fails).map(|cell| cell.capacity).max();
    Ok(Some(Chosen { policy, sessions, percent, fails_at }))
}

/// Returns the shipped policies that are tried, the preferred first.
fn shipped(trials: &Trials<'_>) -> impl Iterator<Item = Subject> {
    let asked = trials.simulation.policies.clone();
    SHIPPED.into_iter().filter(move |policy| asked.contains(policy))
}
