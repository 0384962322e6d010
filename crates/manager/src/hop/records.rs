//! Programs that carry TLS records between the manager and a server themselves, because they cannot pass their
//! socket, as in Java.
//!
//! Such a socket serves one handshake. Until a byte has been sent over it, the program can do that handshake
//! without the manager. So the manager accepts only connections for which it has a session: it has completed a
//! handshake with this server before. Without a session, it may first connect to the server itself.
//!
//! Then program and manager take turns ([`frames`]). The program verifies the server, as in a hop.

use std::io::Write;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::downstream::connection::{
    FAILED, ProgramConnection, counted, refuse, service, stopping,
};
use crate::downstream::endings::OpenConnection;
use crate::downstream::messages;
use crate::downstream::quota::Permit;
use crate::failure::Failure;
use crate::hop::frames::{self, Frames, TurnMessage};
use crate::protocol::{
    Answer, Connect, Connected, Directly, End, ErrorKind, FRAME_BYTES, Records, Trust, Turn,
};
use crate::state::State;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::handshake::{FOREIGN_MS, OfferedSession, OriginHandshake, connect};

/// The deadline of a connection of the manager's own, on which the program waits.
const OWN_DEADLINE_MS: u32 = 3_000;
/// The time in which a program must say whether it goes on.
const SILENCE: Duration = Duration::from_secs(30);
/// The time in which a server must do its part of the handshake, and a program must read an answer.
const SLOW: Duration = Duration::from_secs(120);
/// The time after going on in which a program may still report that it has verified the server.
const LATE_WORD: Duration = Duration::from_secs(10);
/// The plaintext that a server may send before the program goes on.
const WAITING_BYTES: usize = 2 * FRAME_BYTES;

/// Serves a connection by records until it ends.
pub(crate) async fn serve_records(
    downstream: ProgramConnection,
    wanted: Box<Records>,
    room: Option<Permit>,
) {
    let wish = wanted.wish();
    let peer = SocketAddr::new(wanted.address.to_canonical(), wanted.port.get());
    let agreed = Box::pin(downstream.while_awaited(agree(&downstream, &wanted, &wish))).await;
    drop((wanted, room));
    let origin = match agreed {
        Some(Ok(origin)) => origin,
        Some(Err(failure)) => {
            downstream.goes_directly(Directly::ManagerRefused);
            return refuse(&downstream.stream, failure).await;
        }
        None => return,
    };
    let mut is_stopped = downstream.phase.clone();
    tokio::select! {
        _ = carry(&downstream, &origin, peer) => {}
        () = stopping(&mut is_stopped) => {}
    }
}

/// Decides whether the manager accepts the connection.
async fn agree<'a>(
    downstream: &'a ProgramConnection,
    wanted: &Records,
    wish: &'a Connect,
) -> Result<OriginHandshake<'a>, Failure> {
    let state = &downstream.state;
    let wish = (wish, wanted.offers.as_ref());
    let origin = OriginHandshake::of(state, &downstream.program, wish, false, false)?;
    if !origin.may_resume() && wanted.trust != Trust::None {
        // If several programs ask at once, one connection is made for all of them.
        let _turn = state.own_connections.turn(origin.cache_key()).await;
        let is_barren = || state.barren.holds(&origin.case(), state.settings.clock.now_ms());
        if !origin.may_resume() && !is_barren() {
            call(downstream, &origin, wanted).await?;
        }
    }
    match origin.may_resume() {
        true => Ok(origin),
        false => Err(Failure::new(ErrorKind::NoSession, "no session is stored")),
    }
}

