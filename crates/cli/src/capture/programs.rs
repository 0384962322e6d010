//! The programs at the ends of a live capture's connections, by the system's tables of sockets and processes.
//!
//! The reader of packets notes each connection that begins, and a thread looks up which processes have its sockets: once
//! for each connection, all that wait at once, and for most of the time not at all. A handshake waits for the answer for
//! [`LONGEST_WAIT`] at most. What cannot be found, or read, is unknown: the socket is gone, several processes have it, or
//! the system does not permit a look. Nothing is asked of other machines.

mod sockets;

use std::collections::HashMap;
use std::mem;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rejoin_capture::{Beginning, Carrier, Handshake};

use sockets::Lookup;

/// The longest time that is looked for the processes of a connection, from its beginning on.
const LONGEST_WAIT: Duration = Duration::from_millis(400);
/// The shortest pause between two looks: a server takes a connection only after it has begun.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// The pause is this many times as long as the look before it was.
const REST: u32 = 3;
/// The time after which a hello on the same ends may be of another program, as far as no SYN tells.
const STAYS_US: i64 = 1_000_000;
/// The most connections that are remembered; twice as many are for a while.
const MOST_CONNECTIONS: usize = 1 << 12;

/// True for TCP, and both ends in order.
type Connection = (bool, [SocketAddr; 2]);

/// The number of a process, and the name of its program.
type Program = (u32, Arc<str>);

/// Looks for programs until it is dropped.
pub(super) struct Programs {
    connections: Arc<Mutex<Connections>>,
    wake: SyncSender<()>,
}

/// The answer to a handshake.
pub(super) enum Answer {
    /// It is still looked for.
    Later,
    /// The programs of the handshake are set, as far as they are known.
    Known,
}

impl Programs {
    /// Begins to look. `None`: there is no thread to be had.
    pub(super) fn start() -> Option<Self> {
        let connections = Arc::<Mutex<Connections>>::default();
        let (wake, woken) = sync_channel(1);
        let theirs = Arc::clone(&connections);
        let thread = thread::Builder::new().name("programs".to_owned());
        thread.spawn(move || look(&theirs, &woken)).ok()?;
        Some(Self { connections, wake })
    }

    /// Notes what an IP packet begins, at a time in microseconds since 1970. It never waits for a look.
    pub(super) fn note(&self, packet: &[u8], time_us: i64) {
        let Some(beginning) = Beginning::of(packet) else { return };
        if lock(&self.connections).note(&beginning, time_us) {
            // If it is full, the thread is awake.
            let _ = self.wake.try_send(());
        }
    }

    /// Sets the programs of a handshake.
    pub(super) fn name(&self, handshake: &mut Handshake) -> Answer {
        let client = SocketAddr::new(handshake.client_ip, handshake.client_port);
        let server = SocketAddr::new(handshake.server_ip, handshake.server_port);
        let connections = lock(&self.connections);
        let is_tcp = handshake.carrier == Carrier::Tls;
        let Some(known) = connections.get(&connection(is_tcp, client, server)) else {
            return Answer::Known;
        };
        if known.is_looked_for() {
            return Answer::Later;
        }
        let begun_us = handshake.t_ch.or(handshake.t_sh).map_or(0, |s| (s * 1e6).round() as i64);
        // Of an earlier connection with the same ends, whose program is not remembered.
        if known.since_us > begun_us + 1 {
            return Answer::Known;
        }
        let named = [client, server].map(|end| {
            let place = known.ends.iter().position(|(known, _)| *known == end)?;
            let (process, name) = known.ends[place].1.as_ref()?;
            Some((&**name, Some(*process)))
        });
        handshake.set_programs(named);
        Answer::Known
    }
}

/// The connections that began last. The older half is forgotten when the newer one is full.
#[derive(Default)]
struct Connections {
    newer: HashMap<Connection, Known>,
    older: HashMap<Connection, Known>,
}

/// A connection, as far as it is known.
struct Known {
    since_us: i64,
    /// `None` once it is no longer looked for.
    until: Option<Instant>,
    ends: [(SocketAddr, Option<Program>); 2],
}

