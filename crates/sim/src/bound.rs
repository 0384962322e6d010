//! The bound of what a policy can reach that does not know the future: which share of requests finds
//! its session, at most, if sessions are kept or not by what is known of their clients.
//!
//! Clients of whom the same is known are one class. A policy that keeps the sessions of a class up
//! to an age pays in slot-seconds: the age, or the time until the client is back if that is less.
//! It gains the clients that are back by then. Of all classes and ages it takes those that gain
//! most for a slot-second, until all slots are taken all the time. So the cache is taken for a
//! fluid: neither chance nor the whole number of sessions costs anything, and how long the clients
//! of a class stay away is known from the pass itself. No policy that knows no more is better, but
//! for chance.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use rejoin_trace::Event;

use crate::player::{Chunk, Player};
use crate::request::Request;
use crate::server::Server;
use crate::subject::Knows;
use crate::tally::{Kind, Tally};

/// A player that collects how long clients stay away.
pub(crate) struct Bound {
    knows: Knows,
    sessions: u64,
    sessions_kept: bool,
    clients: Vec<Client>,
    classes: BTreeMap<u32, Vec<Wait>>,
    began_ms: Option<u64>,
    now_ms: u64,
    hits: Tally,
}

/// A client seen before.
#[derive(Debug, Clone, Copy)]
struct Client {
    seen_ms: u64,
    class: u32,
    has_returned: bool,
}

/// A wait for a client: until it was back as a request of a kind, or until nothing more is known.
#[derive(Debug, Clone, Copy)]
struct Wait {
    age_ms: u64,
    back: Option<Kind>,
}

/// A step of a class from one age to a later one.
#[derive(Debug)]
struct Step<'a> {
    /// The slot-milliseconds.
    taken_ms: f64,
    back: Vec<&'a Kind>,
}

/// The class of clients of whom nothing is known.
const NOTHING: u32 = 0;
const ANNOUNCED: u32 = 1;
/// The class of clients that announce to leave.
const LEAVES: u32 = 1_000;
const LAST_GAP: u32 = 1_001;

impl Bound {
    pub(crate) fn new(knows: Knows, capacity: NonZeroU32, server: &Server, groups: usize) -> Self {
        Self {
            knows,
            sessions: u64::from(capacity.get()) * u64::from(server.servers.max(1)),
            sessions_kept: server.sessions_kept,
            clients: Vec::new(),
            classes: BTreeMap::new(),
            began_ms: None,
            now_ms: 0,
            hits: Tally::new(groups),
        }
    }

    fn arrives(&mut self, request: &Request) {
        let before = self.clients.get(request.client as usize).copied();
        let gap_ms = before.map(|before| request.now_ms - before.seen_ms);
        if let (Some(Client { class, .. }), Some(age_ms)) = (before, gap_ms) {
            let has_session = self.sessions_kept || !request.first_of_run;
            let back = has_session.then_some(request.kind);
            self.classes.entry(class).or_default().push(Wait { age_ms, back });
        }
        let has_returned =
            before.is_some_and(|before| before.has_returned || !request.first_of_run);
        let class = self.class(request, gap_ms, has_returned);
        let client = Client { seen_ms: request.now_ms, class, has_returned };
        match self.clients.get_mut(request.client as usize) {
            Some(known) => *known = client,
            // Clients are numbered in the order in which they come.
            None => self.clients.push(client),
        }
    }

    fn class(&self, request: &Request, gap_ms: Option<u64>, has_returned: bool) -> u32 {
        let leaves = request.returns_in_ms == Some(Event::NOT_BACK_MS);
        let announced = request.returns_in_ms.filter(|_| !leaves);
        let interval = match (announced, gap_ms) {
            (Some(ms), _) => ANNOUNCED + eighth(ms.into()),
            (None, Some(ms)) => LAST_GAP + eighth(ms),
            (None, None) => NOTHING,
        };
        match self.knows {
            Knows::Announced if leaves => LEAVES,
            Knows::Announced => interval,
            Knows::Past if has_returned => interval,
            Knows::Past => NOTHING,
        }
    }
}