/// Obtains a session by a connection of the manager's own. If the server issues none, it is not called again for a
/// while.
async fn call(
    downstream: &ProgramConnection,
    origin: &OriginHandshake<'_>,
    wanted: &Records,
) -> Result<(), Failure> {
    let state = &downstream.state;
    downstream.may_connect(origin.wish())?;
    let trust = wanted.trust.clone();
    let wish = Connect { trust, deadline_ms: OWN_DEADLINE_MS, ..origin.wish().clone() };
    let asked = (&wish, wanted.offers.as_ref(), None);
    let made = connect(state, &downstream.program, asked, None).await;
    let count = made.as_ref().map_or(FAILED, |(_, connected)| counted(connected));
    downstream.record(&service(&wish), &count);
    let detail = match made {
        Ok((upstream, _)) => {
            upstream.leave_with_session(state).await;
            if origin.may_resume() {
                return Ok(());
            }
            "the server issued no session".to_owned()
        }
        // The server is not the cause.
        Err(failure) if matches!(failure.kind, ErrorKind::BadRequest | ErrorKind::Busy) => {
            return Err(failure);
        }
        Err(failure) => {
            if failure.kind == ErrorKind::TlsFailed {
                origin.failed();
            }
            failure.detail
        }
    };
    state.barren.note(origin.case(), state.settings.clock.now_ms() + FOREIGN_MS);
    Err(Failure::new(ErrorKind::NoSession, detail))
}

/// Takes turns with the program until either side ends the connection.
async fn carry(
    downstream: &ProgramConnection,
    origin: &OriginHandshake<'_>,
    peer: SocketAddr,
) -> Option<()> {
    messages::write(&downstream.stream, Answer::Ready {}).await.ok()?;
    let state = &downstream.state;
    let (exchange, connected, resumes, frames) = Box::pin(shaken(downstream, origin, peer)).await?;
    let standing = downstream.open(connected.connection, false);
    let mut carried = CarriedConnection {
        downstream,
        origin,
        exchange,
        resumes,
        standing,
        verdict: Verdict::Awaited,
    };
    if Box::pin(carried.introduce(connected, frames)).await.is_none() {
        origin.refused(&carried.exchange.endpoint, &carried.resumes);
        return None;
    }
    state.counts.opened();
    while carried.turn().await.is_some() {}
    state.counts.closed();
    if carried.exchange.is_unused() {
        origin.refused(&carried.exchange.endpoint, &carried.resumes);
    }
    let CarriedConnection { exchange, standing, .. } = carried;
    standing.ended(exchange.ended.unwrap_or(End::Truncated));
    Some(())
}

/// A connection after its handshake, its description, the session it resumed, and frames to send first.
type Shaken<'a> = (RecordExchange<'a>, Connected, OfferedSession, Frames);

/// Performs the handshake. `None`: it failed, and the program has been told or is gone. An offered session that the
/// server did not answer is given up.
async fn shaken<'a>(
    downstream: &'a ProgramConnection,
    origin: &OriginHandshake<'_>,
    peer: SocketAddr,
) -> Option<Shaken<'a>> {
    let (state, socket) = (&*downstream.state, &downstream.stream);
    // No session is taken from the store before the program asks for the ClientHello.
    let first = timeout(SILENCE, frames::read(socket)).await.ok()?.ok()?;
    let (endpoint, attempt) = match origin.begin(peer) {
        Ok(begun) => begun,
        Err(failure) => return fail(downstream, Frames::default(), failure).await,
    };
    let mut exchange = RecordExchange::new(state, endpoint);
    let offer_guard = origin.offer(&attempt, peer);
    let (shaken, frames) = exchange.shake(downstream, first.map_err(Failure::from)).await?;
    let answered = offer_guard.answered(shaken);
    let service = service(origin.wish());
    match answered.and_then(|()| origin.finish(&exchange.endpoint, attempt)) {
        Ok((connected, resumes)) => {
            downstream.record(&service, &counted(&connected));
            Some((exchange, connected, resumes, frames))
        }
        Err(failure) => {
            downstream.record(&service, &FAILED);
            // This program cannot fall back to its own TLS; the next one can.
            origin.failed();
            fail(downstream, frames, failure).await
        }
    }
}

/// Tells the program why the connection failed.
async fn fail<T>(
    downstream: &ProgramConnection,
    mut frames: Frames,
    failure: Failure,
) -> Option<T> {
    frames.failure(failure).ok()?;
    // The program may be gone.
    let _ = timeout(SILENCE, frames.send(&downstream.stream)).await;
    None
}

