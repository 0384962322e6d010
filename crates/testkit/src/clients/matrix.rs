//! All programs against all servers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::clients::cases::{CASES, Case};
use crate::clients::world::{Seen, Service, World};
use crate::stacks::Tls;

/// One program against one server.
#[derive(Debug)]
pub struct Tried {
    pub case: &'static Case,
    pub server: &'static str,
    pub tls: Tls,
    pub seen: Seen,
    /// Both uploads arrived whole.
    pub arrived: bool,
}

impl Tried {
    /// Returns true if it behaved as without Rejoin, and went the way of the case.
    pub fn holds(&self) -> bool {
        self.seen.is_same() && self.seen.went(self.case.way) && self.arrived
    }
}

/// Tries all; the results are in the cases' order, then by server.
pub fn run(world: &World) -> Vec<Tried> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(service) = world.servers.get(next.fetch_add(1, Ordering::Relaxed)) {
            // One after the other: later ones resume the session of the first.
            for (at, case) in CASES.iter().enumerate() {
                if let Some(tried) = try_one(world, case, service) {
                    all.lock().expect("nobody panics with it").push((at, tried));
                }
            }
        }
    };
    // Programs mostly wait.
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let mut all = all.into_inner().expect("nobody panics with it");
    all.sort_by_key(|(at, tried)| (*at, tried.server, tried.tls == Tls::V13));
    all.into_iter().map(|(_, tried)| tried).collect()
}

fn try_one(world: &World, case: &'static Case, service: &Service) -> Option<Tried> {
    let seen = world.see(case, service)?;
    let site = service.site.as_ref();
    let arrived = |run| {
        let uploads = case.words.contains(&"BIG");
        !uploads || site.is_some_and(|site| site.uploaded(&World::file(case, run)))
    };
    let arrived = arrived("without") && arrived("with");
    Some(Tried { case, server: service.name, tls: service.tls, seen, arrived })
}
