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
//!
//! Of a client that announces its interval is also known how many visits it has made in its run, and
//! how many in the run before, each to a power of two: runs may have a memory, and clients habits.
//! The more classes there are, the fewer waits has each, and the more of what is known of them is
//! chance, which would make the bound too high. So classes that differ by no more than chance are
//! merged. Where runs have no memory, all this is worth nothing, and the bound of paper 000's
//! population is 0.1 points higher at most.
//!
//! The slot-time of the whole pass is one stock, unless places that are free for a time are lost ([`by_time`]).

mod by_time;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use rejoin_trace::Event;

use crate::player::{Chunk, Player};
use crate::request::Request;
use crate::server::Server;
use crate::subject::{Knows, Places};
use crate::tally::{Kind, Tally};

/// A player that collects how long clients stay away.
pub(crate) struct Bound {
    knows: Knows,
    places: Places,
    sessions: u64,
    sessions_kept: bool,
    lifetime_ms: Option<u64>,
    clients: Vec<Client>,
    classes: Classes,
    began_ms: Option<u64>,
    /// The time of the first request that counts.
    counted_ms: Option<u64>,
    now_ms: u64,
    hits: Tally,
}

/// The waits for the clients of each class.
type Classes = BTreeMap<Class, Vec<Wait>>;

/// A class of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    interval: u32,
    /// The position of the visit in the run, counted from 0, in powers of two.
    position: u32,
    /// The visits of the run before, in powers of two; 0 if it is not known.
    before: u32,
}

/// A client seen before.
#[derive(Debug, Clone, Copy)]
struct Client {
    seen_ms: u64,
    class: Class,
    has_returned: bool,
    /// The visits of this run and, if it is known, of the run before.
    visits: u32,
    visits_before: u32,
}

/// A wait for a client: until it was back as a request of a kind, or until nothing more is known.
#[derive(Debug, Clone, Copy)]
struct Wait {
    begun_ms: u64,
    age_ms: u64,
    back: Option<Kind>,
}

/// A step of a class from one age to a later one.
#[derive(Debug)]
struct Step<'a> {
    /// The slot-milliseconds.
    taken_ms: f64,
    back: Vec<&'a Kind>,
    until_ms: u64,
}

/// The class of clients of whom nothing is known.
const NOTHING: u32 = 0;
const ANNOUNCED: u32 = 1;
/// The class of clients that announce to leave.
const LEAVES: u32 = 1_000;
const LAST_GAP: u32 = 1_001;
/// The position, or the run before, of classes that were merged.
const ANY: u32 = u32::MAX;
/// The fewest waits of a class that is not merged.
const FEWEST_WAITS: usize = 100;
/// The deviations by which a class must differ from its whole not to be merged with it.
const DEVIATIONS: f64 = 2.0;

impl Bound {
    pub(crate) fn new(
        knows: Knows,
        places: Places,
        capacity: NonZeroU32,
        server: &Server,
        groups: usize,
    ) -> Self {
        Self {
            knows,
            places,
            sessions: u64::from(capacity.get()) * u64::from(server.servers.max(1)),
            sessions_kept: server.sessions_kept,
            lifetime_ms: server.lifetime_ms(),
            clients: Vec::new(),
            classes: BTreeMap::new(),
            began_ms: None,
            counted_ms: None,
            now_ms: 0,
            hits: Tally::new(groups),
        }
    }

