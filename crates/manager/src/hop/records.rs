//! Programs that carry the records of TLS themselves, between the manager and a server: they have a socket that
//! they cannot pass, as Java's programs have.
//!
//! Such a socket serves one handshake, and as long as nothing was said over it the program can do that
//! without the manager. So the manager takes only what it has a session for: it and the server have
//! understood each other before. Where there is none, it may first call the server itself.
//!
//! Then the two take turns (`frames`). The program judges the server, as in a hop.

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

/// For a connection of the manager's own, on which the program waits.
const OWN_DEADLINE_MS: u32 = 3_000;
/// A program that does not say for so long whether it goes on is gone.
const SILENCE: Duration = Duration::from_secs(30);
/// A server may take so long for its part of the handshake, and a program for hearing what it asked for.
const SLOW: Duration = Duration::from_secs(120);
/// A program that goes on may still say for so long that it has verified the server.
const LATE_WORD: Duration = Duration::from_secs(10);
/// What a server may say before the program goes on.
const WAITING_BYTES: usize = 2 * FRAME_BYTES;

/// Serves it until it ends.
pub(crate) async fn serve_records(
    program_connection: ProgramConnection,
    wanted: Box<Records>,
    room: Option<Permit>,
) {
    let wish = wanted.wish();
    let peer = SocketAddr::new(wanted.address.to_canonical(), wanted.port.get());
    let agreed =
        Box::pin(program_connection.while_awaited(agree(&program_connection, &wanted, &wish)))
            .await;
    drop((wanted, room));
    let origin = match agreed {
        Some(Ok(origin)) => origin,
        Some(Err(failure)) => {
            program_connection.state.counts.went_directly(
                program_connection.program.uid,
                Directly::ManagerRefused,
                1,
            );
            return refuse(&program_connection.stream, failure).await;
        }
        None => return,
    };
    let mut is_stopped = program_connection.stopped.clone();
    tokio::select! {
        _ = carry(&program_connection, &origin, peer) => {}
        () = stopping(&mut is_stopped) => {}
    }
}

/// Whether the connection is taken.
async fn agree<'a>(
    program_connection: &ProgramConnection,
    wanted: &Records,
    wish: &'a Connect,
) -> Result<OriginHandshake<'a>, Failure> {
    let state = &program_connection.state;
    let origin = OriginHandshake::of(state, &program_connection.program, wish, false)?;
    if !origin.may_resume(state) && wanted.trust != Trust::None {
        // Of programs that come at once one has the server called.
        let _turn = state.own_connections.turn(origin.cache_key()).await;
        let is_barren = || state.barren.holds(origin.cache_key(), state.settings.clock.now_ms());
        if !origin.may_resume(state) && !is_barren() {
            call(program_connection, &origin, wanted).await?;
        }
    }
    match origin.may_resume(state) {
        true => Ok(origin),
        false => Err(Failure::new(ErrorKind::NoSession, "no session is known")),
    }
}

/// Has the server issue a session, by a connection of the manager's own. Where none comes of it, this one is
/// not called again for a while.
async fn call(
    program_connection: &ProgramConnection,
    origin: &OriginHandshake<'_>,
    wanted: &Records,
) -> Result<(), Failure> {
    let state = &program_connection.state;
    let trust = wanted.trust.clone();
    let wish = Connect { trust, deadline_ms: OWN_DEADLINE_MS, ..origin.wish().clone() };
    let made = connect(state, &program_connection.program, &wish, None).await;
    let count = made.as_ref().map_or(FAILED, |(_, connected)| counted(connected));
    program_connection.record(&service(&wish), &count);
    let detail = match made {
        Ok((upstream, _)) => {
            upstream.leave_with_session(state).await;
            if origin.may_resume(state) {
                return Ok(());
            }
            "the server issued no session".to_owned()
        }
        // Not the server's doing.
        Err(failure) if matches!(failure.kind, ErrorKind::BadRequest | ErrorKind::Busy) => {
            return Err(failure);
        }
        Err(failure) => {
            if failure.kind == ErrorKind::TlsFailed {
                origin.failed(state, &failure);
            }
            failure.detail
        }
    };
    state.barren.note(origin.cache_key(), state.settings.clock.now_ms() + FOREIGN_MS);
    Err(Failure::new(ErrorKind::NoSession, detail))
}

