//! The programs that come: who is let in, and what becomes of each.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::allotment::Piece;
use crate::carrying::serve_records;
use crate::closing::{Brought, Line};
use crate::connect::connect;
use crate::failure::Failure;
use crate::hopping::serve_hop;
use crate::near::Near;
use crate::program::Program;
use crate::protocol::{
    self, Answer, Connect, Connected, EarlyData, ErrorKind, Handshakes, Records, Request, Stats,
    Why,
};
use crate::relay::{Relay, gone};
use crate::settings::Settings;
use crate::state::State;
use crate::upstream::Upstream;
use crate::{Error, wire};

/// After a failure to accept, such as for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// How long connections have to say goodbye at the end.
const GOODBYE: Duration = Duration::from_secs(2);
/// The most that a connection has: a program's socket, and of three that it passed a copy, too.
const DESCRIPTORS: u64 = 6;
/// Kept for the rest: refusals, lookups, and what programs brought and is being closed.
const OTHER_DESCRIPTORS: u64 = 512;
/// Answers of "busy" under way at once; more programs than that are hung up on.
const REFUSALS: usize = 256;

/// How many threads best serve programs: one for every two processors, and one at least. A connection
/// is one thread's work at a time, and the programs want the processors, too.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1))
}

/// Serves programs until `shutdown` completes; then every connection is ended. Returns what was
/// done. `ready` is called when the manager answers.
///
/// # Errors
/// What keeps the manager from starting.
pub async fn run(
    listener: UnixListener,
    settings: Settings,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> Result<Stats, Error> {
    let mut settings = settings;
    settings.connections = settings.connections.min(affordable());
    let state = Arc::new(State::new(settings)?);
    ready();
    let guests = Arc::new(Guests::default());
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (state, stopped) = (Arc::clone(&state), stopped.clone());
                    let guests = Arc::clone(&guests);
                    tasks.spawn(async move { admit(state, &guests, stream, stopped).await });
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            },
        }
    }
    drop(listener);
    // Nobody listens: then there are no connections.
    let _ = stop.send(true);
    let all_gone = async { while tasks.join_next().await.is_some() {} };
    // Those who have not ended by then are ended.
    let _ = tokio::time::timeout(GOODBYE, all_gone).await;
    Ok(state.counts.of(0, state.sessions.count()))
}

/// Connections for which there are descriptors.
fn affordable() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS).max(1) as usize
}

/// The programs that are here.
#[derive(Debug, Default)]
struct Guests {
    here: Mutex<Here>,
}

#[derive(Debug, Default)]
struct Here {
    all: usize,
    refusals: usize,
    by_user: HashMap<u32, usize>,
}

/// A program's place, which is free again when it is dropped.
#[derive(Debug)]
struct Guest<'a> {
    guests: &'a Guests,
    uid: Option<u32>,
}

impl Guests {
    /// `None`: not even to be told that there is no room.
    fn admit(&self, uid: u32, settings: &Settings) -> Option<(Guest<'_>, Result<(), Failure>)> {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = here.by_user.get(&uid).copied().unwrap_or_default();
        let refusal = if !settings.users.is_empty() && !settings.users.contains(&uid) {
            Some(Failure::new(ErrorKind::NotPermitted, format!("user {uid} is not let in")))
        } else if here.all >= settings.connections || of_user >= settings.connections_per_user {
            Some(Failure::new(ErrorKind::Busy, "there are as many connections as are allowed"))
        } else {
            None
        };
        if let Some(failure) = refusal {
            if here.refusals >= REFUSALS {
                return None;
            }
            here.refusals += 1;
            return Some((Guest { guests: self, uid: None }, Err(failure)));
        }
        here.all += 1;
        *here.by_user.entry(uid).or_default() += 1;
        Some((Guest { guests: self, uid: Some(uid) }, Ok(())))
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let mut here = self.guests.here.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(uid) = self.uid else {
            here.refusals -= 1;
            return;
        };
        here.all -= 1;
        if let Some(of_user) = here.by_user.get_mut(&uid) {
            *of_user -= 1;
            if *of_user == 0 {
                here.by_user.remove(&uid);
            }
        }
    }
}

async fn admit(
    state: Arc<State>,
    guests: &Guests,
    stream: UnixStream,
    stopped: watch::Receiver<bool>,
) {
    let Ok(program) = Program::of(&stream) else { return };
    let stream = Line::new(stream, state.closers.of(program.uid));
    if !state.settings.unshared_programs.is_empty() {
        // As it is called now: it may become another program before it is served.
        program.name();
    }
    let Some((_guest, let_in)) = guests.admit(program.uid, &state.settings) else { return };
    let visit = Visit { state, program, stream, stopped };
    // The request and the handshake take room that a connection does not need afterwards.
    let asked = Box::pin(visit.while_awaited(visit.receive(let_in))).await;
    let Some(Some(order)) = asked else { return };
    if order.1.is_empty() {
        return visit.serve(order).await;
    }
    match visit.state.apart.of(visit.program.uid) {
        Some(thread) => thread.run(visit.serve(order)).await,
        None => {
            let failure = Failure::new(ErrorKind::Busy, "too many users pass sockets");
            refuse(&visit.stream, failure).await;
        }
    }
}

/// What a program asked for, the sockets that it brought, and the request's room.
type Order = (Wish, Vec<Brought>, Option<Piece>);

/// A connection.
enum Wish {
    Connect(Box<Connect>),
    Hop(Box<protocol::Hop>),
    Records(Box<Records>),
}