/// The state of a connection between two turns.
struct RecordExchange<'a> {
    state: &'a State,
    endpoint: Endpoint,
    /// Plaintext from the server that arrived before the program went on.
    plaintext: Vec<u8>,
    /// How the server's direction has ended, if it has.
    ended: Option<End>,
    /// True if the program has been told of the server's close_notify.
    is_told: bool,
    /// True if the program has announced its end.
    is_done: bool,
    /// True if the program has sent plaintext, or the server ended before it did.
    is_used: bool,
    /// True if the program went on.
    goes_on: bool,
}

impl<'a> RecordExchange<'a> {
    fn new(state: &'a State, endpoint: Endpoint) -> Self {
        let plaintext = Vec::new();
        let (is_told, is_done, is_used, goes_on) = (false, false, false, false);
        Self { state, endpoint, plaintext, ended: None, is_told, is_done, is_used, goes_on }
    }

    /// Takes turns until the handshake is complete or has failed; the last turn remains to be answered. `None`: the
    /// program is gone, or violated the protocol.
    async fn shake(
        &mut self,
        downstream: &ProgramConnection,
        first: Result<TurnMessage, Failure>,
    ) -> Option<(Result<(), Failure>, Frames)> {
        let mut said = first;
        loop {
            let mut frames = Frames::default();
            let worked = said.and_then(|said| self.work(said));
            self.answer(&mut frames);
            match worked {
                Err(failure) if failure.kind == ErrorKind::BadRequest => {
                    return fail(downstream, frames, failure).await;
                }
                Ok(()) if self.endpoint.tls.is_handshaking() => {}
                shaken => return Some((shaken, frames)),
            }
            timeout(SILENCE, frames.send(&downstream.stream)).await.ok()?.ok()?;
            let next = timeout(SLOW, frames::read(&downstream.stream)).await.ok()?.ok()?;
            said = next.map_err(Failure::from);
        }
    }

    /// Processes a program's turn.
    fn work(&mut self, (turn, body): TurnMessage) -> Result<(), Failure> {
        let bad = |detail| Err(Failure::new(ErrorKind::BadRequest, detail));
        match turn {
            // The program asks whether there are records for the server.
            Turn::Records if body.is_empty() => {}
            Turn::Records | Turn::Ended => return self.hear(&body),
            Turn::Plaintext if !self.goes_on => {
                return bad("plaintext is not allowed before the program goes on");
            }
            Turn::Plaintext if self.is_done => {
                return bad("plaintext is not allowed after its end");
            }
            Turn::Plaintext => {
                self.is_used |= !body.is_empty();
                let written = self.endpoint.tls.writer().write_all(&body);
                return written.map_err(|error| Failure::of_io(&error));
            }
            Turn::Done => {
                self.is_done = true;
                self.endpoint.tls.send_close_notify();
            }
            Turn::Verified | Turn::Accepted if self.endpoint.tls.is_handshaking() => {
                return bad("the handshake is not complete, so there is nothing to verify");
            }
            Turn::Verified | Turn::Accepted => self.goes_on = true,
        }
        Ok(())
    }

    /// Processes records from the server. An empty slice is the end of its stream.
    fn hear(&mut self, records: &[u8]) -> Result<(), Failure> {
        // Records after the end are ignored.
        if self.ended.is_some() {
            return Ok(());
        }
        if self.endpoint.tls.is_handshaking() {
            self.endpoint.note(records);
        }
        self.ended = self.endpoint.work_on(records, &mut self.plaintext);
        self.is_used |= self.ended.is_some() && !self.is_done;
        self.endpoint.store_issued(self.state);
        if self.ended == Some(End::Truncated) {
            // Returns the error again, if there was one.
            self.endpoint.process().map_err(|error| self.endpoint.failure(&error))?;
        }
        if self.ended.is_some() && self.endpoint.tls.is_handshaking() {
            return Err(Failure::broken("the server closed the connection during the handshake"));
        }
        if !self.goes_on && self.plaintext.len() > WAITING_BYTES {
            let detail = "the server sent too much before the program went on";
            return Err(Failure::new(ErrorKind::BadRequest, detail));
        }
        Ok(())
    }