impl Player for Bound {
    fn play(&mut self, chunk: &Chunk<'_>) {
        for request in chunk.requests {
            self.began_ms.get_or_insert(request.now_ms);
            self.now_ms = request.now_ms;
            self.arrives(request);
        }
    }

    fn finish(&mut self) {
        for Client { seen_ms, class, .. } in &self.clients {
            let wait = Wait { age_ms: self.now_ms - seen_ms, back: None };
            self.classes.entry(*class).or_default().push(wait);
        }
        let lasted_ms = self.now_ms - self.began_ms.unwrap_or(self.now_ms);
        let mut left_ms = lasted_ms as f64 * self.sessions as f64;
        self.classes.values_mut().for_each(|waits| waits.sort_by_key(|wait| wait.age_ms));
        let mut steps: Vec<Step<'_>> =
            self.classes.values().flat_map(|waits| steps(waits)).collect();
        steps.sort_by(|a, b| b.gain().total_cmp(&a.gain()));
        for step in steps {
            let share = if step.taken_ms > left_ms { left_ms / step.taken_ms } else { 1.0 };
            let back = (share * step.back.len() as f64) as usize;
            step.back.iter().take(back).for_each(|kind| self.hits.add(**kind, true));
            left_ms -= share * step.taken_ms;
        }
    }

    fn hits(&self) -> &Tally {
        &self.hits
    }
}

impl Step<'_> {
    /// Returns the clients that are back for a slot-millisecond.
    fn gain(&self) -> f64 {
        if self.taken_ms > 0.0 { self.back.len() as f64 / self.taken_ms } else { f64::INFINITY }
    }
}

/// Returns the steps of a class, whose waits are in order of age, such that no step gains more than
/// the one before.
fn steps(waits: &[Wait]) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let (mut taken_ms, mut age_ms) = (0.0, 0);
    for (ended, wait) in waits.iter().enumerate() {
        let waiting = waits.len() - ended;
        taken_ms +=
            (wait.age_ms - std::mem::replace(&mut age_ms, wait.age_ms)) as f64 * waiting as f64;
        let Some(kind) = &wait.back else { continue };
        let mut step = Step { taken_ms: std::mem::take(&mut taken_ms), back: vec![kind] };
        while let Some(before) = steps.pop_if(|before| before.gain() <= step.gain()) {
            step.taken_ms += before.taken_ms;
            // The order within a step does not matter, so the shorter joins the longer.
            let (mut longer, shorter) = if before.back.len() > step.back.len() {
                (before.back, step.back)
            } else {
                (step.back, before.back)
            };
            longer.extend(shorter);
            step.back = longer;
        }
        steps.push(step);
    }
    steps
}

/// Returns the eighth of an octave in which a time is.
fn eighth(ms: u64) -> u32 {
    let ms = ms.max(8);
    let octave = ms.ilog2();
    octave * 8 + (ms >> (octave - 3) & 7) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(of: &[(u64, bool)]) -> Vec<Wait> {
        let kind = Kind::new(0, false, false);
        of.iter().map(|&(age_ms, back)| Wait { age_ms, back: back.then_some(kind) }).collect()
    }

    /// Two are back after 10 ms. Of the other two, one is back after 30, the other never.
    #[test]
    fn a_class_is_kept_as_long_as_it_gains() {
        let waits = waits(&[(10, true), (10, true), (30, true), (50, false)]);
        let steps: Vec<(f64, usize)> =
            steps(&waits).iter().map(|step| (step.taken_ms, step.back.len())).collect();
        assert_eq!(steps, [(40.0, 2), (40.0, 1)]);
    }

    /// None is back soon, but all are in the end, so no step ends before.
    #[test]
    fn a_step_that_gains_more_takes_in_the_one_before() {
        let waits = waits(&[(100, true), (110, true), (110, true)]);
        let steps: Vec<(f64, usize)> =
            steps(&waits).iter().map(|step| (step.taken_ms, step.back.len())).collect();
        assert_eq!(steps, [(320.0, 3)]);
    }
}
