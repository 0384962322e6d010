//! The cost of Rejoin to unchanged programs, and its savings for them and their servers.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rejoin_report::median_time;
use rejoin_testkit::process::cpu_ns;
use rejoin_testkit::shipped::library;

use super::{Effort, Found};
use rejoin_testkit::clients::pages::Pages;
use rejoin_testkit::clients::world::{Service, World};
use rejoin_testkit::proxy::delayed::SlowWay;
use rejoin_testkit::stacks::Tls;

const ROUND_TRIP: Duration = Duration::from_millis(40);
const SEQUENTIAL: f64 = 1.15;
const SERVER_CPU: f64 = 0.6;
/// A part of a round trip.
const SAVED: f64 = 0.95;
/// A part of a program's instructions.
const MORE: f64 = 0.01;

pub(crate) fn round_trip(effort: Effort) -> Option<Found> {
    let world = World::new("check-slow");
    let service = nginx(&world, Tls::V12)?;
    let way = SlowWay::to(service.port, ROUND_TRIP);
    let rounds = if effort.quick { 3 } else { 31 };
    curl(&world, way.port, true)?;
    let (mut with, mut without, mut trips) = (Vec::new(), Vec::new(), [0, 0]);
    for turn in 0..rounds {
        for is_with in [turn % 2 == 0, turn % 2 == 1] {
            let before = way.round_trips();
            let taken = curl(&world, way.port, is_with)?;
            trips[usize::from(is_with)] += way.round_trips() - before;
            if is_with { &mut with } else { &mut without }.push(taken);
        }
    }
    let (with, without) = (median_time(with), median_time(without));
    let saved = without.saturating_sub(with).as_secs_f64() / ROUND_TRIP.as_secs_f64();
    let [trips_without, trips_with] = trips;
    let fewer = (trips_without as f64 - trips_with as f64) / f64::from(rounds);
    let figure =
        format!("{fewer:.2}; of its time {saved:.2} ({with:.0?} instead of {without:.0?})");
    Some(Found { figure, holds: fewer >= 1.0 && saved >= SAVED })
}

pub(crate) fn curls_1_2(effort: Effort) -> Option<Found> {
    sequential(effort, Tls::V12, |site| site.rsa)
}

pub(crate) fn curls_1_3(effort: Effort) -> Option<Found> {
    sequential(effort, Tls::V13, |site| site.rsa)
}

pub(crate) fn curls_p256(effort: Effort) -> Option<Found> {
    sequential(effort, Tls::V13, |site| site.port)
}

/// The median of rounds of thirty programs with Rejoin, in turns with thirty without.
fn sequential(effort: Effort, tls: Tls, port: fn(&Pages) -> u16) -> Option<Found> {
    let world = World::new("check-sequential");
    let port = port(nginx(&world, tls)?.site.as_ref()?);
    let rounds = if effort.quick { 3 } else { 15 };
    curl(&world, port, true)?;
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        let (mut with, mut without) = (Duration::ZERO, Duration::ZERO);
        for turn in 0..30 {
            // The manager's work after a program has gone falls into the next one's time, with Rejoin or without.
            for is_with in [turn % 2 == 0, turn % 2 == 1] {
                let taken = if is_with { &mut with } else { &mut without };
                *taken += curl(&world, port, is_with)?;
            }
        }
        pairs.push((with.as_secs_f64() / without.as_secs_f64(), with, without));
    }
    pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (least, most) = (pairs[0].0, pairs[rounds - 1].0);
    let (times, with, without) = pairs[rounds / 2];
    let figure = format!("{times:.2} ({least:.2} to {most:.2}; {with:.0?}, without {without:.0?})");
    Some(Found { figure, holds: times <= SEQUENTIAL })
}

pub(crate) fn cpu_1_2(effort: Effort) -> Option<Found> {
    cpu(effort, Tls::V12)
}

pub(crate) fn cpu_1_3(effort: Effort) -> Option<Found> {
    cpu(effort, Tls::V13)
}

/// Compares the CPU time of nginx's only thread.
fn cpu(effort: Effort, tls: Tls) -> Option<Found> {
    let world = World::new("check-cpu");
    let site = nginx(&world, tls)?.site.as_ref()?;
    let hundreds = if effort.quick { 2 } else { 6 };
    curl(&world, site.rsa, true)?;
    let (mut with, mut without) = (0, 0);
    for _ in 0..hundreds {
        for (is_with, taken) in [(true, &mut with), (false, &mut without)] {
            let before = cpu_ns(site.pid())?;
            for _ in 0..100 {
                curl(&world, site.rsa, is_with)?;
            }
            *taken += cpu_ns(site.pid())? - before;
        }
    }
    let times = with as f64 / without as f64;
    let each = |ns: u64| ns as f64 / 1e3 / f64::from(100 * hundreds);
    let figure =
        format!("{times:.2} ({:.0} µs a connection; without {:.0})", each(with), each(without));
    Some(Found { figure, holds: times <= SERVER_CPU })
}

/// The instructions of programs that never do TLS, with the library loaded and a manager named, counted by `valgrind`.
pub(crate) fn without_tls(_: Effort) -> Option<Found> {
    let instructions = |with: bool, program: &[&str]| -> Option<f64> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).args(program);
        if with {
            put_into(&mut valgrind);
        }
        let output = valgrind.stdin(Stdio::null()).output().ok()?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = told.lines().find_map(|line| line.split("Collected : ").nth(1))?;
        line.trim().parse().ok()
    };
    let python = ["/usr/bin/python3", "-c", "print(sum(i * i for i in range(100000)))"];
    let more = instructions(true, &python)? / instructions(false, &python)? - 1.0;
    let nothing = [NOTHING];
    let start = instructions(true, &nothing)? - instructions(false, &nothing)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        with.push(started(true)?);
        without.push(started(false)?);
    }
    let late = median_time(with).saturating_sub(median_time(without));
    let figure = format!(
        "{:.2} % of Python's; {NOTHING} starts {late:.0?} later, of {start:.0} instructions",
        more * 100.0
    );
    Some(Found { figure, holds: more <= MORE })
}

const NOTHING: &str = "/usr/bin/true";

/// The time of a program that does nothing.
fn started(with: bool) -> Option<Duration> {
    let mut nothing = Command::new(NOTHING);
    if with {
        put_into(&mut nothing);
    }
    let since = Instant::now();
    nothing.status().ok()?;
    Some(since.elapsed())
}

/// Sets the environment that an operator sets for a service.
fn put_into(program: &mut Command) {
    program.env("LD_PRELOAD", library("librejoin_preload.so"));
    program.env("REJOIN_MANAGER", "yes");
}

pub(super) fn nginx(world: &World, tls: Tls) -> Option<&Service> {
    world.servers.iter().find(|service| service.site.is_some() && service.tls == tls)
}

/// The time that one curl takes for a page.
fn curl(world: &World, port: u16, with: bool) -> Option<Duration> {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-o", "/dev/null", "--cacert", &world.managed.file("ca.pem")]);
    curl.arg(format!("https://localhost:{port}/page")).stdin(Stdio::null()).stderr(Stdio::null());
    if with {
        world.with_rejoin(&mut curl);
        curl.env_remove("REJOIN_DEBUG");
    }
    let since = Instant::now();
    let done = curl.status().ok()?;
    let taken = since.elapsed();
    assert!(done.success(), "curl failed, with: {with}");
    Some(taken)
}
