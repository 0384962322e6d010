//! The population against the formulas of paper 000 §V.A and its appendix.
//!
//! All seeds are fixed: a tolerance is about four standard deviations of the measured value, and a
//! test that passed once passes for ever.

use std::collections::HashMap;

use rejoin_trace::{
    Error, Event, IntervalMix, MOST_DEVICES, Population, PopulationSettings, Runs, SpeedUp, Writer,
};

const MINUTE_MS: u64 = 60_000;

fn paper(devices: u64) -> Population {
    Population::new(PopulationSettings::paper(devices)).expect("in range")
}

fn until(population: &Population, seed: u64, end_ms: u64) -> impl Iterator<Item = Event> {
    population.arrivals(seed).take_while(move |event| event.time_ms < end_ms)
}

fn assert_near(measured: f64, expected: f64, tolerance: f64, what: &str) {
    let off = (measured / expected - 1.0).abs();
    assert!(off < tolerance, "{what}: {measured}, expected {expected}");
}

#[test]
fn one_device_in_24_runs() {
    let population = paper(20_000);
    assert_near(population.expected_running(), 833.33, 1e-4, "running");
    // By hand from Σ 1 / (1 − e^(−p / 120 s)): a run of 60 s intervals connects 2.5415 times, of
    // 30 s 4.5208, of 15 s 8.5104.
    let per_run = (23.0 * 2.5415 + 13.0 * 4.5208 + 2.0 * 8.5104) / 38.0;
    let expected = 20_000.0 / 2_880.0 * per_run;
    assert_near(population.expected_connections_per_s(), expected, 1e-4, "connections");
}

#[test]
fn arrivals_have_the_expected_rates() {
    let population = paper(100_000);
    let (mut all, mut firsts) = (0, 0);
    for event in until(&population, 1, 60 * MINUTE_MS) {
        all += 1;
        firsts += u64::from(event.first_of_run);
    }
    let rate = f64::from(all) / 3_600.0;
    assert_near(rate, population.expected_connections_per_s(), 0.012, "connections a second");
    // Runs begin once in running + waiting = 2,880 s.
    assert_near(firsts as f64, 100_000.0 * 3_600.0 / 2_880.0, 0.012, "runs in an hour");
}

#[test]
fn steady_from_the_first_minute() {
    let population = paper(400_000);
    let mut minutes = [0_u32; 30];
    let mut seconds = [0_u32; 60];
    for event in until(&population, 2, 30 * MINUTE_MS) {
        minutes[(event.time_ms / MINUTE_MS) as usize] += 1;
        if let Some(second) = seconds.get_mut((event.time_ms / 1_000) as usize) {
            *second += 1;
        }
    }
    let expected = population.expected_connections_per_s();
    for (minute, count) in minutes.into_iter().enumerate() {
        let rate = f64::from(count) / 60.0;
        assert_near(rate, expected, 0.04, &format!("connections a second in minute {minute}"));
    }
    for (place, ten) in seconds.chunks(10).enumerate() {
        let rate = f64::from(ten.iter().sum::<u32>()) / 10.0;
        assert_near(rate, expected, 0.05, &format!("in the first minute, ten seconds {place}"));
    }
}

#[test]
fn devices_found_running_are_the_expected_share() {
    let population = paper(400_000);
    let mut seen = vec![false; 400_000];
    let mut found_running = 0;
    // By the longest interval, every running device that connects again has connected.
    for event in until(&population, 3, MINUTE_MS + 1) {
        let first_seen = !std::mem::replace(&mut seen[event.client as usize], true);
        found_running += u32::from(first_seen && !event.first_of_run);
    }
    // Running at time 0, and running on until the next connection is due: with a = p / r, the
    // mean of e^(−remaining / r) over where in its interval a device is, a / (e^a − 1).
    let still = |p: f64| p / 120.0 / ((p / 120.0).exp() - 1.0);
    let share = (23.0 * still(60.0) + 13.0 * still(30.0) + 2.0 * still(15.0)) / 38.0;
    let expected = population.expected_running() * share;
    assert_near(f64::from(found_running), expected, 0.03, "devices found running");
}

