//! nginx under load while its workers are killed, one a second; [`soak`] does more to it.
//!
//! A client learns from a first answer which process serves it, waits, and asks again: this tells a connection
//! that failed with its process from any other failure. Some clients have a certificate,
//! whose subject the server repeats; somebody else's session would show another subject.

mod events;
mod soak;
mod visitor;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_store::{Facts, Store};

use crate::process::{DEADLINE, status_kib};
use crate::site::Site;
pub use events::Kind;
use events::{Event, Master};
pub use soak::{After, Soaked, soak};
use visitor::{Visit, load, visitors};

/// The outcome of killing workers.
#[derive(Debug, Default)]
pub struct Outcome {
    pub connections: u64,
    pub resumed: u64,
    pub kills: usize,
    /// Connections that were open at a kill, and went on.
    pub survived: usize,
    /// Connections of a worker that was killed.
    pub killed_with_worker: usize,
    /// Failures that no kill explains.
    pub unexplained: Vec<String>,
    /// Answers that name somebody other than the client.
    pub wrong: Vec<String>,
    /// Resident memory of the master, in KiB: after the first kills, and at the end.
    pub master_kib: (u64, u64),
    /// The size of the cache's file in bytes, and the size it should have.
    pub file_bytes: (u64, u64),
    /// The findings of `rejoin store check`.
    pub inconsistent: Vec<String>,
    pub facts: Option<Facts>,
}

impl Outcome {
    /// The growth that the master is allowed.
    pub const GROWTH_KIB: u64 = 512;

    pub fn holds(&self) -> bool {
        let (before, after) = self.master_kib;
        let (file, reserved) = self.file_bytes;
        self.unexplained.is_empty()
            && self.wrong.is_empty()
            && self.inconsistent.is_empty()
            && after <= before + Self::GROWTH_KIB
            && file <= reserved
            && self.facts.as_ref().is_some_and(|facts| facts.locks_broken == 0)
            && self.kills > 0
            && self.resumed * 2 > self.connections
    }
}

/// Threads, each with clients that take turns.
const THREADS: usize = 6;
const BETWEEN_KILLS: Duration = Duration::from_secs(1);
/// Kills before the first look at the master's memory.
const WARM_UP_KILLS: usize = 3;

const NGINX: &str = "\
daemon off; master_process on; worker_processes 3; pid FOLDER/nginx.pid; error_log FOLDER/error.log;
events { worker_connections 256; }
http {
  include FOLDER/nginx-http.conf;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off; ssl_verify_client optional_no_ca;
  server { listen 127.0.0.1:@PORT@ ssl; return 200 \"$pid $ssl_client_s_dn\\n\"; }
}
";

/// Kills workers for so many seconds. `None` if there is no nginx.
pub fn kill_workers(site: &mut Site, for_s: u64) -> Option<Outcome> {
    site.write("nginx.conf", NGINX);
    let configuration = site.shown("nginx.conf");
    site.start("nginx", &["-c", &configuration])?;
    let master = Master::of(site);
    let (stop, visits) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mut outcome = Outcome::default();
    let kills = thread::scope(|scope| {
        let (site, stop, visits) = (&*site, &stop, &visits);
        for number in 0..THREADS {
            scope.spawn(move || load(&mut visitors(site, number), stop, visits));
        }
        let kills = kill_for(&master, Duration::from_secs(for_s), &mut outcome);
        stop.store(true, Ordering::Relaxed);
        kills
    });
    outcome.judge(&visits.into_inner().expect("no panic"), &kills);
    outcome.look_at(site, master.pid());
    Some(outcome)
}

fn kill_for(master: &Master, time: Duration, outcome: &mut Outcome) -> Vec<Event> {
    let began = Instant::now();
    let mut kills = Vec::new();
    // On a busy machine there may be few in that time.
    while began.elapsed() < time || kills.len() < WARM_UP_KILLS && began.elapsed() < time + DEADLINE
    {
        thread::sleep(BETWEEN_KILLS);
        kills.extend(master.kill_a_worker());
        if kills.len() == WARM_UP_KILLS {
            outcome.master_kib.0 = resident_kib(master.pid());
        }
    }
    // The last one's connections end before the load does.
    thread::sleep(BETWEEN_KILLS);
    kills
}

fn resident_kib(process: u32) -> u64 {
    status_kib(process, "VmRSS").unwrap_or(u64::MAX)
}

impl Outcome {
    fn judge(&mut self, visits: &[Visit], kills: &[Event]) {
        self.kills = kills.len();
        self.connections = visits.len() as u64;
        self.resumed = visits.iter().filter(|visit| visit.resumed).count() as u64;
        self.wrong = visits.iter().filter_map(|visit| visit.wrong.clone()).collect();
        for visit in visits {
            let is_explained = || kills.iter().any(|kill| kill.explains(visit).is_some());
            match &visit.failure {
                None => self.survived += usize::from(kills.iter().any(|kill| kill.overlaps(visit))),
                Some(_) if is_explained() => self.killed_with_worker += 1,
                Some(why) => self.unexplained.push(format!("worker {:?}: {why}", visit.worker)),
            }
        }
    }

    fn look_at(&mut self, site: &Site, master: u32) {
        self.master_kib.1 = resident_kib(master);
        self.inconsistent = inconsistencies(site);
        let folder = Path::new(Store::FOLDER);
        let Ok(store) = Store::open(folder, &site.cache(), None) else { return };
        let file = fs::metadata(folder.join(site.cache().file_name()));
        let blocks = file.map_or(u64::MAX, |file| std::os::unix::fs::MetadataExt::blocks(&file));
        let facts = store.facts();
        self.file_bytes = (blocks.saturating_mul(512), facts.bytes);
        self.facts = Some(facts);
    }
}

/// Returns the findings of `rejoin store check`.
fn inconsistencies(site: &Site) -> Vec<String> {
    match Store::open(Path::new(Store::FOLDER), &site.cache(), None) {
        Ok(store) => store
            .check()
            .iter()
            .filter_map(|of| of.as_ref().err())
            .map(ToString::to_string)
            .collect(),
        Err(error) => vec![error.to_string()],
    }
}
