//! Many connections at once from one event loop.

use std::process::Command;

use rejoin_testkit::clients::SCRIPTS;
use rejoin_testkit::clients::world::World;

use super::costs::nginx;
use super::{Effort, Found};
use rejoin_testkit::stacks::Tls;

const COUNTS: [usize; 4] = [250, 500, 900, 2_000];
/// The program's CPU time, times that without Rejoin.
const CPU: f64 = 1.25;

/// The outcome of one program.
struct Many {
    succeeded: usize,
    cpu_s: f64,
}

/// Runs asyncio programs with Rejoin, in turns with programs without.
pub(crate) fn at_once(effort: Effort) -> Option<Found> {
    let world = World::new("check-many");
    let port = nginx(&world, Tls::V13)?.port;
    let rounds = if effort.quick { 1 } else { 5 };
    let (mut figures, mut holds) = (Vec::new(), true);
    for count in COUNTS {
        let (mut ratios, mut failures) = (Vec::new(), [0, 0]);
        for turn in 0..rounds {
            let mut cpu_s = [0.0, 0.0];
            for is_with in [turn % 2 == 0, turn % 2 == 1] {
                let many = many(&world, (port, count), is_with)?;
                cpu_s[usize::from(is_with)] = many.cpu_s;
                failures[usize::from(is_with)] += count - many.succeeded;
            }
            ratios.push(cpu_s[1] / cpu_s[0]);
        }
        ratios.sort_by(f64::total_cmp);
        let times = ratios[rounds / 2];
        let [without, with] = failures;
        holds &= times <= CPU && with <= without;
        figures.push(format!("{count}: {times:.2}, {with} failed (without {without})"));
    }
    Some(Found { figure: figures.join("; "), holds })
}

fn many(world: &World, (port, count): (u16, usize), is_with: bool) -> Option<Many> {
    let mut many = Command::new("/usr/bin/python3");
    many.args([&format!("{SCRIPTS}/many.py"), &port.to_string()]);
    many.args([&world.managed.file("ca.pem"), &count.to_string()]);
    if is_with {
        world.with_rejoin(&mut many);
        many.env_remove("REJOIN_DEBUG");
    }
    let output = many.output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = said.split_whitespace();
    Some(Many { succeeded: words.next()?.parse().ok()?, cpu_s: words.next()?.parse().ok()? })
}