#[test]
fn gaps_within_a_run_are_the_interval_and_runs_do_not_overlap() {
    let population = paper(3_000);
    let mut last: HashMap<u64, Event> = HashMap::new();
    let (mut before_ms, mut within) = (0, 0);
    for event in until(&population, 4, 600 * MINUTE_MS) {
        assert!(event.time_ms >= before_ms, "in order of time");
        before_ms = event.time_ms;
        let Some(earlier) = last.insert(event.client, event) else { continue };
        assert_eq!(event.returns_in_ms, earlier.returns_in_ms, "an interval is for life");
        if !event.first_of_run {
            let gap_ms = event.time_ms - earlier.time_ms;
            assert_eq!(Some(gap_ms), earlier.returns_in_ms.map(u64::from));
            within += 1;
        }
    }
    assert!(within > 50_000, "{within}");
}

/// Returns the first runs and waits of every device, in milliseconds, seen at intervals of a second:
/// half a second, on average, lies between the last connection and the end of a run. It takes the same
/// number of runs of every device, because the runs that fit into a fixed time would be the short ones.
fn runs_and_waits<const RUNS: usize>(runs: Runs) -> Vec<[(f64, f64); RUNS]> {
    let intervals = "1:1".parse().expect("a mix");
    let settings = PopulationSettings { intervals, runs, ..PopulationSettings::paper(1_500) };
    let population = Population::new(settings).expect("in range");
    // The first and the last connection of each run, for each device.
    let mut seen = vec![Vec::new(); 1_500];
    for event in until(&population, 5, 4_800 * MINUTE_MS) {
        let runs: &mut Vec<(u64, u64)> = &mut seen[event.client as usize];
        match runs.last_mut() {
            _ if event.first_of_run => runs.push((event.time_ms, event.time_ms)),
            Some((_, last_ms)) => *last_ms = event.time_ms,
            None => {}
        }
    }
    let run_and_wait = |two: &[(u64, u64)]| {
        let ([(begun, last), (next, _)] | [(begun, last), (next, _), ..]) = *two else {
            panic!("two runs");
        };
        ((last - begun) as f64 + 500.0, (next - last) as f64 - 500.0)
    };
    let of_device = |runs: Vec<(u64, u64)>| {
        assert!(runs.len() > RUNS);
        std::array::from_fn(|at| run_and_wait(&runs[at..at + 2]))
    };
    seen.into_iter().map(of_device).collect()
}

#[test]
fn runs_and_waits_have_their_means() {
    for runs in [Runs::Exponential, Runs::LogNormal { sigma: 1.0 }] {
        let all = runs_and_waits::<10>(runs).concat();
        let mean = |total: f64| total / all.len() as f64;
        let running_ms = mean(all.iter().map(|(run, _)| run).sum());
        let waiting_ms = mean(all.iter().map(|(_, wait)| wait).sum());
        assert_near(running_ms, 120_000.0, 0.03, "mean run");
        assert_near(waiting_ms, 2_760_000.0, 0.03, "mean wait");
    }
}

/// The spread of the logarithm of a device's runs, and of the means of devices.
#[test]
fn devices_with_habits_run_about_as_long_as_before() {
    let runs = runs_and_waits::<10>(Runs::Habits { sigma: 0.5, within: 0.2 });
    let deviation = |of: &[f64]| {
        let mean = of.iter().sum::<f64>() / of.len() as f64;
        (of.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (of.len() - 1) as f64).sqrt()
    };
    let logs: Vec<[f64; 10]> =
        runs.iter().map(|device| device.map(|(run_ms, _)| run_ms.ln())).collect();
    let within = logs.iter().map(|logs| deviation(logs).powi(2)).sum::<f64>() / logs.len() as f64;
    assert_near(within.sqrt(), 0.2, 0.03, "a device's runs");
    let means: Vec<f64> = logs.iter().map(|logs| logs.iter().sum::<f64>() / 10.0).collect();
    assert_near(deviation(&means), (0.25_f64 + 0.004).sqrt(), 0.08, "devices");
    let all: f64 = runs.iter().flatten().map(|(run_ms, _)| run_ms).sum();
    assert_near(all / (runs.len() * 10) as f64, 120_000.0, 0.06, "mean run");
}