impl Known {
    fn is_looked_for(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

impl Connections {
    /// Returns true for a connection that is not known yet.
    fn note(&mut self, beginning: &Beginning, time_us: i64) -> bool {
        let key = connection(beginning.is_tcp, beginning.from, beginning.to);
        let stays = |known: &Known| time_us - known.since_us < STAYS_US;
        if !beginning.is_first && self.get(&key).is_some_and(stays) {
            return false;
        }
        if self.newer.len() >= MOST_CONNECTIONS {
            self.older = mem::take(&mut self.newer);
        }
        let until = Some(Instant::now() + LONGEST_WAIT);
        let ends = key.1.map(|end| (end, None));
        self.older.remove(&key);
        self.newer.insert(key, Known { since_us: time_us, until, ends });
        true
    }

    fn get(&self, key: &Connection) -> Option<&Known> {
        self.newer.get(key).or_else(|| self.older.get(key))
    }

    /// Returns the connections that are looked for, with the times of their beginnings.
    fn looked_for(&self) -> Vec<(Connection, i64)> {
        let all = self.newer.iter().chain(&self.older);
        let open = all.filter(|(_, known)| known.is_looked_for());
        open.map(|(key, known)| (*key, known.since_us)).collect()
    }

    /// Notes what was found, unless another connection has begun meanwhile.
    fn found(&mut self, key: &Connection, since_us: i64, found: [Lookup; 2]) {
        let known = self.newer.get_mut(key).or_else(|| self.older.get_mut(key));
        let Some(known) = known.filter(|known| known.since_us == since_us) else { return };
        let is_final = |found: &Lookup| matches!(found, Lookup::One(_) | Lookup::Elsewhere);
        if found.iter().all(is_final) {
            known.until = None;
        }
        for ((_, program), found) in known.ends.iter_mut().zip(found) {
            match found {
                Lookup::One(found) => *program = Some(found),
                Lookup::Several => *program = None,
                Lookup::NotYet | Lookup::Elsewhere => {}
            }
        }
    }
}

fn connection(is_tcp: bool, from: SocketAddr, to: SocketAddr) -> Connection {
    (is_tcp, if from <= to { [from, to] } else { [to, from] })
}

fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks whenever it is woken, until nothing is looked for.
fn look(connections: &Mutex<Connections>, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        loop {
            let wanted = lock(connections).looked_for();
            if wanted.is_empty() {
                break;
            }
            let begun = Instant::now();
            let keys: Vec<Connection> = wanted.iter().map(|(key, _)| *key).collect();
            let found = sockets::programs(&keys);
            for ((key, since_us), found) in wanted.iter().zip(found) {
                lock(connections).found(key, *since_us, found);
            }
            thread::sleep(SHORTEST_PAUSE.max(begun.elapsed() * REST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beginning(port: u16, is_first: bool) -> Beginning {
        let from = SocketAddr::from(([127, 0, 0, 1], port));
        let to = SocketAddr::from(([127, 0, 0, 1], 443));
        Beginning { is_tcp: true, from, to, is_first }
    }

    #[test]
    fn a_syn_forgets_what_was_found() {
        let mut connections = Connections::default();
        let (syn, hello) = (beginning(1_000, true), beginning(1_000, false));
        let key = connection(true, syn.from, syn.to);
        assert!(connections.note(&syn, 0));
        assert!(!connections.note(&hello, 500));
        connections.found(&key, 0, [Lookup::Elsewhere, Lookup::One((7, "curl".into()))]);
        assert!(connections.looked_for().is_empty());
        let named = |connections: &Connections| {
            connections.get(&key).is_some_and(|known| known.ends[1].1.is_some())
        };
        assert!(named(&connections));
        // Another connection, of which what was found of the one before says nothing.
        assert!(connections.note(&syn, 900));
        connections.found(&key, 0, [Lookup::Elsewhere, Lookup::One((7, "curl".into()))]);
        assert!(!named(&connections) && connections.looked_for().len() == 1);
        // One whose SYN was lost.
        assert!(connections.note(&hello, 900 + STAYS_US));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut connections = Connections::default();
        for port in 0..3 * MOST_CONNECTIONS as u16 {
            connections.note(&beginning(port, true), 0);
        }
        assert!(connections.newer.len() + connections.older.len() <= 2 * MOST_CONNECTIONS);
        assert!(
            connections
                .get(&connection(
                    true,
                    beginning(3 * MOST_CONNECTIONS as u16 - 1, true).from,
                    beginning(0, true).to
                ))
                .is_some()
        );
    }
}