/// Takes turns with the program until one of the two ends it.
async fn carry(
    program_connection: &ProgramConnection,
    origin: &OriginHandshake<'_>,
    peer: SocketAddr,
) -> Option<()> {
    messages::write(&program_connection.stream, Answer::Ready {}).await.ok()?;
    let state = &program_connection.state;
    let (exchange, connected, resumes, frames) =
        Box::pin(shaken(program_connection, origin, peer)).await?;
    let standing = state.endings.open(
        connected.connection,
        program_connection.program.uid,
        &state.settings.clock,
    );
    let mut carried = CarriedConnection {
        program_connection,
        origin,
        exchange,
        resumes,
        standing,
        verdict: Verdict::Awaited,
    };
    if Box::pin(carried.introduce(connected, frames)).await.is_none() {
        origin.refused(state, &carried.exchange.endpoint, &carried.resumes);
        return None;
    }
    state.counts.opened();
    while carried.turn().await.is_some() {}
    state.counts.closed();
    let CarriedConnection { exchange, standing, .. } = carried;
    standing.ended(exchange.ended.unwrap_or(End::Truncated));
    Some(())
}

/// A connection that stands, how it is described, and what is to be said before.
type Shaken<'a> = (RecordExchange<'a>, Connected, OfferedSession, Frames);

/// Does the handshake. `None`: there is no connection, and the program knows or has gone. A session that its
/// server has not answered by then is given up.
async fn shaken<'a>(
    program_connection: &'a ProgramConnection,
    origin: &OriginHandshake<'_>,
    peer: SocketAddr,
) -> Option<Shaken<'a>> {
    let (state, line) = (&*program_connection.state, &program_connection.stream);
    // Until the program asks for the ClientHello no session is taken for it.
    let first = timeout(SILENCE, frames::read(line)).await.ok()?.ok()?;
    let (endpoint, attempt) = match origin.begin(state, peer) {
        Ok(begun) => begun,
        Err(failure) => return fail(program_connection, Frames::default(), failure).await,
    };
    let mut exchange = RecordExchange::new(state, endpoint);
    let offer_guard = origin.offer(state, &attempt, peer);
    let (shaken, frames) = exchange.shake(program_connection, first.map_err(Failure::from)).await?;
    let answered = offer_guard.answered(shaken);
    let service = service(origin.wish());
    match answered.and_then(|()| origin.finish(state, &mut exchange.endpoint, attempt)) {
        Ok((connected, resumes)) => {
            program_connection.record(&service, &counted(&connected));
            Some((exchange, connected, resumes, frames))
        }
        Err(failure) => {
            program_connection.record(&service, &FAILED);
            // The program cannot try without the manager: the next one can.
            origin.failed(state, &failure);
            fail(program_connection, frames, failure).await
        }
    }
}

/// Tells the program why there is no connection, or none any more.
async fn fail<T>(
    program_connection: &ProgramConnection,
    mut frames: Frames,
    failure: Failure,
) -> Option<T> {
    frames.failure(failure).ok()?;
    // The program may be gone.
    let _ = timeout(SILENCE, frames.send(&program_connection.stream)).await;
    None
}

/// A connection between two turns: what was said, and what is to be.
struct RecordExchange<'a> {
    state: &'a State,
    endpoint: Endpoint,
    /// What the server said, while the program does not go on.
    plaintext: Vec<u8>,
    /// How the server's direction has ended, if it has.
    ended: Option<End>,
    /// The program knows that the server has said that this was all.
    is_told: bool,
    /// The program has said that this was all.
    is_done: bool,
    /// The program goes on.
    goes_on: bool,
}

impl<'a> RecordExchange<'a> {
    fn new(state: &'a State, endpoint: Endpoint) -> Self {
        let plaintext = Vec::new();
        let (is_told, is_done, goes_on) = (false, false, false);
        Self { state, endpoint, plaintext, ended: None, is_told, is_done, goes_on }
    }

    /// Takes turns until the handshake is over or has failed; the last one is still to be answered. `None`: the
    /// program has gone, or says what it must not.
    async fn shake(
        &mut self,
        program_connection: &ProgramConnection,
        first: Result<TurnMessage, Failure>,
    ) -> Option<(Result<(), Failure>, Frames)> {
        let mut said = first;
        loop {
            let mut frames = Frames::default();
            let worked = said.and_then(|said| self.work(said));
            self.answer(&mut frames);
            match worked {
                Err(failure) if failure.kind == ErrorKind::BadRequest => {
                    return fail(program_connection, frames, failure).await;
                }
                Ok(()) if self.endpoint.tls.is_handshaking() => {}
                shaken => return Some((shaken, frames)),
            }
            timeout(SILENCE, frames.send(&program_connection.stream)).await.ok()?.ok()?;
            let next = timeout(SLOW, frames::read(&program_connection.stream)).await.ok()?.ok()?;
            said = next.map_err(Failure::from);
        }
    }

