//! A way on which everything takes longer.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::rogue::rogue;

/// A port behind which this one is, and a round trip takes so much longer.
pub(crate) fn slow_way(to: u16, round_trip: Duration) -> u16 {
    rogue(move |client| {
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { return };
        for (from, into) in [(&client, &server), (&server, &client)] {
            let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
            let (mut from, into, (late, due)) = (copy(from), copy(into), channel());
            let _ = into.set_nodelay(true);
            std::thread::spawn(move || hold(&mut from, &late, round_trip / 2));
            std::thread::spawn(move || release(into, &due));
        }
    })
}

fn hold(from: &mut TcpStream, late: &Sender<(Instant, Vec<u8>)>, time: Duration) {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut piece).unwrap_or_default();
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
