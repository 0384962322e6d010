//! Tickets of TLS 1.3 go out once, also when many programs ask at a time, and the manager is killed
//! in between and started again.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use rejoin_client::protocol::{Connect, Why};
use rejoin_client::{Error, Manager};

use crate::manager::Managed;
use crate::proxy::{tapped, ticket};
use crate::stacks::{Stack, Tls};

const PROGRAMS: usize = 200;
/// Visits of each program before the manager is killed, and as many after.
const VISITS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(120);

/// The counts of a proxy on the way to the server.
#[derive(Debug)]
pub struct Once {
    pub programs: usize,
    pub visits: usize,
    pub resumed: usize,
    /// Visits that the kill broke off, and that were made again.
    pub broken: usize,
    /// Tickets in ClientHellos.
    pub tickets: usize,
    pub different: usize,
}

impl Once {
    pub fn holds(&self) -> bool {
        let is_whole = self.visits == self.programs * 2 * VISITS && self.resumed > 0;
        // Only the kill may waste a ticket.
        let is_used = self.tickets <= self.resumed + self.broken;
        is_whole && is_used && self.tickets == self.different
    }
}

/// Programs go on until each has had all its visits.
pub fn ask_at_once(managed: &mut Managed) -> Once {
    let server = Stack::Rustls.start(managed, Tls::V13).expect("it is ours");
    let (port, told) = tapped(server.port);
    let mut wanted =
        Connect::new("localhost".parse().expect("a name"), port.try_into().expect("one"));
    wanted.deadline_ms = PATIENCE.as_millis() as u32;
    let manager = Manager::at(managed.socket());
    let [resumed, broken, done] = [const { AtomicUsize::new(0) }; 3];
    // The others resume its session.
    visit(&manager, &wanted).expect("a connection");
    thread::scope(|scope| {
        for _ in 0..PROGRAMS {
            scope.spawn(|| {
                let until = Instant::now() + PATIENCE;
                for _ in 0..2 * VISITS {
                    resumed
                        .fetch_add(patiently(&manager, &wanted, until, &broken), Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let until = Instant::now() + PATIENCE;
        while done.load(Ordering::Relaxed) < PROGRAMS * VISITS && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        managed.kill();
        managed.run();
    });
    let seen = tickets(&told);
    Once {
        programs: PROGRAMS,
        visits: done.into_inner(),
        resumed: resumed.into_inner(),
        broken: broken.into_inner(),
        tickets: seen.len(),
        different: seen.iter().collect::<HashSet<_>>().len(),
    }
}

/// Visits until it succeeds. Returns 1 if it resumed.
fn patiently(manager: &Manager, wanted: &Connect, until: Instant, broken: &AtomicUsize) -> usize {
    loop {
        match visit(manager, wanted) {
            Ok(why) => {
                // The manager called the server again, without the ticket that broke off.
                broken.fetch_add(usize::from(why == Why::Refused), Ordering::Relaxed);
                return usize::from(why == Why::Resumed);
            }
            Err(why) => assert!(Instant::now() < until, "{why}"),
        }
        broken.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(10));
    }
}

/// Asks for a page. Returns why the connection was resumed, or was not.
fn visit(manager: &Manager, wanted: &Connect) -> Result<Why, Error> {
    let mut stream = manager.connect(wanted)?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(stream.session().why)
}

fn tickets(told: &Receiver<Vec<u8>>) -> Vec<Vec<u8>> {
    told.try_iter().filter_map(|flight| ticket(&flight)).collect()
}
