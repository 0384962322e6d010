//! The relay: moves plaintext between a program and its server, both ways, until both have ended.
//!
//! The relay reads from one side only after the other side has taken all that was read before. A connection has
//! only rustls's buffers, of about one record, and the plaintext that its program does not take yet.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use rustix::net::Shutdown;
use tokio::io::Interest;
use tokio::sync::watch;

use crate::downstream::connection::{ASK_WHETHER_GONE, stopping};
use crate::downstream::endings::OpenConnection;
use crate::downstream::input::{Received, is_gone};
use crate::downstream::stream::Downstream;
use crate::life::Phase;
use crate::protocol::End;
use crate::state::State;
use crate::upstream::connection::Upstream;
use crate::upstream::tcp::Source;

/// The size of one read.
const PIECE_BYTES: usize = 64 * 1024;
/// The rounds of one connection before others have a turn.
const ROUNDS: usize = 16;
/// The time for which a server may accept no data of a program that is gone.
const LEFT_BEHIND_MS: u64 = 60_000;

thread_local! {
    /// The buffer for reads that are processed at once, shared by all connections of a thread.
    static PIECE: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE_BYTES].into());
    /// The plaintext decrypted from it.
    static PLAINTEXT: RefCell<Vec<u8>> = RefCell::default();
}

/// See the module's documentation.
pub(crate) struct Relay<'a> {
    state: &'a State,
    standing: &'a OpenConnection<'a>,
    program: Downstream<'a>,
    upstream: &'a mut Upstream,
    /// Plaintext from the server that the program does not take yet.
    undelivered: Vec<u8>,
    /// The direction from the program to the server.
    up: Way,
    /// The direction from the server to the program.
    down: Way,
    /// True if no process holds the program's end any more.
    is_gone: bool,
    /// True if the program has shut reading down, and is still there. What the server sends to it is dropped, a piece at a
    /// time.
    is_deaf: bool,
    /// True if the server closed its direction, with or without close_notify.
    is_closed: bool,
    /// True if the server takes nothing any more: it closed the connection, or reset it. What it sent before is still
    /// delivered.
    is_refused: bool,
    /// True if it reset the connection without having closed its direction.
    is_reset: bool,
    /// True if the program has sent something.
    is_used: bool,
    /// True if the program ended its direction before the server did.
    is_left: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Ended like this; the other side has not been told yet.
    Endings(End),
    Over(End),
}

