//! Plans of simulations: refused in one line, or their clients arrive in order of time.

use rejoin_sim::Plan;
use rejoin_trace::Group;

/// The most clients whose arrivals are drawn.
const MOST_CLIENTS: u64 = 10_000;
const MOST_ARRIVALS: usize = 200;

pub(crate) fn check(bytes: &[u8]) {
    let plan = match Plan::parse(&String::from_utf8_lossy(bytes)) {
        Ok(plan) => plan,
        Err(error) => {
            let said = error.to_string();
            assert!(error.is_misuse() && !said.contains('\n'), "{said:?}");
            return;
        }
    };
    assert!(plan.end_ms.is_none_or(|end_ms| plan.warm_up_ms < end_ms));
    let groups = plan.mixture.as_ref().map_or(&[][..], |mixture| mixture.groups());
    assert_eq!(groups.len(), plan.groups.len());
    let (Some(mixture), Some(end_ms)) = (&plan.mixture, plan.end_ms) else { return };
    assert!(mixture.expected_connections_per_s().is_finite());
    let clients = |group: &Group| match group {
        Group::Devices(devices) => devices.settings().devices,
        Group::Browsers(browsers) => browsers.settings().browsers,
        _ => 0,
    };
    if groups.iter().map(clients).sum::<u64>() > MOST_CLIENTS {
        return;
    }
    let arrivals = mixture.arrivals(7).take_while(|event| event.time_ms < end_ms);
    let times: Vec<_> = arrivals.take(MOST_ARRIVALS).map(|event| event.time_ms).collect();
    assert!(times.is_sorted());
}
