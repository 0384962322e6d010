//! Programs that download while the manager is killed, stopped or restarted every half second.

use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_testkit::clients::world::World;
use rejoin_testkit::clients::{SCRIPTS, with_rejoin};
use rejoin_testkit::manager::Managed;
use rejoin_testkit::process::{Signal, signal};
use rejoin_testkit::stacks::Tls;

use super::costs::nginx;
use super::{Effort, Found};

/// Programs at the same time.
const PROGRAMS: usize = 50;
const LASTS: Duration = Duration::from_secs(600);
const QUICK: Duration = Duration::from_secs(30);
/// The time between two deeds, and the time for which a manager is stopped.
const PAUSE: Duration = Duration::from_millis(500);
const STOPPED: Duration = Duration::from_millis(200);
const PATIENCE_MS: u64 = 3_000;
/// A program that takes longer hangs, in seconds.
const LIMIT_S: &str = "60";
/// The exit code of `timeout` (coreutils) for a program that it ended.
const HANGS: Option<i32> = Some(124);
/// Lines that are printed.
const EXAMPLES: usize = 5;

#[derive(Debug, Default)]
struct Tally {
    right: usize,
    /// The program said that it failed.
    failed: usize,
    by_the_manager: usize,
    hung: usize,
    /// Success with other bytes.
    wrong: Vec<String>,
}

/// The programs' server, authority and manager.
struct Place {
    ports: [u16; 2],
    ca: String,
    socket: String,
    page: Vec<u8>,
}

impl Place {
    /// Returns a program that writes the page to its standard output.
    fn program(&self, number: usize) -> Command {
        let url = format!("https://localhost:{}/big", self.ports[number / 3 % 2]);
        let (ca, script) = (self.ca.as_str(), format!("{SCRIPTS}/fetch.py"));
        let wgets = format!("--ca-certificate={ca}");
        let words = match number % 3 {
            0 => ["curl", "-sS", "--cacert", ca, &url].to_vec(),
            1 => ["wget", "-q", "-O-", "-t1", &wgets, &url].to_vec(),
            _ => ["/usr/bin/python3", &script, "urllib", &url, ca].to_vec(),
        };
        let mut command = Command::new("timeout");
        command.arg(LIMIT_S).args(words).stdin(Stdio::null());
        with_rejoin(&mut command, &self.socket, PATIENCE_MS);
        command
    }
}

impl Tally {
    fn add(&mut self, name: &str, output: &Output, page: &[u8]) {
        let told = String::from_utf8_lossy(&output.stderr);
        self.by_the_manager += usize::from(told.contains("through the manager"));
        match (output.status.code(), output.stdout == page) {
            (Some(0), true) => self.right += 1,
            (Some(0), false) => {
                self.wrong.push(format!("{name}: {} bytes: {told}", output.stdout.len()));
            }
            (HANGS, _) => self.hung += 1,
            _ => self.failed += 1,
        }
    }
}

/// Ends the downloads when it is dropped, by a panic, too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn survived(effort: Effort) -> Option<Found> {
    let mut world = World::new("check-kills");
    let [Some(first), Some(second)] = Tls::ALL.map(|tls| nginx(&world, tls)) else { return None };
    let page = std::fs::read(second.site.as_ref()?.big()).expect("a file");
    let (ca, socket) = (world.managed.file("ca.pem"), world.managed.socket());
    let place = Place { ports: [first.port, second.port], ca, socket, page };
    let (tally, is_over) = (Mutex::new(Tally::default()), AtomicBool::new(false));
    let downloads = |number: usize| {
        while !is_over.load(Ordering::Relaxed) {
            let mut program = place.program(number);
            let output = program.output().expect("coreutils");
            let name = format!("{program:?}");
            tally.lock().expect("no panic").add(&name, &output, &place.page);
        }
    };
    let deeds = thread::scope(|scope| {
        (0..PROGRAMS).for_each(|number| drop(scope.spawn(move || downloads(number))));
        let _over = Over(&is_over);
        disturb(&mut world.managed, if effort.quick { QUICK } else { LASTS })
    });
    let Tally { right, failed, by_the_manager, hung, wrong } = tally.into_inner().expect("ours");
    wrong.iter().take(EXAMPLES).for_each(|wrong| println!("     {wrong}"));
    let figure = format!(
        "{deeds} deeds, {right} downloads, {by_the_manager} of all by the manager, {failed} failed and said so, {hung} \
         hung, {} wrong",
        wrong.len()
    );
    Some(Found { figure, holds: wrong.is_empty() && hung == 0 && right > 0 && by_the_manager > 0 })
}

/// Kills, stops or restarts the manager, in turns. Returns how often.
fn disturb(managed: &mut Managed, lasts: Duration) -> usize {
    let until = Instant::now() + lasts;
    let mut deeds = 0;
    while Instant::now() < until {
        thread::sleep(PAUSE);
        let manager = managed.child.as_mut().expect("it runs");
        match deeds % 3 {
            0 => {
                managed.kill();
                managed.run();
            }
            1 => {
                signal(manager, Signal::STOP);
                thread::sleep(STOPPED);
                signal(manager, Signal::CONT);
            }
            _ => {
                // It hands new programs back, and ends when the downloads that it has are done.
                manager.terminate();
                managed.run();
            }
        }
        deeds += 1;
    }
    deeds
}
