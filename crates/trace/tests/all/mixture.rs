//! Browsers, floods and liars, alone and together, against formulas.

use std::collections::HashMap;

use rejoin_trace::{
    BrowserSettings, Browsers, Claims, Error, Event, Flood, FloodSettings, Gaps, Group, Mixture,
    Population, PopulationSettings, Start, Writer, group_of, member_of,
};

const MINUTE_MS: u64 = 60_000;

fn devices(devices: u64, claims: Claims) -> Population {
    let paper = PopulationSettings::paper(devices);
    Population::new(PopulationSettings { claims, ..paper }).expect("in range")
}

fn browsers(browsers: u64, gaps: Gaps) -> Browsers {
    Browsers::new(BrowserSettings { browsers, gaps }).expect("in range")
}

fn flood(per_s: u64, claims_ms: Option<u32>) -> Flood {
    Flood::new(FloodSettings { per_s, claims_ms, visits: 1, every_ms: 1 }).expect("in range")
}

fn mixture(groups: impl IntoIterator<Item = Group>) -> Mixture {
    Mixture::new(groups).expect("groups")
}

fn until(end_ms: u64, arrivals: impl Iterator<Item = Event>) -> Vec<Event> {
    arrivals.take_while(|event| event.time_ms < end_ms).collect()
}

fn assert_near(measured: f64, expected: f64, tolerance: f64, what: &str) {
    let off = (measured / expected - 1.0).abs();
    assert!(off < tolerance, "{what}: {measured}, expected {expected}");
}

#[test]
fn browsers_come_at_the_same_rate_from_the_first_minute() {
    for (gaps, mean_ms) in [
        (Gaps::LogNormal { median_ms: 60_000, sigma: 2.0 }, 443_343.0),
        (Gaps::LogNormal { median_ms: 300_000, sigma: 1.0 }, 494_616.0),
        (Gaps::Pareto { least_ms: 20_000, shape: 1.1 }, 220_000.0),
        (Gaps::Pareto { least_ms: 60_000, shape: 2.5 }, 100_000.0),
    ] {
        let group = browsers(100_000, gaps);
        assert_near(gaps.mean_ms(), mean_ms, 1e-5, "mean gap");
        let expected = 100_000.0 / mean_ms * 1_000.0;
        assert_near(group.expected_connections_per_s(), expected, 1e-5, "connections");
        let mut minutes = [0_u32; 30];
        for event in until(30 * MINUTE_MS, group.arrivals(1)) {
            minutes[(event.time_ms / MINUTE_MS) as usize] += 1;
            assert_eq!((event.first_of_run, event.returns_in_ms), (false, None));
        }
        for (minute, count) in minutes.into_iter().enumerate() {
            let rate = f64::from(count) / 60.0;
            assert_near(rate, expected, 0.05, &format!("{gaps:?}, minute {minute}"));
        }
    }
}

/// Returns the gaps that begin in the first hour of thirty hours: nearly all of them end.
#[test]
fn gaps_of_browsers_are_heavy_tailed() {
    let group = browsers(5_000, Gaps::Pareto { least_ms: 60_000, shape: 1.5 });
    let mut last_ms: HashMap<u64, u64> = HashMap::new();
    let mut longer = [0_u32; 3];
    let mut gaps = 0;
    for event in until(1_800 * MINUTE_MS, group.arrivals(2)) {
        let Some(earlier_ms) = last_ms.insert(event.client, event.time_ms) else { continue };
        if earlier_ms < 60 * MINUTE_MS {
            gaps += 1;
            let gap_ms = event.time_ms - earlier_ms;
            assert!(gap_ms >= 60_000);
            let limits = [2, 10, 100].map(|times| u32::from(gap_ms > times * 60_000));
            longer.iter_mut().zip(limits).for_each(|(longer, more)| *longer += more);
        }
    }
    let [twice, tenfold, hundredfold] = longer.map(|longer| f64::from(longer) / f64::from(gaps));
    assert_near(twice, 2_f64.powf(-1.5), 0.02, "twice the least");
    assert_near(tenfold, 10_f64.powf(-1.5), 0.05, "ten times the least");
    assert_near(hundredfold, 0.001, 0.3, "a hundred times the least");
}

