//! A path with a round trip: bytes arrive half of it later, in the windows of TCP's slow start.
//!
//! A sender may have ten segments on the way at first (RFC 6928), and as many more as arrive at the other end, a round
//! trip after they left. TCP's own handshake takes the first round trip. Nothing is lost, and there is no limit of the
//! rate.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// The payload of a segment over Ethernet.
const SEGMENT_BYTES: usize = 1_460;
/// Segments that may be on the way at first.
const INITIAL_SEGMENTS: usize = 10;

/// A port of this machine that leads to a server by such a path. It works until this process ends.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) port: u16,
    bytes: Arc<AtomicU64>,
}

impl Relay {
    pub(super) fn to(server: SocketAddrV4, round_trip: Duration) -> Result<Self, Error> {
        let failed = |source| Error::System { what: "cannot make a path to a server", source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&bytes);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let _ = connect(&client, server, round_trip, &counted);
            }
        });
        Ok(Self { port, bytes })
    }

    /// The bytes of all connections so far, both ways.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

fn connect(
    client: &TcpStream,
    server: SocketAddrV4,
    round_trip: Duration,
    bytes: &Arc<AtomicU64>,
) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let open = Instant::now() + round_trip;
    for (from, into) in [(client, &server), (&server, client)] {
        into.set_nodelay(true)?;
        let (from, into, bytes) = (from.try_clone()?, into.try_clone()?, Arc::clone(bytes));
        let (late, due) = channel();
        thread::spawn(move || Sending::new(open, round_trip, late).all(from, &bytes));
        thread::spawn(move || deliver(into, &due));
    }
    Ok(())
}

/// One direction's sender.
struct Sending {
    late: Sender<(Instant, Vec<u8>)>,
    window: Window,
    /// Nothing leaves before.
    open: Instant,
}

impl Sending {
    fn new(open: Instant, round_trip: Duration, late: Sender<(Instant, Vec<u8>)>) -> Self {
        Self { late, window: Window::new(round_trip), open }
    }

    fn all(mut self, mut from: TcpStream, bytes: &AtomicU64) {
        let mut piece = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut piece).unwrap_or_default();
            bytes.fetch_add(read as u64, Ordering::Relaxed);
            thread::sleep(self.open.saturating_duration_since(Instant::now()));
            // An end is sent behind all bytes.
            if self.send(&piece[..read]).is_none() || read == 0 {
                return;
            }
        }
    }

    fn send(&mut self, mut rest: &[u8]) -> Option<()> {
        loop {
            let now = Instant::now();
            match self.window.room(now) {
                Err(later) => thread::sleep(later.saturating_duration_since(now)),
                Ok(room) => {
                    let (sent, left) = rest.split_at(room.min(rest.len()));
                    self.window.sent(now, sent.len());
                    self.late.send((now + self.window.round_trip / 2, sent.to_vec())).ok()?;
                    if left.is_empty() {
                        return Some(());
                    }
                    rest = left;
                }
            }
        }
    }
}

/// The congestion window of a sender that loses nothing.
struct Window {
    round_trip: Duration,
    bytes: usize,
    /// Bytes on the way, and when the sender knows that they have arrived.
    on_the_way: VecDeque<(Instant, usize)>,
}

impl Window {
    fn new(round_trip: Duration) -> Self {
        Self { round_trip, bytes: INITIAL_SEGMENTS * SEGMENT_BYTES, on_the_way: VecDeque::new() }
    }

    /// Returns the bytes that may be sent now, or the time at which there is room again.
    fn room(&mut self, now: Instant) -> Result<usize, Instant> {
        while let Some((known, bytes)) = self.on_the_way.front()
            && *known <= now
        {
            self.bytes += bytes;
            self.on_the_way.pop_front();
        }
        let on_the_way: usize = self.on_the_way.iter().map(|(_, bytes)| bytes).sum();
        match (self.bytes.saturating_sub(on_the_way), self.on_the_way.front()) {
            (0, Some((known, _))) => Err(*known),
            (room, _) => Ok(room),
        }
    }

    fn sent(&mut self, now: Instant, bytes: usize) {
        self.on_the_way.push_back((now + self.round_trip, bytes));
    }
}

fn deliver(mut into: TcpStream, due: &Receiver<(Instant, Vec<u8>)>) {
    for (at, piece) in due {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if piece.is_empty() || into.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = into.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = INITIAL_SEGMENTS * SEGMENT_BYTES;

    /// The round trips after which the last of so many bytes leaves.
    fn round_trips(mut bytes: usize) -> u128 {
        let (begin, round_trip) = (Instant::now(), Duration::from_millis(40));
        let (mut now, mut window) = (begin, Window::new(round_trip));
        loop {
            match window.room(now) {
                Err(later) => now = later,
                Ok(room) if room >= bytes => break,
                Ok(room) => {
                    window.sent(now, room);
                    bytes -= room;
                }
            }
        }
        (now - begin).as_millis() / round_trip.as_millis()
    }

    #[test]
    fn the_window_doubles_with_each_round_trip() {
        let all = [1, WINDOW, WINDOW + 1, 3 * WINDOW, 3 * WINDOW + 1, 7 * WINDOW, 7 * WINDOW + 1];
        assert_eq!(all.map(round_trips), [0, 0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn all_bytes_arrive_and_are_counted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            client.read_exact(&mut [0]).expect("a request");
            client.write_all(&vec![b'a'; 5 * WINDOW]).expect("it is read");
        });
        let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let relay = Relay::to(server, Duration::from_millis(1)).expect("a port");
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port)).expect("the relay");
        client.write_all(&[0]).expect("it is read");
        let mut page = Vec::new();
        client.read_to_end(&mut page).expect("a page");
        assert_eq!((page.len(), relay.bytes()), (5 * WINDOW, 5 * WINDOW as u64 + 1));
    }
}