    /// Works on what the program said.
    fn work(&mut self, (turn, body): TurnMessage) -> Result<(), Failure> {
        let bad = |detail| Err(Failure::new(ErrorKind::BadRequest, detail));
        match turn {
            // So it asks whether there is anything for the server.
            Turn::Records if body.is_empty() => {}
            Turn::Records | Turn::Ended => return self.hear(&body),
            Turn::Plaintext if !self.goes_on => {
                return bad("plaintext came before the program went on");
            }
            Turn::Plaintext if self.is_done => return bad("plaintext came after its end"),
            Turn::Plaintext => {
                let written = self.endpoint.tls.writer().write_all(&body);
                return written.map_err(|error| Failure::of_io(&error));
            }
            Turn::Done => {
                self.is_done = true;
                self.endpoint.tls.send_close_notify();
            }
            Turn::Verified | Turn::Accepted if self.endpoint.tls.is_handshaking() => {
                return bad("there is nothing to be verified yet");
            }
            Turn::Verified | Turn::Accepted => self.goes_on = true,
        }
        Ok(())
    }

    /// Works on what the server said: nothing, if its stream has ended.
    fn hear(&mut self, records: &[u8]) -> Result<(), Failure> {
        // What comes after the end is nobody's.
        if self.ended.is_some() {
            return Ok(());
        }
        self.ended = self.endpoint.work_on(records, &mut self.plaintext);
        self.endpoint.store_issued(self.state);
        if self.ended == Some(End::Truncated) {
            // It says again what was wrong, if anything was.
            self.endpoint.process().map_err(|error| self.endpoint.failure(&error))?;
        }
        if self.ended.is_some() && self.endpoint.tls.is_handshaking() {
            return Err(Failure::broken("the server broke off the handshake"));
        }
        if !self.goes_on && self.plaintext.len() > WAITING_BYTES {
            let detail = "more came from the server than waits for a program that does not go on";
            return Err(Failure::new(ErrorKind::BadRequest, detail));
        }
        Ok(())
    }

    /// Says what is to be said, to the program and to the server.
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

/// A connection whose handshake is over.
struct CarriedConnection<'a> {
    program_connection: &'a ProgramConnection,
    origin: &'a OriginHandshake<'a>,
    exchange: RecordExchange<'a>,
    resumes: OfferedSession,
    standing: OpenConnection<'a>,
    verdict: Verdict,
}

/// What the program says of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Awaited,
    /// It goes on, and may say until then that it has verified the server.
    MayFollow(Instant),
    /// It has said all of it.
    TurnMessage,
}

impl CarriedConnection<'_> {
    /// Describes the server to the program, and takes turns until it goes on.
    async fn introduce(&mut self, connected: Connected, mut frames: Frames) -> Option<()> {
        frames.message(Answer::Connected(connected.into())).ok()?;
        timeout(SILENCE, frames.send(&self.program_connection.stream)).await.ok()?.ok()?;
        while self.verdict == Verdict::Awaited {
            timeout(SILENCE, self.turn()).await.ok()??;
        }
        Some(())
    }

    /// One turn of either. `None`: it was the last.
    async fn turn(&mut self) -> Option<()> {
        let said = self.next().await?;
        let mut frames = Frames::default();
        let worked = said.and_then(|said| {
            let turn = said.0;
            self.exchange.work(said).map(|()| self.heed(turn))
        });
        if let Some(end) = self.exchange.ended {
            // Before the program hears it, and asks.
            self.standing.server_ends(end);
        }
        self.exchange.answer(&mut frames);
        match worked {
            Ok(()) => timeout(SLOW, frames.send(&self.program_connection.stream)).await.ok()?.ok(),
            Err(failure) => fail(self.program_connection, frames, failure).await,
        }
    }

    /// Waits for the program's turn.
    async fn next(&mut self) -> Option<Result<TurnMessage, Failure>> {
        let mut said = pin!(frames::read(&self.program_connection.stream));
        let said = match self.verdict {
            Verdict::MayFollow(until) => match timeout_at(until, &mut said).await {
                Ok(said) => said,
                Err(_) => {
                    self.verdict = Verdict::TurnMessage;
                    self.exchange.endpoint.keep_nothing();
                    said.await
                }
            },
            Verdict::Awaited | Verdict::TurnMessage => said.await,
        };
        said.ok().map(|said| said.map_err(Failure::from))
    }

    /// What the server issues is kept if the program has verified it.
    fn heed(&mut self, turn: Turn) {
        match (turn, self.verdict) {
            (Turn::Verified, Verdict::MayFollow(until)) if Instant::now() >= until => {}
            (Turn::Verified, Verdict::Awaited | Verdict::MayFollow(_)) => {
                self.verdict = Verdict::TurnMessage;
                self.origin.keep(
                    &self.program_connection.state,
                    &mut self.exchange.endpoint,
                    &self.resumes,
                );
            }
            (Turn::Accepted, Verdict::Awaited) => {
                self.verdict = Verdict::MayFollow(Instant::now() + LATE_WORD);
            }
            _ => {}
        }
    }
}
