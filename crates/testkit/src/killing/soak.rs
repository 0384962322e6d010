//! nginx under load while its workers are killed, its configuration is read again, and it is exchanged for another one,
//! with a cache of another size or with another build of the library.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_store::Store;

use super::events::{Event, Kind, Master, Reason};
use super::visitor::{Visit, load, visitors};
use super::{NGINX, THREADS, inconsistencies};
use crate::shipped::library;
use crate::site::Site;

/// The outcome of a soak.
#[derive(Debug, Default)]
pub struct Soaked {
    pub connections: u64,
    pub resumed: u64,
    /// Connections of a worker that was killed.
    pub killed_with_worker: usize,
    /// Connections that a worker closed between two requests when it was told to finish.
    pub finished: usize,
    /// The results after events of each kind.
    pub after: [After; 4],
    /// Failures that nothing explains.
    pub unexplained: Vec<String>,
    /// Answers that name somebody other than the client.
    pub wrong: Vec<String>,
    /// The findings of `rejoin store check`.
    pub inconsistent: Vec<String>,
}

/// The results after events of one kind.
#[derive(Debug, Default, Clone, Copy)]
pub struct After {
    pub events: usize,
    /// Failures that nothing explains.
    pub failed: usize,
    /// The longest time from an event's end to the end of the last full handshake of a client that had a session.
    pub resumption: Duration,
}

impl Soaked {
    /// The longest time until clients resume again.
    pub const RESUMPTION: Duration = Duration::from_secs(1);

    pub fn holds(&self) -> bool {
        let is_well = |after: &After| after.events > 0 && after.resumption <= Self::RESUMPTION;
        let [unexplained, wrong, inconsistent] =
            [&self.unexplained, &self.wrong, &self.inconsistent].map(Vec::is_empty);
        unexplained
            && wrong
            && inconsistent
            && self.after.iter().all(is_well)
            && self.resumed * 2 > self.connections
    }

    fn judge(&mut self, visits: &[Visit], events: &[Event]) {
        self.connections = visits.len() as u64;
        self.resumed = visits.iter().filter(|visit| visit.resumed).count() as u64;
        self.wrong = visits.iter().filter_map(|visit| visit.wrong.clone()).collect();
        for event in events {
            self.after[event.kind as usize].events += 1;
        }
        for visit in visits {
            // The event before, if there was one.
            let event = events.iter().rev().find(|event| event.from <= visit.until);
            let mut unused = After::default();
            let after = event.map_or(&mut unused, |event| &mut self.after[event.kind as usize]);
            let reason = || events.iter().find_map(|event| event.explains(visit));
            match visit.failure.as_ref().map(|why| (why, reason())) {
                Some((_, Some(Reason::Killed))) => self.killed_with_worker += 1,
                Some((_, Some(Reason::Finished))) => self.finished += 1,
                Some((why, None)) => {
                    after.failed += 1;
                    self.unexplained.push(format!("worker {:?}: {why}", visit.worker));
                }
                None if visit.offered && !visit.resumed => {
                    let since = event.filter(|event| event.until <= visit.from);
                    let since = since.map_or(Duration::ZERO, |event| visit.until - event.until);
                    after.resumption = after.resumption.max(since);
                }
                None => {}
            }
        }
    }
}

/// The kinds of events, in turn.
const TURNS: [Kind; 8] = [
    Kind::Kill,
    Kind::Reload,
    Kind::Kill,
    Kind::Resize,
    Kind::Kill,
    Kind::Reload,
    Kind::Kill,
    Kind::Upgrade,
];
/// The pause after an event: longer than resumption may take.
const PAUSE: Duration = Duration::from_millis(1_500);

/// Soaks nginx for so many seconds, and for one of each kind of events at least. `None` if there is no nginx.
pub fn soak(site: &mut Site, for_s: u64) -> Option<Soaked> {
    let nginx = nginx()?;
    let configuration = NGINX.replace("daemon off", "env OPENSSL_CONF; daemon on");
    site.write("nginx.conf", &configuration);
    configure(site, 0);
    let configuration = site.shown("nginx.conf");
    // A master starts the next one by the path that it was started by.
    site.start(&nginx.display().to_string(), &["-c", &configuration])?;
    let master = Master::of(site);
    let (stop, visits) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let events = thread::scope(|scope| {
        let (site, stop, visits) = (&*site, &stop, &visits);
        for number in 0..THREADS {
            scope.spawn(move || load(&mut visitors(site, number), stop, visits));
        }
        let events = events(site, &master, Duration::from_secs(for_s));
        stop.store(true, Ordering::Relaxed);
        events
    });
    let mut soaked = Soaked::default();
    soaked.judge(&visits.into_inner().expect("no panic"), &events);
    soaked.inconsistent = inconsistencies(site);
    Some(soaked)
}

fn events(site: &Site, master: &Master, time: Duration) -> Vec<Event> {
    let began = Instant::now();
    let mut events = Vec::new();
    thread::sleep(PAUSE);
    for turn in 0.. {
        let event = match TURNS[turn % TURNS.len()] {
            Kind::Kill => master.kill_a_worker(),
            Kind::Reload => Some(master.reload()),
            kind => {
                if kind == Kind::Upgrade {
                    disown(site);
                }
                configure(site, turn);
                Some(master.exchange(kind))
            }
        };
        events.extend(event);
        thread::sleep(PAUSE);
        if turn + 1 >= TURNS.len() && began.elapsed() >= time {
            break;
        }
    }
    events
}

/// Puts another file of the library in the place of the one before, and gives the cache another size in each round.
fn configure(site: &Site, turn: usize) {
    let (path, part) = (site.file("librejoin.so"), site.file("librejoin.so.part"));
    fs::copy(library("librejoin.so"), &part).expect("a file");
    fs::rename(part, &path).expect("a file beside it");
    let size = 1 + (turn + TURNS.len() / 2) / TURNS.len() % 2;
    site.configure(&format!("path = {}\ncapacity = {size}MiB", path.display()));
}

/// Makes the cache look like one of another layout, which the next master replaces.
fn disown(site: &Site) {
    use std::os::unix::fs::FileExt;
    let path = Path::new(Store::FOLDER).join(site.cache().file_name());
    let cache = fs::File::options().write(true).open(path).expect("there");
    // Bytes 8 to 11 are the version.
    cache.write_all_at(&[99], 8).expect("written");
}

/// Returns the path of nginx, which may be where only root looks.
fn nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join("nginx")).find(|nginx| nginx.is_file())
}
