//! The listener: accepts programs within the limits, and hands each request to its handler.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Error;
use crate::downstream::connection::{FAILED, ProgramConnection, counted, refuse, service};
use crate::downstream::descriptors::{PassedDescriptor, ProgramSocket};
use crate::downstream::messages;
use crate::downstream::program::Program;
use crate::downstream::quota::Permit;
use crate::downstream::stream::Downstream;
use crate::failure::Failure;
use crate::hop::records::serve_records;
use crate::hop::sockets::serve_hop;
use crate::protocol::{self, Answer, Connect, Connected, ErrorKind, Records, Request, Stats};
use crate::relay::Relay;
use crate::settings::Settings;
use crate::state::State;
use crate::upstream::connection::Upstream;
use crate::upstream::handshake::connect;

/// The pause after a failure to accept, such as a lack of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// The time that connections have to close when the manager shuts down.
const GOODBYE: Duration = Duration::from_secs(2);
/// The descriptors of a connection, at most: a program's socket, three sockets that it passed, and copies of two of
/// them.
const DESCRIPTORS: u64 = 6;
/// The descriptors reserved for refusals, lookups, and passed sockets that are being closed.
const OTHER_DESCRIPTORS: u64 = 512;
/// The refusals being answered at once. Programs beyond that are disconnected without an answer.
const REFUSALS: usize = 256;

/// Returns the recommended number of threads: one for every two processors, and at least one. A connection
/// uses one thread at a time, and the programs need processors, too.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1))
}

/// Serves programs until `shutdown` completes, then ends every connection. Returns the counters. Calls `ready` when
/// the manager accepts connections.
///
/// # Errors
/// The manager cannot start.
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
    let admissions = Arc::new(Admissions::default());
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
                    let admissions = Arc::clone(&admissions);
                    tasks.spawn(async move { admit(state, &admissions, stream, stopped).await });
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            },
        }
    }
    drop(listener);
    // If no connection listens, there are none.
    let _ = stop.send(true);
    let all_gone = async { while tasks.join_next().await.is_some() {} };
    // Connections that are open after that are dropped.
    let _ = tokio::time::timeout(GOODBYE, all_gone).await;
    Ok(state.counts.of(0, state.sessions.count()))
}

/// Returns the number of connections for which there are descriptors.
fn affordable() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS).max(1) as usize
}

/// The programs that are connected.
#[derive(Debug, Default)]
struct Admissions {
    here: Mutex<Here>,
}

#[derive(Debug, Default)]
struct Here {
    all: usize,
    refusals: usize,
    by_user: HashMap<u32, usize>,
}

/// One program's share of the limits, returned when it is dropped.
#[derive(Debug)]
struct Admission<'a> {
    admissions: &'a Admissions,
    uid: Option<u32>,
}

