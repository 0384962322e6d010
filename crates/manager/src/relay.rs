//! Plaintext between a program and its server, both ways, until both have ended.
//!
//! Nothing is read from one side before the other has taken what was read last: a connection has
//! no buffers of its own but those of rustls, which hold one record or so, and what its program
//! does not take yet.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use rustix::net::Shutdown;
use tokio::io::Interest;
use tokio::sync::watch;

use crate::downstream::connection::{ASK_WHETHER_GONE, stopping};
use crate::downstream::endings::OpenConnection;
use crate::downstream::stream::{Downstream, Received, is_gone};
use crate::protocol::End;
use crate::state::State;
use crate::upstream::connection::Upstream;
use crate::upstream::tcp::Source;

/// Read at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Rounds before other connections have a turn.
const ROUNDS: usize = 16;
/// How long a server may take nothing of what a program left that is gone.
const LEFT_BEHIND_MS: u64 = 60_000;

thread_local! {
    /// What is read and at once worked on: one for all connections of a thread.
    static PIECE: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE_BYTES].into());
    /// What was in it for the program.
    static PLAINTEXT: RefCell<Vec<u8>> = RefCell::default();
}

/// See the module's documentation.
pub(crate) struct Relay<'a> {
    state: &'a State,
    standing: &'a OpenConnection<'a>,
    program: Downstream<'a>,
    upstream: &'a mut Upstream,
    /// What the server said and the program does not take yet.
    undelivered: Vec<u8>,
    /// From the program to the server.
    up: Way,
    /// From the server to the program.
    down: Way,
    /// Nobody holds the program's end any more.
    is_gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// It has ended so, and the other side is still to hear of it.
    Endings(End),
    Over,
}

impl<'a> Relay<'a> {
    pub(crate) fn new(
        state: &'a State,
        standing: &'a OpenConnection<'a>,
        program: Downstream<'a>,
        upstream: &'a mut Upstream,
    ) -> Self {
        let (up, down) = (Way::Open, Way::Open);
        Self {
            state,
            standing,
            program,
            upstream,
            undelivered: Vec::new(),
            up,
            down,
            is_gone: false,
        }
    }

    /// The server's side, between [`run`](Self::run) and the next.
    pub(crate) fn upstream(&mut self) -> &mut Upstream {
        self.upstream
    }

    /// Sends what the program wrote right behind its request, if it still waits for the answer: who
    /// has gone may have asked elsewhere. Then the server is at work, and the session it may have issued is stored.
    pub(crate) fn begin(&mut self) {
        if !is_gone(self.program.line()) && self.work_up().is_ok() {
            // What is wrong shows again, when it has been read what the server said.
            let _ = self.upstream.send();
        }
        self.upstream.store_issued(self.state);
    }

    /// Relays until the connection has ended, and says how. Dropped before that, it has lost nothing, and may
    /// be called again.
    pub(crate) async fn run(&mut self, mut stop: watch::Receiver<bool>) -> End {
        // A server that speaks first may have spoken in the handshake's last flight.
        let is_open = self.down == Way::Open;
        let take = |relay: &mut Self, plaintext: &mut _| relay.upstream.take_decrypted(plaintext);
        let spoken = if is_open { self.pass_on(take) } else { Ok(()) };
        let ended = loop {
            match spoken.and_then(|()| self.work()) {
                Err(end) => break end,
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => {
                    tokio::select! {
                        waited = self.wait() => match waited {
                            Ok(is_gone) => self.is_gone |= is_gone,
                            Err(_) => break self.stopped(),
                        },
                        () = stopping(&mut stop) => break self.stopped(),
                    }
                }
            }
        };
        // An alert, where something is wrong. No close_notify: the server would take what was cut
        // off for all that the program had to say. Whether it hears of it is its own affair now.
        let _ = self.upstream.send();
        ended
    }