/// A moment falls into a long run more often than into a short one.
#[test]
fn other_runs_are_steady_from_the_first_minute() {
    for runs in [Runs::LogNormal { sigma: 1.0 }, Runs::Habits { sigma: 1.0, within: 0.3 }] {
        let settings = PopulationSettings { runs, ..PopulationSettings::paper(400_000) };
        let population = Population::new(settings).expect("in range");
        let mut minutes = [0_u32; 20];
        for event in until(&population, 9, 20 * MINUTE_MS) {
            minutes[(event.time_ms / MINUTE_MS) as usize] += 1;
        }
        let expected = population.expected_connections_per_s();
        for (minute, count) in minutes.into_iter().enumerate() {
            let rate = f64::from(count) / 60.0;
            assert_near(rate, expected, 0.04, &format!("in minute {minute} of {runs:?}"));
        }
    }
}

#[test]
fn intervals_are_mixed_as_weighted() {
    let mut of: HashMap<u64, u32> = HashMap::new();
    for event in until(&paper(38_000), 6, 600 * MINUTE_MS) {
        of.insert(event.client, event.returns_in_ms.expect("announced"));
    }
    let share = |ms| of.values().filter(|interval| **interval == ms).count() as f64;
    assert_near(of.len() as f64, 38_000.0, 0.001, "devices seen in ten hours");
    assert_near(share(60_000), 23_000.0, 0.02, "every 60 s");
    assert_near(share(30_000), 13_000.0, 0.03, "every 30 s");
    assert_near(share(15_000), 2_000.0, 0.09, "every 15 s");
}

#[test]
fn jitter_spreads_gaps_around_the_interval() {
    let settings = PopulationSettings { jitter_ms: 5_000, ..PopulationSettings::paper(20_000) };
    let population = Population::new(settings).expect("in range");
    let mut last: HashMap<u64, Event> = HashMap::new();
    let mut off_ms = Vec::new();
    for event in until(&population, 7, 60 * MINUTE_MS) {
        let Some(earlier) = last.insert(event.client, event) else { continue };
        assert!(event.time_ms >= earlier.time_ms);
        let interval_ms = earlier.returns_in_ms.map(f64::from).expect("announced");
        if !event.first_of_run {
            off_ms.push((event.time_ms - earlier.time_ms) as f64 - interval_ms);
        }
    }
    let mean = off_ms.iter().sum::<f64>() / off_ms.len() as f64;
    let deviation = (off_ms.iter().map(|off| off * off).sum::<f64>() / off_ms.len() as f64).sqrt();
    // Late connections more often fall behind the end of the run: −sd² / 120 s.
    assert!((mean + 208.0).abs() < 80.0, "{mean}");
    assert_near(deviation, 5_000.0, 0.02, "standard deviation");
}

#[test]
fn no_jitter_is_too_large() {
    let settings = PopulationSettings {
        jitter_ms: u64::from(u32::MAX),
        intervals: "0.001:1,4294967.295:1".parse().expect("a mix"),
        ..PopulationSettings::paper(100)
    };
    let arrivals = Population::new(settings).expect("in range").arrivals(8);
    let times: Vec<u64> = arrivals.take(100_000).map(|event| event.time_ms).collect();
    assert!(times.is_sorted());
}

