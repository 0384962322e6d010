//! A path with a longer round trip.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::rogue;

/// A port that leads to a server by a longer round trip.
pub struct SlowWay {
    pub port: u16,
    answers: Arc<AtomicU64>,
}

/// The kind of a record.
const ALERT: u8 = 21;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

impl SlowWay {
    pub fn to(port: u16, round_trip: Duration) -> Self {
        let answers = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&answers);
        let port = rogue(move |client| {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
            // `None` once the connection is ending.
            let spoke = Arc::new(Mutex::new(Some(End::Server)));
            for (end, from, into) in
                [(End::Client, &client, &server), (End::Server, &server, &client)]
            {
                let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
                let (mut from, into, (late, due)) = (copy(from), copy(into), channel());
                let (spoke, counted) = (Arc::clone(&spoke), Arc::clone(&counted));
                let _ = into.set_nodelay(true);
                let heard = move |first: u8| {
                    let mut spoke = spoke.lock().expect("no panic");
                    let Some(before) = *spoke else { return };
                    if (before, end) == (End::Client, End::Server) {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    *spoke = (first != ALERT).then_some(end);
                };
                std::thread::spawn(move || hold(&mut from, &late, round_trip / 2, heard));
                std::thread::spawn(move || release(into, &due));
            }
        });
        Self { port, answers }
    }

    /// The number of times that a server answered a client, in all connections over TLS 1.2: their round trips, without
    /// TCP's own and the end of a connection.
    pub fn round_trips(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }
}

fn hold(
    from: &mut TcpStream,
    late: &Sender<(Instant, Vec<u8>)>,
    time: Duration,
    heard: impl Fn(u8),
) {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut piece).unwrap_or_default();
        if read > 0 {
            heard(piece[0]);
        }
        let due = Instant::now() + time;
        if late.send((due, piece[..read].to_vec())).is_err() || read == 0 {
            return;
        }
    }
}

fn release(mut into: TcpStream, due: &Receiver<(Instant, Vec<u8>)>) {
    let mut waiting: VecDeque<_> = VecDeque::new();
    while let Some((at, piece)) = waiting.pop_front().or_else(|| due.recv().ok()) {
        waiting.extend(due.try_iter());
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if piece.is_empty() || into.write_all(&piece).is_err() {
            let _ = into.shutdown(Shutdown::Write);
            return;
        }
    }
}
