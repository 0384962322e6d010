//! Populations that begin waiting, know when they leave, or lie.

use std::collections::{HashMap, HashSet};

use rejoin_trace::{Claims, Event, Population, PopulationSettings, Start};

const MINUTE_MS: u64 = 60_000;
const RUNNING_S: f64 = 120.0;
const WAITING_S: f64 = 2_760.0;

fn population(
    devices: u64,
    change: impl FnOnce(PopulationSettings) -> PopulationSettings,
) -> Population {
    Population::new(change(PopulationSettings::paper(devices))).expect("in range")
}

fn waiting(devices: u64) -> Population {
    population(devices, |paper| PopulationSettings { start: Start::Waiting, ..paper })
}

/// Counts the connections in each of the first minutes.
fn minutes<const N: usize>(population: &Population, seed: u64) -> [u32; N] {
    let mut minutes = [0; N];
    for event in population.arrivals(seed) {
        let Some(minute) = minutes.get_mut((event.time_ms / MINUTE_MS) as usize) else { break };
        *minute += 1;
    }
    minutes
}

/// Calculates the runs that began within so many seconds, if all waited at 0: the share of running
/// devices approaches r / (r + w) with the time constant r w / (r + w), and only a waiting device
/// can begin a run.
fn runs_begun(devices: f64, seconds: f64) -> f64 {
    let seconds = seconds.max(0.0);
    let share = RUNNING_S / (RUNNING_S + WAITING_S);
    let constant = share * WAITING_S;
    let running = share * constant * -(-seconds / constant).exp_m1();
    devices / WAITING_S * (seconds * (1.0 - share) + running)
}

/// Calculates the connections in a minute: the runs that began k intervals before and still go on.
fn expected_in_minute(devices: f64, minute: f64) -> f64 {
    let (begin, end) = (minute * 60.0, (minute + 1.0) * 60.0);
    let of = |interval: f64| -> f64 {
        let behind = (0..).map(|k| f64::from(k) * interval).take_while(|behind| *behind < end);
        let still = |behind: f64| {
            let begun = runs_begun(devices, end - behind) - runs_begun(devices, begin - behind);
            begun * (-behind / RUNNING_S).exp()
        };
        behind.map(still).sum()
    };
    (23.0 * of(60.0) + 13.0 * of(30.0) + 2.0 * of(15.0)) / 38.0
}

#[test]
fn who_begins_waiting_fills_up_as_the_formula_says() {
    let counts: [u32; 8] = minutes(&waiting(400_000), 1);
    for (minute, count) in counts.into_iter().enumerate() {
        let expected = expected_in_minute(400_000.0, minute as f64);
        let off = (f64::from(count) / expected - 1.0).abs();
        assert!(off < 0.035, "minute {minute}: {count}, expected {expected}");
    }
    let first = waiting(1_000).arrivals(2).next().expect("endless");
    assert!(first.first_of_run, "nobody runs at the beginning");
}

/// Compares with the simulator whose figures this project uses, in which all devices wait at first.
/// The figures of its trace (20,000 devices, an hour, `paper-000.oracleGeneral.bin`) are the
/// connections in the first five minutes, in the hour, and the devices seen.
#[test]
fn the_other_simulator_began_waiting() {
    let trace = [526, 942, 1_177, 1_266, 1_316];
    let deviations = |count: f64, expected: f64, spread: f64| (count - expected).abs() / spread;
    for (minute, count) in trace.into_iter().enumerate() {
        let expected = expected_in_minute(20_000.0, minute as f64);
        // Connections of a run come together, so allow twice the spread of single ones.
        let off = deviations(f64::from(count), expected, 2.0 * expected.sqrt());
        assert!(off < 2.0, "minute {minute}: {count}, expected {expected}");
    }
    let seen = 20_000.0 * -(-3_600.0 / WAITING_S).exp_m1();
    assert!(deviations(14_623.0, seen, (seen * (1.0 - seen / 20_000.0)).sqrt()) < 1.0);
    let hour: f64 = (0..60).map(|minute| expected_in_minute(20_000.0, f64::from(minute))).sum();
    assert!((85_973.0 / hour - 1.0).abs() < 0.01, "{hour}");

    let steady = population(20_000, |paper| paper);
    let [first, ..]: [u32; 5] = minutes(&steady, 3);
    assert!(first > 1_300, "a steady one has {first} in the first minute, not 526");
}

#[test]
fn both_starts_are_the_same_population_in_the_end() {
    let count = |population: &Population| -> u32 {
        let minutes: [u32; 40] = minutes(population, 4);
        minutes[20..].iter().sum()
    };
    let (steady, waiting) = (population(200_000, |paper| paper), waiting(200_000));
    let (steady, waiting) = (f64::from(count(&steady)), f64::from(count(&waiting)));
    assert!((steady / waiting - 1.0).abs() < 0.015, "{steady} {waiting}");
}

fn in_an_hour(population: &Population, seed: u64) -> Vec<Event> {
    population.arrivals(seed).take_while(|event| event.time_ms < 60 * MINUTE_MS).collect()
}

#[test]
fn a_departure_is_announced_at_the_last_connection_of_a_run_and_only_there() {
    let known = population(5_000, |paper| PopulationSettings { departures_known: true, ..paper });
    let (known, unknown) =
        (in_an_hour(&known, 5), in_an_hour(&population(5_000, |paper| paper), 5));
    let mut last: HashMap<u64, Event> = HashMap::new();
    let mut leaving = 0;
    for (event, silent) in known.iter().zip(&unknown) {
        let leaves = event.returns_in_ms == Some(Event::NOT_BACK_MS);
        let returns_in_ms = if leaves { silent.returns_in_ms } else { event.returns_in_ms };
        assert_eq!(Event { returns_in_ms, ..*event }, *silent, "nothing else is different");
        leaving += u32::from(leaves);
        if let Some(earlier) = last.insert(event.client, *event) {
            let left = earlier.returns_in_ms == Some(Event::NOT_BACK_MS);
            assert_eq!(left, event.first_of_run, "{earlier:?} {event:?}");
        }
    }
    assert_eq!(known.len(), unknown.len());
    // The rate is one for each of 5,000 devices in 2,880 s.
    assert!((f64::from(leaving) / 6_250.0 - 1.0).abs() < 0.05, "{leaving}");
}

#[test]
fn claims_change_nothing_else() {
    let honest = in_an_hour(&population(1_000, |paper| paper), 6);
    for (claims, claimed) in [
        (Claims::Permille(970), [58_200, 29_100, 14_550].map(Some)),
        (Claims::Permille(1_500), [90_000, 45_000, 22_500].map(Some)),
        (Claims::Fixed(1_000), [Some(1_000); 3]),
        (Claims::Nothing, [None; 3]),
    ] {
        let liars = population(1_000, |paper| PopulationSettings { claims, ..paper });
        let mut seen = HashSet::new();
        for (event, truth) in in_an_hour(&liars, 6).into_iter().zip(&honest) {
            assert_eq!(Event { returns_in_ms: truth.returns_in_ms, ..event }, *truth);
            let place =
                [60_000, 30_000, 15_000].map(Some).iter().position(|ms| *ms == truth.returns_in_ms);
            assert_eq!(event.returns_in_ms, claimed[place.expect("of the mix")]);
            seen.insert(truth.returns_in_ms);
        }
        assert_eq!(seen.len(), 3);
    }
    let beyond =
        PopulationSettings { claims: Claims::Permille(1_000_001), ..PopulationSettings::paper(1) };
    assert!(Population::new(beyond).is_err());
}