impl Admissions {
    /// Admits or refuses a program. `None`: too many refusals are being answered already.
    fn admit(&self, uid: u32, settings: &Settings) -> Option<(Admission<'_>, Result<(), Failure>)> {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = here.by_user.get(&uid).copied().unwrap_or_default();
        let refusal = if !settings.users.is_empty() && !settings.users.contains(&uid) {
            Some(Failure::new(
                ErrorKind::NotPermitted,
                format!("user {uid} may not use this manager"),
            ))
        } else if here.all >= settings.connections || of_user >= settings.connections_per_user {
            Some(Failure::new(ErrorKind::Busy, "the limit of connections is reached"))
        } else {
            None
        };
        if let Some(failure) = refusal {
            if here.refusals >= REFUSALS {
                return None;
            }
            here.refusals += 1;
            return Some((Admission { admissions: self, uid: None }, Err(failure)));
        }
        here.all += 1;
        *here.by_user.entry(uid).or_default() += 1;
        Some((Admission { admissions: self, uid: Some(uid) }, Ok(())))
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        let mut here = self.admissions.here.lock().unwrap_or_else(PoisonError::into_inner);
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
    admissions: &Admissions,
    stream: UnixStream,
    stopped: watch::Receiver<bool>,
) {
    let Ok(program) = Program::of(&stream) else { return };
    let stream = ProgramSocket::new(stream, state.closers.of(program.uid));
    if !state.settings.unshared_programs.is_empty() {
        // Read now: the process may execute another program before it is served.
        program.name();
    }
    let Some((_admission, let_in)) = admissions.admit(program.uid, &state.settings) else { return };
    let downstream = ProgramConnection { state, program, stream, stopped };
    // Boxed: the request and the handshake take memory that the connection does not need afterwards.
    let asked = Box::pin(downstream.while_awaited(downstream.receive(let_in))).await;
    let Some(Some(order)) = asked else { return };
    if order.1.is_empty() {
        return downstream.serve(order).await;
    }
    match downstream.state.user_threads.of(downstream.program.uid) {
        Some(thread) => thread.run(downstream.serve(order)).await,
        None => {
            let failure = Failure::new(ErrorKind::Busy, "too many users pass sockets at once");
            refuse(&downstream.stream, failure).await;
        }
    }
}

/// A program's request for a connection, the sockets that it passed, and the permit for a long request.
type AdmittedRequest = (ConnectionRequest, Vec<PassedDescriptor>, Option<Permit>);

/// The kinds of connections that a program can request.
enum ConnectionRequest {
    Connect(Box<Connect>),
    Hop(Box<protocol::Hop>),
    Records(Box<Records>),
}

impl ProgramConnection {
    /// Reads a request. Returns it if it is for a connection, otherwise answers it.
    async fn receive(&self, let_in: Result<(), Failure>) -> Option<AdmittedRequest> {
        let Self { state, program, stream, .. } = self;
        let read = match let_in {
            Ok(()) => messages::read_request(stream, (&state.rooms, program.uid)).await?,
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
            Request::Connect(wish) => {
                return Some((ConnectionRequest::Connect(wish), sockets, room));
            }
            Request::Hop(hop) => return Some((ConnectionRequest::Hop(hop), sockets, room)),
            Request::Records(wanted) => {
                return Some((ConnectionRequest::Records(wanted), sockets, room));
            }
            Request::Verified {} | Request::Accepted {} => {
                let detail = "this request is valid only after the answer to a hop";
                Answer::Error(Failure::new(ErrorKind::BadRequest, detail).into())
            }
            Request::End { connection } => {
                Answer::End(state.endings.of(connection, program.uid, now_ms))
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
        let _ = messages::write(stream, answer).await;
        None
    }

    async fn serve(self, (wish, sockets, room): AdmittedRequest) {
        match wish {
            ConnectionRequest::Connect(wish) => {
                let socket = sockets.into_iter().next();
                self.connect((wish, socket, room)).await;
            }
            ConnectionRequest::Hop(hop) => serve_hop(self, hop, sockets).await,
            ConnectionRequest::Records(wanted) if sockets.is_empty() => {
                serve_records(self, wanted, room).await;
            }
            ConnectionRequest::Records(_) => {
                let detail = "a request for records must not pass a socket";
                refuse(&self.stream, Failure::new(ErrorKind::BadRequest, detail)).await;
            }
        }
    }

    /// Makes a connection, and relays plaintext until it ends.
    async fn connect(self, order: PlaintextRequest) {
        let made = Box::pin(self.while_awaited(self.make(order))).await;
        let Some(Some((mut upstream, connected, service))) = made else { return };
        let (state, stream) = (&self.state, &self.stream);
        let standing = self.open(connected.connection);
        let mut relay = Relay::new(state, &standing, Downstream::Plain(stream), &mut upstream);
        // The server works while the manager counts the connection and answers the program.
        relay.begin();
        self.record(&service, &counted(&connected));
        drop(service);
        if messages::write(stream, Answer::Connected(connected)).await.is_err() {
            return;
        }
        state.counts.opened();
        let ended = relay.run(self.stopped.clone()).await;
        state.counts.closed();
        standing.ended(ended);
    }

    /// Connects to the server. On failure, answers the program and returns `None`.
    async fn make(
        &self,
        order: PlaintextRequest,
    ) -> Option<(Box<Upstream>, Box<Connected>, String)> {
        let (wish, socket, _room) = order;
        let service = service(&wish);
        match connect(&self.state, &self.program, (&wish, None), socket).await {
            Ok((upstream, connected)) => Some((Box::new(upstream), Box::new(connected), service)),
            Err(failure) => {
                self.record(&service, &FAILED);
                refuse(&self.stream, failure).await;
                None
            }
        }
    }
}

/// A request for a plaintext connection, the socket that the program passed, and the permit for a long request.
type PlaintextRequest = (Box<Connect>, Option<PassedDescriptor>, Option<Permit>);
