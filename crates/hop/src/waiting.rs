//! Connections that were offered to the manager while the program goes on: its socket is non-blocking, so the program
//! must not wait for the manager's decision.
//!
//! The program's ClientHello is in the pair, and the program waits for an answer. Each time that it reads, the
//! manager's decision is looked for. If the manager refused or is gone, the program gets its TCP socket back, to which
//! its ClientHello is sent then. If the manager does not decide, the same happens at the end of the patience, which
//! ends the program's own wait for a moment (`waits` in `preload`).

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::c_int;
use rejoin_abi::gate::Gated;
use rejoin_abi::{RegisteredOf, report};
use rejoin_client::Error;
use rejoin_client::hop::{Hop, Requested};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};

use crate::deciding::{Decider, Part, decide};
use crate::held::{Held, Identity};
use crate::offer::Offer;
use crate::settings::{self, now_ms};
use crate::sockets;

/// A connection about which the manager has not decided yet.
pub(crate) struct Waiting {
    pub(crate) requested: Held<Requested>,
    pub(crate) decider: Decider,
    pub(crate) offer: Arc<Offer>,
    pub(crate) own: Own,
}

/// The program's own connection, to which it returns if the manager does not take it.
pub(crate) struct Own {
    pub(crate) tcp: Held<OwnedFd>,
    /// The pair's end, which has its descriptor meanwhile.
    pub(crate) end: Identity,
    pub(crate) close_on_exec: c_int,
    pub(crate) registered_of: RegisteredOf,
    pub(crate) hello: Vec<u8>,
    /// The server, for reports.
    pub(crate) service: String,
}

struct All {
    /// The connections by their descriptors, each with a number that no other has.
    waiting: BTreeMap<RawFd, (u64, Waiting)>,
    /// The ends of patience, in their order, of these and of some that are decided.
    ends: VecDeque<End>,
    last: u64,
}

struct End {
    at_ms: u64,
    descriptor: RawFd,
    number: u64,
}

/// The number of connections that are waiting. At zero, nothing that a program reads or waits for is examined.
pub(crate) static COUNT: AtomicUsize = AtomicUsize::new(0);

static ALL: Gated<All> =
    Gated::new(All { waiting: BTreeMap::new(), ends: VecDeque::new(), last: 0 });

impl All {
    fn take(&mut self, descriptor: RawFd) -> Option<Waiting> {
        let taken = self.waiting.remove(&descriptor);
        self.count();
        taken.map(|(_, waiting)| waiting)
    }

    fn count(&mut self) {
        if self.waiting.is_empty() {
            self.ends.clear();
        }
        COUNT.store(self.waiting.len(), Ordering::Relaxed);
    }

    fn await_end(&mut self, descriptor: RawFd, number: u64) {
        let at_ms = now_ms() + settings::patience().as_millis() as u64;
        self.ends.push_back(End { at_ms, descriptor, number });
    }

    /// Returns this process's part in a connection whose patience has ended.
    fn part(&mut self, descriptor: RawFd) -> Part {
        match self.waiting.get_mut(&descriptor) {
            Some((_, waiting)) if waiting.own.is_due_at(descriptor) => {
                waiting.decider.part(waiting.requested.get())
            }
            // The program has closed the socket.
            _ => Part::Nothing,
        }
    }

    /// Takes the connections whose patience has ended, one at each call. The process is to give it up if it
    /// [decides](Part::Decides). `Err`: the time until the next end, if there is one.
    fn take_overdue(&mut self) -> Result<(RawFd, Waiting, Part), Option<u64>> {
        while let Some(&End { at_ms, descriptor, number }) = self.ends.front() {
            let is_waiting = self.waiting.get(&descriptor).is_some_and(|(own, _)| *own == number);
            let left_ms = at_ms.saturating_sub(now_ms());
            if is_waiting && left_ms > 0 {
                return Err(Some(left_ms));
            }
            self.ends.pop_front();
            if !is_waiting {
                continue;
            }
            match self.part(descriptor) {
                Part::Looks => self.await_end(descriptor, number),
                part => {
                    if let Some(waiting) = self.take(descriptor) {
                        return Ok((descriptor, waiting, part));
                    }
                }
            }
        }
        Err(None)
    }
}

/// Adds a connection.
pub(crate) fn add(descriptor: RawFd, waiting: Waiting) {
    waiting.offer.waits_at(descriptor);
    let mut all = ALL.lock();
    all.last += 1;
    let number = all.last;
    // One that had the descriptor before was closed by the program.
    let closed = all.waiting.insert(descriptor, (number, waiting));
    all.await_end(descriptor, number);
    all.count();
    drop(all);
    drop(closed);
}