#[test]
fn a_flood_comes_at_random_and_never_returns() {
    let events = until(1_000_000, flood(100, Some(14_000)).arrivals(3));
    assert_near(events.len() as f64, 100_000.0, 0.012, "clients in 1,000 s");
    for (client, event) in (0..).zip(&events) {
        let expected = Event { client, first_of_run: true, returns_in_ms: Some(14_000), ..*event };
        assert_eq!(*event, expected);
    }
    // The share of gaps below the mean is that of an exponential distribution: 1 − 1 / e.
    let seldom = until(100_000_000, flood(1, None).arrivals(4));
    let short = seldom.windows(2).filter(|two| two[1].time_ms - two[0].time_ms < 1_000).count();
    let expected = 0.632_12 * (seldom.len() - 1) as f64;
    assert_near(short as f64, expected, 0.01, "gaps below a second");

    let crowded = until(1_000, flood(1_000_000, None).arrivals(4));
    assert_near(crowded.len() as f64, 1e6, 0.004, "clients in a second");
    assert!(crowded.is_sorted_by_key(|event| event.time_ms));
    assert!(crowded.iter().all(|event| event.returns_in_ms.is_none()));
}

fn all_kinds() -> Mixture {
    mixture([
        devices(19_000, Claims::Truth).into(),
        devices(1_000, Claims::Permille(970)).into(),
        browsers(10_000, Gaps::LogNormal { median_ms: 60_000, sigma: 2.0 }).into(),
        flood(100, Some(1_000)).into(),
    ])
}

#[test]
fn groups_have_their_shares_and_their_clients() {
    let mixture = all_kinds();
    let events = until(20 * MINUTE_MS, mixture.arrivals(5));
    let keys = |event: &Event| (event.time_ms, group_of(event.client));
    assert!(events.is_sorted_by_key(keys), "in order of time, then of the groups");
    let seconds = 20.0 * 60.0;
    for (place, group) in mixture.groups().iter().enumerate() {
        let of_group = events.iter().filter(|event| group_of(event.client) == place);
        let expected = group.expected_connections_per_s() * seconds;
        // 1,000 devices in 20 minutes spread by 4 %.
        assert_near(of_group.clone().count() as f64, expected, 0.12, &format!("group {place}"));
        let most = of_group.map(|event| member_of(event.client)).max().expect("some");
        assert!(most < [19_000, 1_000, 10_000, u64::MAX][place], "{place}: {most}");
    }
    assert_near(events.len() as f64, mixture.expected_connections_per_s() * seconds, 0.02, "all");
    let liars = events.iter().filter(|event| group_of(event.client) == 1);
    for event in liars {
        assert!([58_200, 29_100, 14_550].map(Some).contains(&event.returns_in_ms));
    }
}

#[test]
fn a_group_does_the_same_whatever_the_others_do() {
    let of = |mixture: Mixture, place: usize| -> Vec<Event> {
        let events = until(10 * MINUTE_MS, mixture.arrivals(6));
        events.into_iter().filter(|event| group_of(event.client) == place).collect()
    };
    let alone = until(10 * MINUTE_MS, devices(19_000, Claims::Truth).arrivals(6));
    assert_eq!(of(all_kinds(), 0), alone, "the first group is as it is alone");
    let quieter = mixture([
        flood(1, None).into(),
        devices(1_000, Claims::Permille(970)).into(),
        browsers(10_000, Gaps::LogNormal { median_ms: 60_000, sigma: 2.0 }).into(),
    ]);
    for place in [1, 2] {
        assert_eq!(of(all_kinds(), place), of(quieter.clone(), place));
    }
    // Equal groups are not copies of each other.
    let twins = mixture([devices(500, Claims::Truth).into(), devices(500, Claims::Truth).into()]);
    let times = |place| -> Vec<u64> {
        of(twins.clone(), place).iter().map(|event| event.time_ms).collect()
    };
    assert_ne!(times(0), times(1));
}