    /// Does what can be done without waiting. Returns whether there is more of it.
    fn work(&mut self) -> Result<bool, End> {
        for _ in 0..ROUNDS {
            let moved = self.work_down()? | self.work_up()?;
            let is_sent = self.up == Way::Over && !self.upstream.tls.wants_write();
            if is_sent && (self.down == Way::Over || self.is_gone) {
                return Err(self.stopped());
            }
            if !moved {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How the connection ends when the server's direction is as it is.
    fn stopped(&self) -> End {
        if self.down == Way::Over { End::Clean } else { End::Truncated }
    }

    /// Server to program. Returns whether anything moved.
    fn work_down(&mut self) -> Result<bool, End> {
        let undelivered = std::mem::take(&mut self.undelivered);
        let moved = self.deliver(&undelivered)?;
        if !self.undelivered.is_empty() {
            return Ok(moved);
        }
        match self.down {
            Way::Open => {}
            Way::Endings(End::Clean) => {
                // Before the program reads it, and asks.
                self.standing.server_ends(End::Clean);
                if !self.program.finish() {
                    return Ok(moved);
                }
                self.down = Way::Over;
                return Ok(true);
            }
            Way::Endings(end) => return Err(end),
            Way::Over => return Ok(moved),
        }
        PIECE.with_borrow_mut(|piece| match Source(&self.upstream.tcp).read(piece) {
            Ok(read) => self.work_on(&piece[..read]).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(moved),
            Err(_) => Err(End::Truncated),
        })
    }

    /// Works on what came from the server: nothing, at the end of file, of which rustls says
    /// whether it was announced.
    fn work_on(&mut self, heard: &[u8]) -> Result<(), End> {
        self.pass_on(|relay, plaintext| relay.upstream.work_on(heard, plaintext))
    }

    /// Gives the program what is found for it, and notes whether the server's direction has ended. What the server
    /// issued is stored then: the program does not wait for that.
    fn pass_on(
        &mut self,
        find: impl FnOnce(&mut Self, &mut Vec<u8>) -> Option<End>,
    ) -> Result<(), End> {
        PLAINTEXT.with_borrow_mut(|plaintext| {
            plaintext.clear();
            // What came before an error is the program's, too.
            self.down = find(self, plaintext).map_or(Way::Open, Way::Endings);
            let delivered = self.deliver(plaintext);
            self.upstream.store_issued(self.state);
            delivered.map(|_| ())
        })
    }

    /// Gives the program what is there for it; what it does not take yet waits. Returns whether it
    /// took anything.
    fn deliver(&mut self, mut plaintext: &[u8]) -> Result<bool, End> {
        let mut moved = false;
        while !plaintext.is_empty() {
            match self.program.send(plaintext) {
                Ok(taken) => plaintext = &plaintext[taken..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.undelivered = plaintext.to_vec();
                    break;
                }
                // The program is gone.
                Err(_) => return Err(End::Truncated),
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Program to server. Returns whether anything moved.
    fn work_up(&mut self) -> Result<bool, End> {
        let had = self.upstream.tls.wants_write();
        if self.upstream.send().is_err() {
            return Err(self.stopped());
        }
        let sent = had && !self.upstream.tls.wants_write();
        if self.up == Way::Over || self.upstream.tls.wants_write() {
            return Ok(sent);
        }
        let read = PIECE.with_borrow_mut(|piece| {
            let said = self.program.receive(piece)?;
            if let Received::Bytes(bytes) = said {
                // rustls takes all of it: it has nothing left to send.
                self.upstream.tls.writer().write_all(&piece[..bytes])?;
            }
            io::Result::Ok(said)
        });
        match read {
            Ok(Received::Bytes(_)) => Ok(true),
            Ok(said) => {
                self.up = Way::Over;
                self.is_gone = said == Received::Gone;
                match said {
                    Received::Done => self.upstream.tls.send_close_notify(),
                    // All that it said has been sent.
                    Received::Cut => {
                        let _ = rustix::net::shutdown(&*self.upstream.tcp, Shutdown::Write);
                    }
                    _ => {}
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(sent),
            Err(_) => Err(self.stopped()),
        }
    }

    /// Waits until there is something to do. Returns whether the program was found to be gone.
    async fn wait(&self) -> io::Result<bool> {
        let (tcp, program) = (&self.upstream.tcp, self.program.line());
        let sends = self.upstream.tls.wants_write();
        let is_blocked = !self.undelivered.is_empty();
        let server = interest(self.down == Way::Open && !is_blocked, sends);
        let reads = self.up == Way::Open && !sends;
        let is_stuck = reads && self.program.is_stuck();
        let is_to_write = is_blocked || is_stuck || matches!(self.down, Way::Endings(_));
        let client = interest(reads && !is_stuck, is_to_write);
        let until_ms = self.state.settings.clock.now_ms() + LEFT_BEHIND_MS;
        let gone = async {
            if reads {
                return std::future::pending().await;
            }
            loop {
                tokio::time::sleep(ASK_WHETHER_GONE).await;
                if !self.is_gone && is_gone(program) {
                    return Ok(true);
                }
                if self.is_gone && self.state.settings.clock.now_ms() >= until_ms {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        };
        let server = async {
            match server {
                Some(interest) => tcp.ready(interest).await.map(|_| false),
                None => std::future::pending().await,
            }
        };
        let client = async {
            match client {
                Some(interest) => program.ready(interest).await.map(|_| false),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ready = server => ready,
            ready = client => ready,
            gone = gone => gone,
        }
    }
}

fn interest(reads: bool, writes: bool) -> Option<Interest> {
    match (reads, writes) {
        (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
        (true, false) => Some(Interest::READABLE),
        (false, true) => Some(Interest::WRITABLE),
        (false, false) => None,
    }
}
