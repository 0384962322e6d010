//! The value of prediction, in virtual time: the paper's population straight into the cache, so that the figures are
//! the same on every machine. The servers' own figures are in `tests/` of the CLI.

use rejoin_cache::{
    Cache, Capacity, ContextTag, Issued, Policy, Prediction, SecretBytes, SessionId, Settings,
    Visit,
};
use rejoin_trace::{Event, Population, PopulationSettings};

const DEVICES: u64 = 10_000;
const WARM_UP_MS: u64 = 900_000;
const END_MS: u64 = 2_700_000;

/// Percent resumed after the first connection of each run: of honest devices, and of liars.
#[derive(Debug)]
struct HitRates {
    honest: f64,
    liars: f64,
}

struct Trial {
    policy: Policy,
    prediction: Prediction,
    hints: bool,
    liars_percent: u64,
    ghosts: bool,
    /// As a multiple of real time.
    speed: u64,
}

const HINTED: Trial = Trial {
    policy: Policy::Predictive,
    prediction: Prediction::Both,
    hints: true,
    liars_percent: 0,
    ghosts: true,
    speed: 1,
};

impl Trial {
    /// TLS 1.2: a session keeps its id until the server no longer knows it.
    fn run(&self, seed: u64) -> HitRates {
        let population = Population::new(PopulationSettings::paper(DEVICES)).expect("valid");
        let capacity = (0.6 * population.expected_running()) as u64;
        let cache = Cache::new(
            &Settings {
                policy: self.policy,
                prediction: self.prediction,
                ghosts_percent: if self.ghosts { 100 } else { 0 },
                ..Settings::new(Capacity::Sessions(capacity))
            },
            [7; 16],
            0,
        )
        .expect("valid");
        let mut sessions = vec![None; DEVICES as usize];
        let (mut issued, mut honest, mut liars) = (0, (0, 0), (0, 0));
        for event in population.arrivals(seed).take_while(|event| event.time_ms < END_MS) {
            let lies = event.client % 100 < self.liars_percent;
            let session = &mut sessions[event.client as usize];
            let hit = self.connect(&cache, &event, lies, session, &mut issued);
            if event.time_ms >= WARM_UP_MS && !event.first_of_run {
                let group = if lies { &mut liars } else { &mut honest };
                group.0 += u64::from(hit);
                group.1 += 1;
            }
        }
        let rate = |(hits, all): (u64, u64)| hits as f64 * 100.0 / all.max(1) as f64;
        HitRates { honest: rate(honest), liars: rate(liars) }
    }

    fn connect(
        &self,
        cache: &Cache,
        event: &Event,
        lies: bool,
        session: &mut Option<SessionId>,
        issued: &mut u64,
    ) -> bool {
        let mut visit = Visit::default();
        let now_ms = event.time_ms / self.speed;
        let found = session.is_some_and(|id| {
            visit.look_up(cache, now_ms, &id, ContextTag(0), &mut SecretBytes::default())
        });
        if !found {
            *issued += 1;
            let id = SessionId::new(&issued.to_be_bytes()).expect("eight bytes");
            let value = SecretBytes::from(vec![1; 150]);
            let expires_ms = now_ms + 86_400_000;
            let made = Issued { id, value, expires_ms, context: ContextTag(0) };
            visit.issue_later(cache, now_ms, made);
            *session = Some(id);
        }
        let announced = if lies { Some(1_000) } else { event.returns_in_ms };
        match announced.filter(|_| self.hints) {
            Some(ms) => visit.hint(cache, now_ms, u64::from(ms) / self.speed),
            None => visit.finish(cache, now_ms),
        }
        found
    }
}

/// The mean over three seeds.
fn mean(trial: &Trial) -> HitRates {
    let rates: Vec<_> = (1..=3).map(|seed| trial.run(seed)).collect();
    let mean = |of: fn(&HitRates) -> f64| rates.iter().map(of).sum::<f64>() / 3.0;
    HitRates { honest: mean(|rates| rates.honest), liars: mean(|rates| rates.liars) }
}

const LRU: Trial = Trial { policy: Policy::Lru, ..HINTED };
const LEARNED: Trial = Trial { prediction: Prediction::Learned, hints: false, ..HINTED };

#[test]
fn hints_are_worth_fifty_points() {
    let (hinted, lru) = (mean(&HINTED).honest, mean(&LRU).honest);
    assert!(hinted > lru + 50.0, "hinted {hinted:.1}, lru {lru:.1}");
}

#[test]
fn without_hints_much_is_learned() {
    let (learned, lru) = (mean(&LEARNED).honest, mean(&LRU).honest);
    assert!(learned > lru + 45.0, "learned {learned:.1}, lru {lru:.1}");
}

/// Intervals of 200, 400 and 800 ms, as in `rejoin demo`.
#[test]
fn clients_that_come_often_are_learned_too() {
    let (often, seldom) = (mean(&Trial { speed: 75, ..LEARNED }).honest, mean(&LEARNED).honest);
    assert!(often > seldom - 1.5, "{often:.1}, in real time {seldom:.1}");
}

#[test]
fn evicted_clients_are_remembered() {
    let forgetful = Trial { ghosts: false, ..LEARNED };
    let (learned, forgetful) = (mean(&LEARNED).honest, mean(&forgetful).honest);
    assert!(learned > forgetful + 10.0, "with ghosts {learned:.1}, without {forgetful:.1}");
}

/// Claims of a second, of one device in ten.
#[test]
fn liars_cost_the_honest_little() {
    for (prediction, ghosts, most_gained) in [
        (Prediction::Hint, true, -20.0),
        (Prediction::Both, false, -20.0),
        (Prediction::Both, true, 10.0),
    ] {
        let trial = Trial { prediction, ghosts, ..HINTED };
        let among_liars = mean(&Trial { liars_percent: 10, ..trial });
        let honest = mean(&trial).honest;
        assert!(among_liars.honest > honest - 2.0, "{among_liars:?}, {honest:.1} without liars");
        let gained = among_liars.liars - honest;
        assert!(gained < most_gained, "{among_liars:?}, {honest:.1} without liars");
    }
}