    fn arrives(&mut self, request: &Request) {
        let before = self.clients.get(request.client as usize).copied();
        let gap_ms = before.map(|before| request.now_ms - before.seen_ms);
        if let (Some(Client { class, seen_ms, .. }), Some(age_ms)) = (before, gap_ms) {
            // A session that a visit does not renew is older, so that this is a bound for it, too.
            let expired = self.lifetime_ms.is_some_and(|lifetime_ms| age_ms >= lifetime_ms);
            let has_session = !expired && (self.sessions_kept || !request.first_of_run);
            let back = has_session.then_some(request.kind);
            self.classes.entry(class).or_default().push(Wait { begun_ms: seen_ms, age_ms, back });
        }
        let has_returned =
            before.is_some_and(|before| before.has_returned || !request.first_of_run);
        let (visits, visits_before) = match before {
            None => (1, 0),
            Some(Client { visits, .. }) if request.first_of_run => (1, visits),
            Some(Client { visits, visits_before, .. }) => (visits + 1, visits_before),
        };
        let interval = self.interval(request, gap_ms, has_returned);
        let knows_run = self.knows == Knows::Announced && (ANNOUNCED..LEAVES).contains(&interval);
        let class = Class {
            interval,
            position: if knows_run { octave(visits - 1) } else { ANY },
            before: if knows_run { octave(visits_before) } else { ANY },
        };
        let seen_ms = request.now_ms;
        let client = Client { seen_ms, class, has_returned, visits, visits_before };
        match self.clients.get_mut(request.client as usize) {
            Some(known) => *known = client,
            // Clients are numbered in the order in which they come.
            None => self.clients.push(client),
        }
    }

    /// Takes the steps that gain most until so many slot-milliseconds are taken.
    fn fill(&mut self, mut left_ms: f64) {
        let mut steps: Vec<Step<'_>> =
            self.classes.values().flat_map(|waits| steps(waits)).collect();
        steps.sort_by(|a, b| b.gain().total_cmp(&a.gain()));
        for step in steps {
            let share = if step.taken_ms > left_ms { left_ms / step.taken_ms } else { 1.0 };
            // Spread evenly: those that were away for as long are in the order in which they came.
            let back = |before: usize| (share * before as f64) as usize;
            let taken = step.back.iter().enumerate().filter(|(at, _)| back(at + 1) > back(*at));
            taken.for_each(|(_, kind)| self.hits.add(**kind, true));
            left_ms -= share * step.taken_ms;
        }
    }

