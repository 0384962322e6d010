//! A look at a service after its start: does a client that returns resume?

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use rejoin_doctor::{Host, Settings, Target, Watch, WayFacts, examine};

use super::unit::Unit;
use crate::status::{self, listening, process};
use crate::terminal::print;

/// The longest that a service may take until it listens.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// The longest that a server may take for a handshake.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// The most addresses of one service that are tried.
const ADDRESSES: usize = 256;
/// The returns with each session: several, because workers take turns.
const RETURNS: u32 = 3;

/// Connects to all that the service listens on, and prints what resumed.
///
/// # Errors
/// It does not listen, or nothing resumed, and why.
pub(super) fn tell(unit: &Unit) -> anyhow::Result<()> {
    anyhow::ensure!(
        !unit.has_own_network,
        "it has a network of its own: nothing can connect to it from here"
    );
    let addresses = awaited(unit)?;
    let found = all_ways(&addresses);
    anyhow::ensure!(
        found.iter().any(|(_, ways)| !ways.is_empty()),
        "of {} ports that it listens on none speaks TLS to a client that names no server: nothing was tried",
        addresses.len()
    );
    let mut resumed = false;
    for (address, ways) in &found {
        for version in ["1.2", "1.3"] {
            let spoken = |of: &&WayFacts| of.way.version() == version && of.spoken == Some(true);
            let mut ways = ways.iter().filter(spoken);
            let Some(first) = ways.next() else { continue };
            let does = first.at_once.is_whole() || ways.any(|of| of.at_once.is_whole());
            resumed |= does;
            let told = if does { "resumes" } else { "does not resume" };
            print(&format!("{address}   TLS {version} {told}"));
        }
    }
    match status::verdict_on(&Unit::named(&unit.id)?.group)? {
        Ok(verdict) if resumed => print(&format!("{}: {verdict}", unit.id)),
        Ok(verdict) => anyhow::bail!("{verdict}, but no connection resumed"),
        Err(why) => anyhow::bail!(why),
    }
    Ok(())
}

/// Returns what a doctor finds at an address, nothing where no handshake succeeds.
fn ways(address: SocketAddr) -> Vec<WayFacts> {
    let settings = Settings {
        attempts: RETURNS,
        others: 0,
        wait: Duration::ZERO,
        deadline: ANSWERS_WITHIN,
        ..Settings::new(Target { host: Host::Address(address.ip()), port: address.port() })
    };
    let watch = Watch { stop: &AtomicBool::new(false), told: &|_, _| {} };
    let facts = examine(&settings, watch).map(|facts| facts.addresses).unwrap_or_default();
    facts.into_iter().flat_map(|of| of.ways).collect()
}

/// Waits until the service listens. Returns its addresses.
fn awaited(unit: &Unit) -> anyhow::Result<BTreeSet<SocketAddr>> {
    let began = Instant::now();
    loop {
        let now = Unit::named(&unit.id)?;
        let addresses = listening(&now.group)?;
        if !addresses.is_empty() {
            return Ok(addresses);
        }
        let state = &now.state;
        anyhow::ensure!(
            !["failed", "inactive"].contains(&state.as_str()),
            "it is {state}: look at `journalctl --unit {}`",
            unit.id
        );
        anyhow::ensure!(began.elapsed() < STARTS_WITHIN, "it listens on no TCP port so far");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Returns what is found at each address, all asked at once: those that speak no TLS keep a client waiting.
fn all_ways(addresses: &BTreeSet<SocketAddr>) -> Vec<(SocketAddr, Vec<WayFacts>)> {
    thread::scope(|scope| {
        let asked: Vec<_> = addresses
            .iter()
            .take(ADDRESSES)
            .map(|address| (*address, scope.spawn(|| ways(*address))))
            .collect();
        asked.into_iter().map(|(address, one)| (address, one.join().unwrap_or_default())).collect()
    })
}

/// Returns the addresses on which the processes of a control group listen.
fn listening(group: &str) -> anyhow::Result<BTreeSet<SocketAddr>> {
    let members = process::all()?.into_iter().filter(|process| process.is_in_group(group));
    Ok(members.flat_map(|member| listening::of(member.id)).collect())
}