/// Looks for the manager's decision before the program reads from a descriptor.
pub(crate) fn reading(descriptor: RawFd) {
    let found = ALL.lock().waiting.remove(&descriptor);
    let Some((number, mut waiting)) = found else { return };
    // Not under the lock: this reads, too.
    let is_due = waiting.own.is_due_at(descriptor);
    waiting.decider.reads();
    let asks = |requested: &mut Requested| requested.decision();
    let decision = if is_due { waiting.requested.get_mut().and_then(asks) } else { None };
    if decision.is_some() {
        waiting.requested.get().into_iter().for_each(decide);
    }
    let is_closed = is_due && decision.is_none() && is_closed(descriptor);
    let mut all = ALL.lock();
    let waits_on = is_due && decision.is_none() && !is_closed;
    let over = if waits_on {
        drop(all.waiting.insert(descriptor, (number, waiting)));
        // Another thread that found nothing here has taken the end away.
        if !all.ends.iter().any(|end| end.number == number) {
            all.await_end(descriptor, number);
        }
        None
    } else {
        is_due.then_some(waiting)
    };
    all.count();
    drop(all);
    match (over, decision) {
        (Some(over), Some(Ok(()))) => {
            over.requested.take().into_iter().for_each(|done| over.offer.given(done.into_hop()));
        }
        (Some(over), Some(Err(error))) => over.own.put_back(descriptor, &error),
        // The manager closes its end before it says why, or is gone.
        (Some(over), None) => over.give_up(descriptor),
        (None, _) => {}
    }
}