/// Checks figures that are the same on every platform and for ever, because a recorded result names
/// its seed only. They come from a second program, written in another language from the description
/// alone.
#[test]
fn a_seed_is_a_population() {
    let first: Vec<_> = paper(1_000)
        .arrivals(42)
        .map(|event| (event.time_ms, event.client, event.first_of_run, event.returns_in_ms))
        .take(6)
        .collect();
    let expected = [
        (773, 656, true, Some(60_000)),
        (1_644, 228, false, Some(30_000)),
        (1_660, 922, false, Some(60_000)),
        (3_875, 841, true, Some(15_000)),
        (4_113, 580, false, Some(15_000)),
        (4_678, 670, false, Some(60_000)),
    ];
    assert_eq!(first, expected);

    // The checksum of their trace covers ten thousand of them.
    let checksum = |seed| {
        let mut writer = Writer::new(Vec::new()).expect("memory");
        let arrivals = paper(1_000).arrivals(seed).take(10_000);
        arrivals.for_each(|event| writer.write(event).expect("in order"));
        let bytes = writer.finish().expect("memory");
        let checksum = bytes[bytes.len() - 8..bytes.len() - 4].try_into().expect("four bytes");
        u32::from_le_bytes(checksum)
    };
    assert_eq!(checksum(42), 0xb168_e005);
    assert_ne!(checksum(43), checksum(42));
}

#[test]
fn sped_up_six_times_it_is_the_papers_simulated_value() {
    let by: SpeedUp = "6".parse().expect("a factor");
    let population = paper(20_000).speed_up(by).expect("enough is left");
    let expected = PopulationSettings {
        waiting_ms: 460_000,
        running_ms: 20_000,
        intervals: "10:23,5:13,2.5:2".parse().expect("a mix"),
        ..PopulationSettings::paper(20_000)
    };
    assert_eq!(*population.settings(), expected);
    assert_near(population.expected_running(), 833.33, 1e-4, "as many run");

    // Sped up before or after, a device is first seen at the same time, up to rounding.
    let before: Vec<Event> = population.arrivals(9).take(300).collect();
    let after = paper(20_000).arrivals(9).take(300).map(|event| event.speed_up(by));
    for (before, after) in before.into_iter().zip(after) {
        assert!(before.time_ms.abs_diff(after.time_ms) <= 1, "{before:?} {after:?}");
    }
}

#[test]
fn what_is_no_population_is_told_in_one_line() {
    let told = |change: fn(&mut PopulationSettings)| {
        let mut settings = PopulationSettings::paper(10);
        change(&mut settings);
        Population::new(settings).expect_err("out of range").to_string()
    };
    let none = told(|settings| settings.devices = 0);
    assert_eq!(none, "devices is 0: it must be between 1 and 100,000,000");
    assert!(told(|settings| settings.devices = MOST_DEVICES + 1).starts_with("devices is"));
    assert!(told(|settings| settings.waiting_ms = 0).starts_with("waiting_ms is 0"));
    assert!(told(|settings| settings.running_ms = 0).starts_with("running_ms is 0"));
    assert!(told(|settings| settings.running_ms = u64::MAX).starts_with("running_ms is 18,"));
    assert!(told(|settings| settings.jitter_ms = 1 << 32).starts_with("jitter_ms is"));
    let wrong = told(|settings| settings.runs = Runs::LogNormal { sigma: 5.1 });
    assert_eq!(wrong, "sigma is 5.1: it must be between 0 and 5");
    let wrong = told(|settings| settings.runs = Runs::Habits { sigma: 1.5, within: f64::NAN });
    assert_eq!(wrong, "within is NaN: it must be between 0 and 5");

    let too_fast = paper(10).speed_up(SpeedUp::new(1e9).expect("a factor")).expect_err("too fast");
    let expected = "a speed-up of 1000000000 leaves less than a millisecond of waiting_ms: \
                    use a smaller one";
    assert_eq!(too_fast.to_string(), expected);
    let too_slow = paper(10).speed_up(SpeedUp::new(1e-5).expect("a factor"));
    assert!(matches!(too_slow, Err(Error::OutOfRange { name: "interval_ms", .. })));
    assert!(matches!(IntervalMix::new([]), Err(Error::WeightlessMix)));
}