/// Checks figures that are the same on every platform and for ever. They come from a second program,
/// written in another language from the description alone.
#[test]
fn a_seed_is_a_mixture() {
    let shading = PopulationSettings {
        start: Start::Waiting,
        departures_known: true,
        claims: Claims::Permille(970),
        ..PopulationSettings::paper(1_000)
    };
    let mixture = mixture([
        browsers(1_000, Gaps::LogNormal { median_ms: 60_000, sigma: 2.0 }).into(),
        Population::new(shading).expect("in range").into(),
        flood(2, Some(14_000)).into(),
        browsers(500, Gaps::Pareto { least_ms: 20_000, shape: 1.5 }).into(),
    ]);
    let events: Vec<Event> = mixture.arrivals(42).take(10_000).collect();
    let firsts = [0, 3, 2, 1].map(|group| {
        let first = events.iter().find(|event| group_of(event.client) == group);
        let Event { time_ms, client, first_of_run, returns_in_ms } = *first.expect("some");
        (time_ms, member_of(client), first_of_run, returns_in_ms)
    });
    let expected = [
        (53, 573, false, None),
        (116, 14, false, None),
        (740, 0, true, Some(14_000)),
        (1_239, 878, true, Some(29_100)),
    ];
    assert_eq!(firsts, expected);

    // The checksum of their trace covers all of them.
    let mut writer = Writer::new(Vec::new()).expect("memory");
    events.into_iter().for_each(|event| writer.write(event).expect("in order"));
    let bytes = writer.finish().expect("memory");
    assert_eq!(bytes[bytes.len() - 8..bytes.len() - 4], 0xe382_0f98_u32.to_le_bytes());
}

#[test]
fn as_many_groups_as_there_may_be() {
    let most = mixture((0..256).map(|_| flood(10, None).into()));
    let events = until(60_000, most.arrivals(7));
    assert!(events.is_sorted_by_key(|event| event.time_ms));
    assert_near(events.len() as f64, 153_600.0, 0.012, "clients in a minute");
    assert_eq!(events.iter().map(|event| group_of(event.client)).max(), Some(255));

    let told = |groups: usize| {
        let groups = (0..groups).map(|_| flood(1, None).into());
        Mixture::new(groups).expect_err("out of range").to_string()
    };
    assert_eq!(told(0), "groups is 0: it must be between 1 and 256");
    assert_eq!(told(257), "groups is 257: it must be between 1 and 256");
}

#[test]
fn what_is_no_group_is_told_in_one_line() {
    let told = |browsers, gaps| {
        let settings = BrowserSettings { browsers, gaps };
        Browsers::new(settings).expect_err("out of range").to_string()
    };
    let pareto = |least_ms, shape| told(1, Gaps::Pareto { least_ms, shape });
    let log_normal = |median_ms, sigma| told(1, Gaps::LogNormal { median_ms, sigma });
    assert_eq!(pareto(1_000, 1.0), "shape is 1: it must be between 1.001 and 100");
    assert_eq!(pareto(1_000, f64::NAN), "shape is NaN: it must be between 1.001 and 100");
    assert!(pareto(0, 1.5).starts_with("least_ms is 0:"));
    assert_eq!(log_normal(1_000, 5.5), "sigma is 5.5: it must be between 0 and 5");
    assert!(log_normal(1_000, -0.1).starts_with("sigma is -0.1"));
    assert!(log_normal(u64::MAX, 1.0).starts_with("median_ms is 18,"));
    assert!(told(0, Gaps::Pareto { least_ms: 1, shape: 2.0 }).starts_with("browsers is 0:"));
    for per_s in [0, 1_000_001] {
        let settings = FloodSettings { per_s, claims_ms: None, visits: 1, every_ms: 1 };
        assert!(matches!(Flood::new(settings), Err(Error::OutOfRange { name: "per_s", .. })));
    }
}