impl Way {
    fn is_over(self) -> bool {
        matches!(self, Self::Over(_))
    }
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
            is_deaf: false,
            is_closed: false,
            is_refused: false,
            is_reset: false,
            is_used: false,
            is_left: false,
        }
    }

    /// Returns true if the connection broke, for the program to see: the server neither announced its end nor closed its
    /// direction.
    pub(crate) fn is_broken(&self) -> bool {
        !self.down.is_over() && !self.is_closed
    }

    /// Returns true if the server takes nothing any more.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns true if the program left without having sent anything, as a program does that refuses the server after its
    /// handshake.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_left && !self.is_used
    }

    /// Returns the server's side, between two calls of [`run`](Self::run).
    pub(crate) fn upstream(&mut self) -> &mut Upstream {
        self.upstream
    }

    /// Sends the plaintext that the program wrote directly after its request, if the program is still there: one that
    /// is gone may have connected elsewhere. Then stores the sessions that the server has issued.
    pub(crate) fn begin(&mut self) {
        if !is_gone(self.program.socket()) && self.work_up().is_ok() {
            // An error shows again after the server's data has been read.
            let _ = self.upstream.send();
        }
        self.upstream.store_issued(self.state);
    }

    /// Relays until the connection has ended. Returns how it ended. Cancel-safe: if the future is dropped, no data is
    /// lost, and `run` may be called again.
    pub(crate) async fn run(&mut self, mut phase: watch::Receiver<Phase>) -> End {
        // A server that speaks first may have sent data in the handshake's last flight.
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
                            Err(_) => {
                                self.is_refused |= self.down.is_over();
                                break self.stopped();
                            }
                        },
                        () = stopping(&mut phase) => break self.stopped(),
                    }
                }
            }
        };
        // Sends an alert if there was an error, and no close_notify: the server would take truncated data for all that
        // the program had to send. Whether the alert arrives no longer matters.
        let _ = self.upstream.send();
        ended
    }

    /// Does the work that needs no waiting. Returns true if there is more of it.
    fn work(&mut self) -> Result<bool, End> {
        for _ in 0..ROUNDS {
            let moved = self.work_down()? | self.work_up()?;
            let is_sent = self.is_refused || self.up.is_over() && !self.upstream.tls.wants_write();
            if is_sent && (self.down.is_over() || self.is_gone) {
                return Err(self.stopped());
            }
            if !moved {
                let is_held = !self.undelivered.is_empty() || self.down != Way::Open;
                if self.is_refused && is_held {
                    // The program does not read. What it writes must fail nevertheless, as over TCP.
                    let _ = rustix::net::shutdown(&**self.program.socket(), Shutdown::Read);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns how the connection ends, given the state of the server's direction.
    fn stopped(&self) -> End {
        if let Way::Over(end) = self.down { end } else { End::Truncated }
    }

    /// Relays from the server to the program. Returns true if anything moved.
    fn work_down(&mut self) -> Result<bool, End> {
        let undelivered = std::mem::take(&mut self.undelivered);
        let moved = self.deliver(&undelivered)?;
        if !self.undelivered.is_empty() {
            return Ok(moved);
        }
        match self.down {
            Way::Open => {}
            // A server that closes its direction may still read, with close_notify or without.
            Way::Endings(end) if end == End::Clean || self.is_closed => {
                // Recorded before the program can read the end and ask.
                self.standing.server_ends(end);
                if !self.program.finish(end) {
                    return Ok(moved);
                }
                self.down = Way::Over(end);
                return Ok(true);
            }
            // Some programs take a reset for the end of an answer, and none a failure of TLS.
            Way::Endings(_) if self.upstream.is_broken_off() && !self.program.break_off() => {
                return Ok(moved);
            }
            Way::Endings(end) => return Err(end),
            Way::Over(_) => return Ok(moved),
        }
        PIECE.with_borrow_mut(|piece| match Source(&self.upstream.tcp).read(piece) {
            // The kernel tells of a reset once, and it was told when sending.
            Ok(0) if self.is_reset => Err(End::Truncated),
            Ok(read) => {
                self.is_closed = read == 0;
                self.work_on(&piece[..read]).map(|()| true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(moved),
            Err(_) => Err(End::Truncated),
        })
    }

    /// Processes bytes from the server. An empty slice is the end of file; rustls knows whether it was announced.
    fn work_on(&mut self, heard: &[u8]) -> Result<(), End> {
        self.pass_on(|relay, plaintext| relay.upstream.work_on(heard, plaintext))
    }

    /// Delivers the plaintext that `find` returns, and notes whether the server's direction has ended. Stores the
    /// sessions that the server issued afterwards, so that the program does not wait for it.
    fn pass_on(
        &mut self,
        find: impl FnOnce(&mut Self, &mut Vec<u8>) -> Option<End>,
    ) -> Result<(), End> {
        PLAINTEXT.with_borrow_mut(|plaintext| {
            plaintext.clear();
            // Plaintext that came before an error is delivered, too.
            self.down = find(self, plaintext).map_or(Way::Open, Way::Endings);
            let delivered = self.deliver(plaintext);
            self.upstream.store_issued(self.state);
            delivered.map(|_| ())
        })
    }

    /// Writes plaintext to the program, and keeps what it does not take. Returns true if it took anything.
    fn deliver(&mut self, mut plaintext: &[u8]) -> Result<bool, End> {
        let mut moved = false;
        while !plaintext.is_empty() && !self.is_deaf {
            match self.program.send(plaintext) {
                Ok(taken) => plaintext = &plaintext[taken..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.undelivered = plaintext.to_vec();
                    break;
                }
                // It may go on writing, as over TCP.
                Err(_) if !is_gone(self.program.socket()) => self.is_deaf = true,
                // The program is gone.
                Err(_) => {
                    self.is_left = true;
                    self.is_used |=
                        matches!(self.program.receive(&mut [0]), Ok(Received::Bytes(1..)));
                    return Err(End::Truncated);
                }
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Relays from the program to the server. Returns true if anything moved.
    fn work_up(&mut self) -> Result<bool, End> {
        if self.is_refused {
            return Ok(false);
        }
        let had = self.upstream.tls.wants_write();
        if let Err(error) = self.upstream.send() {
            self.is_refused = true;
            self.up = Way::Over(End::Truncated);
            // The error after the end of file is another one (tcp_reset of Linux).
            self.is_reset = error.kind() != io::ErrorKind::BrokenPipe;
            return Ok(true);
        }
        let sent = had && !self.upstream.tls.wants_write();
        if self.up.is_over() || self.upstream.tls.wants_write() {
            return Ok(sent);
        }
        let read = PIECE.with_borrow_mut(|piece| {
            let said = self.program.receive(piece)?;
            if let Received::Bytes(bytes) = said {
                // rustls takes all of it, because it has nothing left to send.
                self.upstream.tls.writer().write_all(&piece[..bytes])?;
            }
            io::Result::Ok(said)
        });
        match read {
            Ok(Received::Bytes(_)) => {
                self.is_used = true;
                Ok(true)
            }
            Ok(said) => {
                self.up = Way::Over(End::Clean);
                self.is_left = self.down == Way::Open;
                self.is_gone = said == Received::Gone;
                match said {
                    Received::Done => self.upstream.tls.send_close_notify(),
                    // All that it wrote has been sent.
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

    /// Waits until there is something to do. Returns true if the program was found to be gone.
    async fn wait(&self) -> io::Result<bool> {
        let (tcp, program) = (&self.upstream.tcp, self.program.socket());
        let sends = self.upstream.tls.wants_write() && !self.is_refused;
        let is_blocked = !self.undelivered.is_empty();
        let server = interest(self.down == Way::Open && !is_blocked, sends);
        // A server that has ended its direction may still reset the connection.
        let is_watched = server.is_none() && self.down.is_over() && !self.is_refused;
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
                None if is_watched => {
                    tcp.ready(Interest::ERROR).await?;
                    match tcp.take_error()? {
                        Some(error) => Err(error),
                        // Something else that the program asked of its socket, such as times of sending.
                        None => std::future::pending().await,
                    }
                }
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

pub(crate) fn interest(reads: bool, writes: bool) -> Option<Interest> {
    match (reads, writes) {
        (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
        (true, false) => Some(Interest::READABLE),
        (false, true) => Some(Interest::WRITABLE),
        (false, false) => None,
    }
}