    /// Returns true if the program left without having sent anything.
    fn is_unused(&self) -> bool {
        self.goes_on && !self.is_used
    }

    /// Adds the frames for the program and the records for the server.
    fn answer(&mut self, frames: &mut Frames) {
        if self.goes_on {
            frames.plaintext(&std::mem::take(&mut self.plaintext));
            if self.ended == Some(End::Clean) && !self.is_told {
                self.is_told = true;
                frames.done();
            }
        }
        frames.records(&mut self.endpoint.tls);
    }
}

/// A connection by records after its handshake.
struct CarriedConnection<'a> {
    downstream: &'a ProgramConnection,
    origin: &'a OriginHandshake<'a>,
    exchange: RecordExchange<'a>,
    resumes: OfferedSession,
    standing: OpenConnection<'a>,
    verdict: Verdict,
}

/// The program's verdict on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Awaited,
    /// The program went on, and may report until then that it has verified the server.
    MayFollow {
        until: Instant,
        until_ms: u64,
    },
    /// No report is expected any more.
    Final,
}

impl CarriedConnection<'_> {
    /// Describes the server to the program, and takes turns until the program goes on.
    async fn introduce(&mut self, connected: Connected, mut frames: Frames) -> Option<()> {
        frames.message(Answer::Connected(connected.into())).ok()?;
        timeout(SILENCE, frames.send(&self.downstream.stream)).await.ok()?.ok()?;
        while self.verdict == Verdict::Awaited {
            timeout(SILENCE, self.turn()).await.ok()??;
        }
        Some(())
    }

    /// Takes one turn of each side. `None`: it was the last.
    async fn turn(&mut self) -> Option<()> {
        let said = self.next().await?;
        let mut frames = Frames::default();
        let worked = said.and_then(|said| {
            let turn = said.0;
            self.exchange.work(said).map(|()| self.heed(turn))
        });
        if let Some(end) = self.exchange.ended {
            // Recorded before the program can read the end and ask.
            self.standing.server_ends(end);
        }
        self.exchange.answer(&mut frames);
        match worked {
            Ok(()) => timeout(SLOW, frames.send(&self.downstream.stream)).await.ok()?.ok(),
            Err(failure) => fail(self.downstream, frames, failure).await,
        }
    }

    /// Waits for the program's turn.
    async fn next(&mut self) -> Option<Result<TurnMessage, Failure>> {
        let mut said = pin!(frames::read(&self.downstream.stream));
        let said = match self.verdict {
            Verdict::MayFollow { until, .. } => match timeout_at(until, &mut said).await {
                Ok(said) => said,
                Err(_) => {
                    self.verdict = Verdict::Final;
                    self.exchange.endpoint.keep_nothing();
                    said.await
                }
            },
            Verdict::Awaited | Verdict::Final => said.await,
        };
        said.ok().map(|said| said.map_err(Failure::from))
    }

    /// Notes a verdict. Sessions that the server issues are kept only if the program has verified the server.
    fn heed(&mut self, turn: Turn) {
        let now_ms = self.downstream.state.settings.clock.now_ms();
        match (turn, self.verdict) {
            (Turn::Verified, Verdict::MayFollow { until_ms, .. }) if now_ms >= until_ms => {}
            (Turn::Verified, Verdict::Awaited | Verdict::MayFollow { .. }) => {
                self.verdict = Verdict::Final;
                self.origin.keep(&mut self.exchange.endpoint, &self.resumes);
            }
            (Turn::Accepted, Verdict::Awaited) => {
                let until_ms = now_ms + LATE_WORD.as_millis() as u64;
                self.verdict = Verdict::MayFollow { until: Instant::now() + LATE_WORD, until_ms };
            }
            _ => {}
        }
    }
}