/// A program that was let in.
pub(crate) struct Visit {
    pub(crate) state: Arc<State>,
    pub(crate) program: Program,
    pub(crate) stream: Line,
    pub(crate) stopped: watch::Receiver<bool>,
}

impl Visit {
    /// Does it as long as the program waits and the manager runs.
    pub(crate) async fn while_awaited<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            biased;
            done = what => Some(done),
            () = gone(&self.stream) => None,
            () = stopping(&mut stopped) => {
                let failure = Failure::new(ErrorKind::ShuttingDown, "the manager ends");
                refuse(&self.stream, failure).await;
                None
            }
        }
    }

    /// Reads a request and answers it, unless it is for a connection.
    async fn receive(&self, let_in: Result<(), Failure>) -> Option<Order> {
        let Self { state, program, stream, .. } = self;
        let read = match let_in {
            Ok(()) => wire::read_request(stream, (&state.rooms, program.uid)).await?,
            Err(failure) => Err(failure),
        };
        let (request, sockets, room) = match read {
            Ok(read) => read,
            Err(failure) => {
                refuse(stream, failure).await;
                return None;
            }
        };
        let now_ms = state.settings.clock.now_ms();
        let answer = match request {
            Request::Connect(wish) => return Some((Wish::Connect(wish), sockets, room)),
            Request::Hop(hop) => return Some((Wish::Hop(hop), sockets, room)),
            Request::Records(wanted) => return Some((Wish::Records(wanted), sockets, room)),
            Request::Verified {} | Request::Accepted {} => {
                let detail = "it belongs behind the answer to a hop";
                Answer::Error(Failure::new(ErrorKind::BadRequest, detail).into())
            }
            Request::End { connection } => {
                Answer::End(state.ends.of(connection, program.uid, now_ms))
            }
            Request::Directly { why, times } => {
                state.counts.went_directly(program.uid, why, times.into());
                return None;
            }
            Request::Stats {} => {
                let stats = state.counts.of(program.uid, state.sessions.count());
                Answer::Stats(Box::new(stats))
            }
        };
        // The program may be gone.
        let _ = wire::write(stream, answer).await;
        None
    }

    async fn serve(self, (wish, sockets, room): Order) {
        match wish {
            Wish::Connect(wish) => {
                let socket = sockets.into_iter().next();
                self.connect((wish, socket, room)).await;
            }
            Wish::Hop(hop) => serve_hop(self, hop, sockets).await,
            Wish::Records(wanted) if sockets.is_empty() => {
                serve_records(self, wanted, room).await;
            }
            Wish::Records(_) => {
                let detail = "no socket comes with records: the program has it";
                refuse(&self.stream, Failure::new(ErrorKind::BadRequest, detail)).await;
            }
        }
    }

    /// Makes a connection, and relays until it ends.
    async fn connect(self, order: Plain) {
        let made = Box::pin(self.while_awaited(self.make(order))).await;
        let Some(Some((mut upstream, connected, service))) = made else { return };
        let (state, stream, uid) = (&self.state, &self.stream, self.program.uid);
        let standing = state.ends.open(connected.connection, uid, &state.settings.clock);
        let mut relay = Relay::new(state, &standing, Near::Plain(stream), &mut upstream);
        // The server is at work while the program is counted, and told.
        relay.begin();
        self.record(&service, &counted(&connected));
        drop(service);
        if wire::write(stream, Answer::Connected(connected)).await.is_err() {
            return;
        }
        state.counts.opened();
        let ended = relay.run(self.stopped.clone()).await;
        state.counts.closed();
        standing.ends(ended);
    }

    /// Makes a connection to a service, or says why there is none.
    async fn make(&self, order: Plain) -> Option<(Box<Upstream>, Box<Connected>, String)> {
        let (wish, socket, _room) = order;
        let service = service(&wish);
        match connect(&self.state, &self.program, &wish, socket).await {
            Ok((upstream, connected)) => Some((Box::new(upstream), Box::new(connected), service)),
            Err(failure) => {
                self.record(&service, &FAILED);
                refuse(&self.stream, failure).await;
                None
            }
        }
    }

    pub(crate) fn record(&self, service: &str, of: &Handshakes) {
        let name = self.program.name().unwrap_or("unknown");
        self.state.counts.record(self.program.uid, name, service, of);
    }
}

/// A wish for plaintext.
type Plain = (Box<Connect>, Option<Brought>, Option<Piece>);

/// Completes when the manager ends.
pub(crate) async fn stopping(stopped: &mut watch::Receiver<bool>) {
    // A sender that is gone ends it as well.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Under what a connection is counted.
pub(crate) fn service(wish: &Connect) -> String {
    format!("{}:{}", wish.host, wish.port)
}

/// The count of a connection that did not come to stand.
pub(crate) const FAILED: Handshakes =
    Handshakes { full: 0, resumed: 0, across_names: 0, refused: 0, failed: 1, early_data: 0 };

pub(crate) fn counted(connected: &Connected) -> Handshakes {
    let one = u64::from;
    Handshakes {
        full: one(!connected.resumed),
        resumed: one(connected.resumed),
        across_names: one(connected.session_of.is_some()),
        refused: one(connected.why == Why::Refused),
        failed: 0,
        early_data: one(connected.early_data == EarlyData::Accepted),
    }
}

pub(crate) async fn refuse(stream: &Line, failure: Failure) {
    // The program may be gone.
    let _ = wire::write(stream, Answer::Error(failure.into())).await;
}