    fn interval(&self, request: &Request, gap_ms: Option<u64>, has_returned: bool) -> u32 {
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
            if request.kind != Kind::UNCOUNTED {
                self.counted_ms.get_or_insert(request.now_ms);
            }
            self.arrives(request);
        }
    }

    fn finish(&mut self) {
        for Client { seen_ms, class, .. } in &self.clients {
            let age_ms = self.now_ms - seen_ms;
            let wait = Wait { begun_ms: *seen_ms, age_ms, back: None };
            self.classes.entry(*class).or_default().push(wait);
        }
        self.classes = merged(std::mem::take(&mut self.classes));
        self.classes.values_mut().for_each(|waits| waits.sort_by_key(|wait| wait.age_ms));
        let began_ms = self.began_ms.unwrap_or(self.now_ms);
        match self.places {
            Places::Saved => self.fill((self.now_ms - began_ms) as f64 * self.sessions as f64),
            Places::Lost => {
                let waits = self.classes.values().map(Vec::as_slice);
                let counted_ms = self.counted_ms.unwrap_or(self.now_ms);
                let pass_ms = began_ms..self.now_ms;
                by_time::fill(waits, pass_ms, counted_ms, self.sessions, &mut self.hits);
            }
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

/// Merges classes that differ by no more than chance, or have few waits: first whatever the run before
/// was, then whatever the position is. What counts is how many clients are back by the end of the step
/// that gains most of all their interval's.
fn merged(classes: Classes) -> Classes {
    let mut of_interval: BTreeMap<u32, Vec<Wait>> = BTreeMap::new();
    for (class, waits) in &classes {
        of_interval.entry(class.interval).or_default().extend(waits);
    }
    let untils = of_interval.into_iter().map(|(interval, mut waits)| {
        waits.sort_by_key(|wait| wait.age_ms);
        (interval, steps(&waits).first().map_or(0, |step| step.until_ms))
    });
    let untils: BTreeMap<u32, u64> = untils.collect();
    let merge = |classes: Classes, coarser: fn(Class) -> Class| {
        let share = |class: &Class, waits: &[Wait]| Share::new(waits, untils[&class.interval]);
        let mut wholes: BTreeMap<Class, Share> = BTreeMap::new();
        for (class, waits) in &classes {
            wholes.entry(coarser(*class)).or_default().add(share(class, waits));
        }
        let mut merged = Classes::new();
        for (class, mut waits) in classes {
            let differs = share(&class, &waits).differs_from(wholes[&coarser(class)]);
            merged
                .entry(if differs { class } else { coarser(class) })
                .or_default()
                .append(&mut waits);
        }
        merged
    };
    let any_before = merge(classes, |class| Class { before: ANY, ..class });
    merge(any_before, |class| Class { position: ANY, before: ANY, ..class })
}

/// The number of waits of a class, and of those that ended early in a return.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    waits: usize,
    back: usize,
}

impl Share {
    fn new(waits: &[Wait], until_ms: u64) -> Self {
        let is_back = |wait: &&Wait| wait.back.is_some() && wait.age_ms <= until_ms;
        Self { waits: waits.len(), back: waits.iter().filter(is_back).count() }
    }

    fn add(&mut self, other: Self) {
        self.waits += other.waits;
        self.back += other.back;
    }

    fn of_all(self) -> f64 {
        self.back as f64 / self.waits as f64
    }

    fn differs_from(self, whole: Self) -> bool {
        let expected = whole.of_all();
        let deviation = (expected * (1.0 - expected) / self.waits as f64).sqrt();
        let apart = (self.of_all() - expected).abs();
        self.waits >= FEWEST_WAITS && apart > DEVIATIONS * deviation
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
        let mut step =
            Step { taken_ms: std::mem::take(&mut taken_ms), back: vec![kind], until_ms: age_ms };
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

/// Returns the number of binary digits: 0 of 0, 1 of 1, 2 of 2 and 3, 3 of 4 to 7.
fn octave(visits: u32) -> u32 {
    u32::BITS - visits.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(of: &[(u64, bool)]) -> Vec<Wait> {
        let kind = Kind::new(0, false, false);
        let wait = |&(age_ms, back): &(u64, bool)| Wait {
            begun_ms: 0,
            age_ms,
            back: back.then_some(kind),
        };
        of.iter().map(wait).collect()
    }

    /// Two are back after 10 ms. Of the other two, one is back after 30, the other never.
    #[test]
    fn a_class_is_kept_as_long_as_it_gains() {
        let waits = waits(&[(10, true), (10, true), (30, true), (50, false)]);
        let steps: Vec<(f64, usize)> =
            steps(&waits).iter().map(|step| (step.taken_ms, step.back.len())).collect();
        assert_eq!(steps, [(40.0, 2), (40.0, 1)]);
    }

    #[test]
    fn classes_that_differ_by_chance_are_merged() {
        let of = |position, before, back, count| {
            let class = Class { interval: ANNOUNCED, position, before };
            let waits = [vec![(10, true); back], vec![(90, false); count - back]].concat();
            (class, self::waits(&waits))
        };
        let few = of(0, 0, 0, 99);
        let classes = [few, of(0, 1, 560, 1_000), of(0, 2, 600, 1_000), of(1, 1, 800, 1_000)];
        let merged: Vec<(u32, u32, usize)> = merged(classes.into_iter().collect())
            .into_iter()
            .map(|(class, waits)| (class.position, class.before, waits.len()))
            .collect();
        assert_eq!(merged, [(0, 2, 1_000), (0, ANY, 1_099), (1, ANY, 1_000)]);
    }

    #[test]
    fn visits_are_known_to_a_power_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8].map(octave), [0, 1, 2, 2, 3, 3, 4]);
    }

    /// All are back after as long. Half of the time is not counted, and there is room for half of them.
    #[test]
    fn those_that_are_not_counted_are_not_kept_first() {
        let server = Server::default();
        let mut bound = Bound::new(Knows::Announced, Places::Saved, NonZeroU32::MIN, &server, 1);
        let counted = Kind::new(0, false, false);
        let wait = |at| Wait {
            begun_ms: 0,
            age_ms: 10,
            back: Some(if at < 50 { Kind::UNCOUNTED } else { counted }),
        };
        let class = Class { interval: ANNOUNCED, position: ANY, before: ANY };
        bound.classes.insert(class, (0..100).map(wait).collect());
        (bound.began_ms, bound.now_ms) = (Some(0), 500);
        bound.finish();
        let mut half = Tally::new(1);
        for kind in [counted, Kind::UNCOUNTED].repeat(25) {
            half.add(kind, true);
        }
        assert_eq!(bound.hits(), &half);
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