/// Returns true if the other end of the pair is closed.
fn is_closed(descriptor: RawFd) -> bool {
    // SAFETY: the program is reading from the descriptor, and so keeps it open.
    let own = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut asked = [PollFd::from_borrowed_fd(own, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ends = PollFlags::RDHUP | PollFlags::HUP;
    poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().intersects(ends)
}

/// Removes and returns the connection of an offer.
pub(crate) fn take(descriptor: RawFd, offer: &Offer) -> Option<Waiting> {
    let mut all = ALL.lock();
    let (_, waiting) = all.waiting.get(&descriptor)?;
    if !std::ptr::eq(&raw const *waiting.offer, offer) {
        return None;
    }
    all.take(descriptor)
}

/// Takes back all connections of this process whose patience has ended. Returns the time until the next end, in milliseconds, or `None`
/// if no connection waits.
pub(crate) fn overdue() -> Option<u64> {
    loop {
        let next = ALL.lock().take_overdue();
        match next {
            Err(left_ms) => return left_ms,
            Ok((descriptor, waiting, Part::Decides)) => waiting.give_up(descriptor),
            Ok(_) => {}
        }
    }
}

impl Waiting {
    /// Ends the wait for the decision, because the handshake is over. Returns the hop, if the manager has taken the
    /// connection over.
    pub(crate) fn end(self) -> Option<Held<Hop>> {
        cancel(self.requested)?.ok().map(Held::new)
    }

    /// Waits no longer for the manager.
    fn give_up(self, descriptor: RawFd) {
        match cancel(self.requested) {
            Some(Ok(hop)) => self.offer.given(hop),
            Some(Err(error)) => self.own.put_back(descriptor, &error),
            // The program has closed what led to the manager, which has taken the connection, or ends it.
            None => {}
        }
    }
}

/// Decides now. `None`: the program has closed what led to the manager.
fn cancel(requested: Held<Requested>) -> Option<Result<Hop, Error>> {
    let requested = requested.take()?;
    decide(&requested);
    Some(requested.cancel())
}

impl Own {
    /// Returns true if the program still has the pair's end under this descriptor.
    fn is_due_at(&self, descriptor: RawFd) -> bool {
        // SAFETY: the descriptor is only asked about; if it is not open, the call fails.
        let found = Identity::of(unsafe { BorrowedFd::borrow_raw(descriptor) });
        found == Some(self.end)
    }

    /// Gives the program its own connection back, because of this error of the manager, and sends its ClientHello. After
    /// an error that leaves open whether the manager uses the connection, the program reads that its connection broke.
    fn put_back(self, descriptor: RawFd, error: &Error) {
        if !matches!(error, Error::Refused(_) | Error::Silent(_)) {
            report(&format!("{}: the connection breaks: {error}", self.service));
            return;
        }
        settings::failed(&self.service, error);
        let Some(tcp) = self.tcp.get() else { return };
        // SAFETY: the program has the descriptor, as `is_due_at` found.
        let at = unsafe { BorrowedFd::borrow_raw(descriptor) };
        if sockets::put(tcp.as_fd(), at, self.registered_of, self.close_on_exec) {
            // The socket's buffer is empty. Should it fail, the program reads why.
            let _ = send(at, &self.hello, SendFlags::NOSIGNAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Duration;

    use rejoin_abi::Registered;
    use rejoin_client::Manager;
    use rejoin_client::hop::Sockets;
    use rejoin_client::protocol::{self, Answer, End, Offers, Problem, Token};

    use super::*;

    unsafe extern "C" fn none(_: c_int, _: *mut Registered) -> c_int {
        0
    }

    /// A connection that waits for the manager.
    struct Offered {
        descriptor: RawFd,
        manager: UnixStream,
        server: TcpStream,
        _own: UnixStream,
    }

    impl Offered {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rejoin-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let manager = UnixListener::bind(&path).expect("a socket");
            let server = TcpListener::bind("127.0.0.1:0").expect("a port");
            let tcp = TcpStream::connect(server.local_addr().expect("bound")).expect("it listens");
            let (own, line) = UnixStream::pair().expect("a pair");
            let offer = Offer::make(&[]).expect("an offer");
            let wanted = protocol::Hop {
                host: "localhost".parse().expect("a name"),
                port: 443.try_into().expect("a port"),
                alpn: Vec::new(),
                label: String::new().parse().expect("a label"),
                min_version: None,
                offers: Offers { suites: vec![1], groups: vec![1], signatures: vec![1] },
                staple: false,
                identity: Token([7; 16]),
                key: offer.key.clone(),
            };
            let sockets = Sockets { line: line.as_fd(), tcp: tcp.as_fd(), spare: None };
            let requested = Manager::at(&path).request_hop(&wanted, sockets).expect("it listens");
            let returns_to = Own {
                tcp: Held::new(tcp.into()),
                end: Identity::of(&own).expect("open"),
                close_on_exec: libc::O_CLOEXEC,
                registered_of: none,
                hello: b"hello".to_vec(),
                service: "localhost:443".to_owned(),
            };
            let descriptor = own.as_raw_fd();
            let decider = Decider::this(&requested);
            let requested = Held::new(requested);
            add(descriptor, Waiting { requested, decider, offer, own: returns_to });
            let (manager, server) = (manager.accept(), server.accept());
            let (manager, server) = (manager.expect("a call").0, server.expect("a call").0);
            std::fs::remove_file(&path).expect("it is there");
            Self { descriptor, manager, server, _own: own }
        }

        /// Returns the bytes that reach the server after the manager has said so much.
        fn at_server(mut self, said: &[u8]) -> Vec<u8> {
            self.manager.write_all(said).expect("room");
            reading(self.descriptor);
            self.server.set_read_timeout(Some(Duration::from_millis(200))).expect("a setting");
            let mut bytes = [0; 64];
            match self.server.read(&mut bytes) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                read => bytes[..read.unwrap_or(0)].to_vec(),
            }
        }
    }

    #[test]
    fn a_connection_that_is_read_keeps_its_end() {
        let offered = Offered::new("reads");
        // As another thread does while this one reads.
        ALL.lock().ends.retain(|end| end.descriptor != offered.descriptor);
        for _ in 0..2 {
            reading(offered.descriptor);
        }
        let ends = |end: &&super::End| end.descriptor == offered.descriptor;
        assert_eq!(ALL.lock().ends.iter().filter(ends).count(), 1);
        drop(ALL.lock().take(offered.descriptor));
    }

    #[test]
    fn the_hello_is_sent_again_only_if_the_socket_is_unused() {
        let answered = |answer| protocol::write_answer(&answer).expect("an answer");
        let refused = Problem {
            kind: protocol::ErrorKind::ShuttingDown,
            detail: String::new(),
            remedy: String::new(),
            early_data: None,
        };
        assert_eq!(Offered::new("refuses").at_server(&answered(Answer::Error(refused))), b"hello");
        assert_eq!(Offered::new("takes").at_server(&answered(Answer::Ready {})), b"");
        assert_eq!(Offered::new("other").at_server(&answered(Answer::End(End::Clean))), b"");
        assert_eq!(Offered::new("malformed").at_server(&[0xff; 4]), b"");
    }
}
