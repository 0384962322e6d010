//! Bytes passed on, both ways, between a program and its server: the program performs its handshake with the server.
//!
//! Each direction ends as its sender ended it: by an end of file, or by a reset.

use std::io::{self, Read, Write};

use rustix::net::Shutdown;
use tokio::io::Interest;
use tokio::time::{Instant, sleep};

use crate::downstream::connection::ASK_WHETHER_GONE;
use crate::downstream::input::is_gone;
use crate::hop::line::Line;
use crate::hop::sockets::LINGER;
use crate::relay::interest;
use crate::upstream::tcp::{Sink, Source, Tcp};

/// The size of one read.
const PIECE_BYTES: usize = 16 * 1024;
/// The rounds of one connection before others have a turn.
const ROUNDS: usize = 16;

/// One direction.
struct Direction {
    piece: Box<[u8]>,
    /// The bytes that were read and are not written yet.
    held: std::ops::Range<usize>,
    is_over: bool,
}

/// The reason why a direction pauses or ends.
enum Pause {
    /// Others have a turn.
    Turn,
    /// One side is not ready.
    Blocked,
    /// The sender ended its direction.
    Ended,
    /// Reading failed.
    Broken,
    /// Writing failed.
    Refused,
}

impl Direction {
    fn new() -> Self {
        Self { piece: vec![0; PIECE_BYTES].into(), held: 0..0, is_over: false }
    }

    /// Moves bytes until it must wait or its turn is over.
    fn work(&mut self, mut from: impl Read, mut to: impl Write) -> Pause {
        if self.is_over {
            return Pause::Blocked;
        }
        let pause = self.rounds(&mut from, &mut to);
        self.is_over = !matches!(pause, Pause::Turn | Pause::Blocked);
        pause
    }

    fn rounds(&mut self, from: &mut impl Read, to: &mut impl Write) -> Pause {
        for _ in 0..ROUNDS {
            if self.held.is_empty() {
                match from.read(&mut self.piece) {
                    Ok(0) => return Pause::Ended,
                    Ok(read) => self.held = 0..read,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Pause::Blocked;
                    }
                    Err(_) => return Pause::Broken,
                }
            }
            match to.write(&self.piece[self.held.clone()]) {
                Ok(written) => self.held.start += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Pause::Blocked,
                Err(_) => return Pause::Refused,
            }
        }
        Pause::Turn
    }

    fn reads(&self) -> bool {
        !self.is_over && self.held.is_empty()
    }

    fn writes(&self) -> bool {
        !self.is_over && !self.held.is_empty()
    }
}

/// Passes bytes both ways until both sides have ended, the connection broke, or the program is gone. A connection that
/// broke is a reset for the program.
pub(crate) async fn pass_on(mut line: Line, tcp: Tcp) -> io::Result<()> {
    let (mut up, mut down) = (Direction::new(), Direction::new());
    let mut is_broken = false;
    let mut until = None;
    loop {
        let risen = up.work(&mut line, Sink(&tcp));
        match risen {
            // Of a server that has reset, what it sent before is still delivered.
            Pause::Ended => drop(rustix::net::shutdown(&*tcp, Shutdown::Write)),
            // The program is gone, and has not read all that it was sent.
            Pause::Broken => return Ok(()),
            Pause::Refused => is_broken = true,
            Pause::Turn | Pause::Blocked => {}
        }
        let fallen = down.work(Source(&tcp), &mut line);
        match fallen {
            Pause::Broken => return Ok(()),
            Pause::Ended if is_broken => return Ok(()),
            Pause::Ended => {
                line.settle();
                rustix::net::shutdown(&*line.socket, Shutdown::Write)?;
                until = Some(Instant::now() + LINGER);
            }
            // The program reads no more. All that it wrote is still passed on.
            Pause::Refused => until = Some(Instant::now() + LINGER),
            Pause::Turn | Pause::Blocked => {}
        }
        // A silent server must not hold the connection of a program that is gone.
        let is_done = up.is_over && (down.is_over || is_gone(&line.socket));
        if is_done || until.is_some_and(|until| Instant::now() >= until) {
            return Ok(());
        }
        if matches!(risen, Pause::Turn) || matches!(fallen, Pause::Turn) {
            tokio::task::yield_now().await;
            continue;
        }
        let server = interest(down.reads(), up.writes());
        let program = interest(up.reads(), down.writes());
        tokio::select! {
            ready = tcp.ready(server.unwrap_or(Interest::ERROR)), if server.is_some() => drop(ready?),
            ready = line.socket.ready(program.unwrap_or(Interest::ERROR)), if program.is_some() => drop(ready?),
            () = sleep(ASK_WHETHER_GONE), if up.is_over || down.is_over => {}
        }
    }
}
